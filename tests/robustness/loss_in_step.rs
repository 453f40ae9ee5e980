//! A device lost at each moment between the beginning of a step and its end.

use crate::script::{self, Way};
use crate::support::{gpu, require_or_skip};
use kvarto::ErrorKind;
use kvarto::backend::wgpu::OpenOptions;
use kvarto::backend::{Backend, BufferSlice, block_on};
use kvarto::engine::{Engine, Input, Output, Registry, SeqRows};
use kvarto::kernel::RowView;
use kvarto::profile::Profile;
use kvarto::shape::CacheShape;

/// When the device goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    Begun,
    Appended,
    Recorded,
    Submitted,
    /// After both layers' outputs came to the host.
    Answered,
}

const ROWS: usize = 5;

fn engine(backend: Box<dyn Backend>) -> Engine {
    let profile = Profile { exact_sink_tokens: 0, exact_tail_tokens: 0, ..Profile::formats("fp8", "f16") };
    Engine::new(backend, CacheShape::uniform(2, 2, 1, 32, 16), profile, Registry::builtin()).expect("an engine")
}

fn life(engine: &mut Engine) -> Vec<f32> {
    let seq = engine.create().expect("a sequence");
    let row = |rows| [SeqRows { seq, rows, committed: true }];
    [40, 1, 5].into_iter().enumerate().fold(Vec::new(), |mut all, (name, rows)| {
        all.extend(script::step(engine, &row(rows), Way::AtOnce, name).expect("a step").out);
        all
    })
}

#[test]
fn a_loss_at_any_moment_of_a_step_is_an_error() {
    let open = || gpu::open("vulkan", &OpenOptions::default());
    let mut next = match open() {
        Ok(backend) => engine(Box::new(backend)),
        Err(error) => return require_or_skip("vulkan", &error.to_string()),
    };
    let want = life(&mut next);
    assert!(want.iter().all(|x| x.is_finite()) && want.iter().any(|x| x.abs() > 0.1));
    for moment in [Moment::Begun, Moment::Appended, Moment::Recorded, Moment::Submitted, Moment::Answered] {
        let mut lost = next;
        let seq = lost.create().expect("a sequence");
        let out = lost.backend().alloc("outputs", (ROWS * 64 * 4) as u64).expect("room");
        let slice = BufferSlice::whole(out, (ROWS * 64 * 4) as u64);
        let (kv, q) = (vec![0.5; ROWS * 32], vec![0.25; ROWS * 64]);
        let mut host = vec![f32::NAN; ROWS * 64];
        let mut step = lost.begin_step(&[SeqRows { seq, rows: ROWS as u32, committed: true }]).expect("begins");
        let mut outcome = Ok(());
        let at = |step: &mut kvarto::engine::Step<'_>, now: Moment| {
            if moment == now {
                step.backend().as_wgpu().expect("wgpu").lose_for_test();
            }
        };
        at(&mut step, Moment::Begun);
        for layer in 0..2 {
            let result = step.append(layer, Input::Host(&kv), Input::Host(&kv)).and_then(|()| {
                at(&mut step, Moment::Appended);
                let view = RowView { slice, offset: 0, stride: 64 };
                let place = match moment {
                    Moment::Answered => Output::Host(&mut host),
                    _ => Output::Device(view),
                };
                step.attend(layer, Input::Host(&q), place)
            });
            outcome = outcome.and(result);
        }
        at(&mut step, Moment::Recorded);
        if moment == Moment::Submitted {
            step.submit().expect("it is there yet");
        }
        at(&mut step, Moment::Submitted);
        at(&mut step, Moment::Answered);
        assert_eq!(moment == Moment::Answered, host.iter().all(|x| (x - 0.5).abs() < 1e-3), "{moment:?}");
        match outcome.and_then(|()| step.finish().map(|_| ())) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::DeviceLost, "{moment:?}: {error}");
                assert!(error.remedy().contains("build the engine anew"), "{moment:?}: {error}");
                assert_eq!(lost.lengths(seq).expect("alive").logical, 0, "{moment:?}: nothing of the step counts");
            }
            // Nobody waited for what was under way: then the loss is told by whatever comes next.
            Ok(()) => assert_eq!(moment, Moment::Submitted),
        }
        // What is read is an error, and no step begins.
        let read = lost.backend().read(out, 0, 16).and_then(block_on);
        let error = read.err().unwrap_or_else(|| panic!("{moment:?}: bytes of a lost device"));
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{moment:?}: {error}");
        let error = lost.begin_step(&[SeqRows { seq, rows: 1, committed: true }]).err().expect("no step");
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{moment:?}: {error}");
        drop(lost);
        // Another device, in the same process, says what the first one said.
        next = engine(Box::new(open().expect("a fresh device")));
        let again = life(&mut next);
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(bits(&again) == bits(&want), "{moment:?}: a fresh device says something else");
    }
}
