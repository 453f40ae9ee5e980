//! A page format, a selector and a policy from outside the crate, through the same checks as the built-in ones.

#[path = "extension/drive.rs"]
mod drive;
#[path = "extension/lin8.rs"]
mod lin8;
#[path = "extension/others.rs"]
mod others;
#[path = "extension/peak.rs"]
mod peak;
mod support;
#[path = "extension/tapped.rs"]
mod tapped;

use drive::{Page, Plan, Run, check, on_backends};
use kvarto::ErrorKind;
use kvarto::engine::Registry;
use kvarto::format::Format as _;
use kvarto::profile::Profile;
use kvarto::shape::{PAGE_TOKENS, PageGeometry, Side};
use lin8::Lin8;
use others::{EverySecond, EveryThird};
use std::sync::Arc;
use tapped::{Log, Tapper};

fn registry() -> Registry {
    logging(&Log::default())
}

/// With selector and policy that write down the taps that they are handed.
fn logging(log: &Log) -> Registry {
    let (selector, of_policy) = (EveryThird(Tapper::new(log.clone())), log.clone());
    let with = || {
        Registry::builtin()
            .with_format(Arc::new(Lin8))?
            .with_selector(Arc::new(selector))?
            .with_policy("every-second", move || EverySecond(Tapper::new(of_policy.clone())))
    };
    with().expect("new names")
}

#[test]
fn names_that_are_taken_are_refused_by_name() {
    let refused = |outcome: kvarto::Result<Registry>, name: &str| {
        let error = outcome.err().expect("a refusal");
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.message().contains(name), "{error}");
    };
    refused(registry().with_format(Arc::new(Lin8)), "lin8");
    refused(registry().with_selector(Arc::new(EveryThird::default())), "every-third");
    refused(registry().with_policy("every-second", EverySecond::default), "every-second");
    refused(registry().with_policy("keep", EverySecond::default), "keep");
    // And a profile that names them is understood only where they are.
    assert!(Profile::parse_kv("k=lin8,v=tq3", &registry().formats).is_ok());
    let error = Profile::parse_kv("lin8", &Registry::builtin().formats).unwrap_err();
    assert!(error.message().contains("lin8"), "{error}");
}

#[test]
fn codes_stand_where_the_layout_says() {
    for side in Side::BOTH {
        for tokens in PAGE_TOKENS {
            for head_dim in [8, 64, 80, 256] {
                let geometry = PageGeometry { tokens, head_dim };
                let codec = Lin8.codec(side, geometry).unwrap();
                let layout = codec.layout();
                let values: Vec<f32> =
                    (0..geometry.values()).map(|i| ((i * 31 % 257) as f32 - 128.0) * (1 + i % 7) as f32).collect();
                let mut page = vec![u32::MAX; layout.page_words];
                codec.encode(&values, &mut page);
                let mut decoded = vec![f32::NAN; values.len()];
                codec.decode(&page, 0..tokens, &mut decoded);
                for token in 0..tokens {
                    let scale = f32::from_bits(layout.read_scalar(&page, 0, token, 0));
                    for channel in 0..head_dim {
                        let at = token * head_dim + channel;
                        let code = layout.read(&page, 0, token, channel) as i32 - 128;
                        assert_eq!(decoded[at], code as f32 * scale, "{side:?} {geometry:?} {token} {channel}");
                        assert!((decoded[at] - values[at]).abs() <= 0.51 * scale, "{} {}", decoded[at], values[at]);
                    }
                }
                // A part of the rows is the same part of the whole.
                let mut part = vec![f32::NAN; 3 * head_dim];
                codec.decode(&page, 5..8, &mut part);
                assert_eq!(part, decoded[5 * head_dim..8 * head_dim]);
            }
        }
    }
    assert!(Lin8.codec(Side::K, PageGeometry { tokens: 32, head_dim: 12 }).is_err());
}

#[test]
fn the_engine_attends_over_the_format() {
    let profile = Profile { exact_sink_tokens: 0, exact_tail_tokens: 0, ..Profile::formats("lin8", "lin8") };
    on_backends(|backend, on| {
        // Pages that were full when the step began are sealed.
        let page = |page: usize, committed: usize| {
            if (page + 1) * 32 <= committed { Page::Lin8 } else { Page::F16 }
        };
        let plan = Plan { registry: registry(), profile: profile.clone(), format: &page, reads: &|_, _| true };
        let run = check(backend, &plan, on);
        assert_eq!(run.engine.stats().pages[&("lin8".to_string(), "lin8".to_string())], 6 * 4, "{on}");
        run.truncated_pages_reopen();
    });
}

#[test]
fn the_selector_reads_less() {
    let dense = Profile { exact_sink_tokens: 0, exact_tail_tokens: 1, ..Profile::formats("f16", "f16") };
    let third = Profile { selector: "every-third".into(), ..dense.clone() };
    on_backends(|backend, on| {
        let log = Log::default();
        let all =
            Plan { registry: logging(&log), profile: dense.clone(), format: &|_, _| Page::F16, reads: &|_, _| true };
        let run = check(backend, &all, on);
        let dense_bytes = run.read_bytes;
        let some = Plan {
            profile: third.clone(),
            // Its own page, and every third.
            reads: &|page: usize, own: usize| page == own || page.is_multiple_of(3),
            ..all
        };
        let Run { read_bytes, .. } = check(run.engine.into_backend(), &some, on);
        drive::check_taps(&log, true, on);
        // Of pages 0..7 the last decoding step reads 0, 3 and 6: the last is its own.
        assert_eq!(read_bytes * 7, dense_bytes * 3, "{on}");
    });
}

#[test]
fn the_policy_converts_every_second_page() {
    let profile = Profile {
        exact_sink_tokens: 0,
        exact_tail_tokens: 0,
        policy: "every-second".into(),
        ..Profile::formats("f16", "f16")
    };
    on_backends(|mut backend, on| {
        backend.forbid_new_pipelines(false);
        // A page is sealed in the step after it was full, and converted one step later.
        let format = |page: usize, committed: usize| match (page + 1) * 32 <= drive::before(committed) {
            true if page % 2 == 1 => Page::Lin8,
            _ => Page::F16,
        };
        let log = Log::default();
        let plan = Plan { registry: logging(&log), profile: profile.clone(), format: &format, reads: &|_, _| true };
        let run = check(backend, &plan, on);
        drive::check_taps(&log, false, on);
        let stats = run.engine.stats();
        assert_eq!(stats.pages[&("lin8".to_string(), "lin8".to_string())], 3 * 4, "{on} {stats:?}");
        // Six pages of each of four heads were sealed, three of them converted.
        assert_eq!(stats.conversions, 9 * 4, "{on}");
        assert_eq!(run.reasons["every second page"], 3 * 4, "{on}");
        assert_eq!(run.reasons["sealed"], 6 * 4, "{on}");
    });
}
