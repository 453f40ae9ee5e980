//! A selector and a policy, as small as they can be.

use kvarto::policy::{Move, PageView, Policy};
use kvarto::select::{Question, Selector};

/// Pages 0, 3, 6, ..
pub struct EveryThird;

impl Selector for EveryThird {
    fn name(&self) -> &str {
        "every-third"
    }

    fn summary(&self) -> &str {
        "pages 0, 3, 6 and so on"
    }

    fn reads(&self, _: &Question, page: usize) -> bool {
        page.is_multiple_of(3)
    }
}

/// Brings sealed pages 1, 3, 5, .. to `lin8`.
pub struct EverySecond;

impl Policy for EverySecond {
    fn name(&self) -> &str {
        "every-second"
    }

    fn targets(&self) -> Vec<(String, String)> {
        vec![("lin8".into(), "lin8".into())]
    }

    fn decide(&mut self, pages: &[PageView]) -> Vec<Move> {
        let due = pages.iter().filter(|p| p.page % 2 == 1 && p.formats.0 != "lin8");
        due.map(|p| Move::Convert {
            sequence: p.sequence,
            layer: p.layer,
            kv_head: p.kv_head,
            page: p.page,
            k: "lin8".into(),
            v: "lin8".into(),
            reason: "every second page",
        })
        .collect()
    }
}
