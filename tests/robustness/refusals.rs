//! The first allocation refused, then the second, and so on through a whole life; then every submission and every read,
//! which need memory of the driver's own. Every refusal leaves every sequence as it was, and the same call made again
//! gives the bits of a life without refusals.

use crate::hooked::{Hooked, Hooks};
use crate::script::{Said, Way, cpu, engine, live};
use kvarto::backend::{Backend, BufferId, ReadFuture, Recording, SubmissionId};
use kvarto::{Error, ErrorKind, Result};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// What may be refused for want of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Call {
    #[default]
    Alloc,
    Submit,
    Read,
}

/// Which calls are refused, counted from 1 since the last time this was set.
#[derive(Default)]
pub struct Refusing {
    call: Call,
    refuse: Range<u64>,
    seen: u64,
    /// Labels of what was refused.
    refused: Vec<String>,
}

/// What a test holds of the hooks.
#[derive(Clone, Default)]
pub struct Handle(Arc<Mutex<Refusing>>);

impl Handle {
    /// Refuses these allocations from now on.
    pub fn refuse(&self, these: Range<u64>) {
        self.refuse_calls(Call::Alloc, these);
    }

    /// Refuses these calls from now on.
    pub fn refuse_calls(&self, call: Call, these: Range<u64>) {
        *self.0.lock().expect("no panic") = Refusing { call, refuse: these, ..Refusing::default() };
    }

    fn asked(&self, call: Call, label: &str) -> Result<()> {
        let mut refusing = self.0.lock().expect("no panic");
        refusing.seen += u64::from(refusing.call == call);
        if refusing.call == call && refusing.refuse.contains(&refusing.seen) {
            refusing.refused.push(label.into());
            return Err(Error::new(ErrorKind::OutOfMemory, format!("{label} is refused, planted"), "ask again"));
        }
        Ok(())
    }

    /// Labels of what was refused since.
    pub fn refused(&self) -> Vec<String> {
        self.0.lock().expect("no panic").refused.clone()
    }
}

impl Hooks for Handle {
    fn alloc(&mut self, inner: &mut dyn Backend, label: &str, bytes: u64) -> Result<BufferId> {
        self.asked(Call::Alloc, label)?;
        inner.alloc(label, bytes)
    }

    fn submit(&mut self, inner: &mut dyn Backend, recording: Recording) -> Result<SubmissionId> {
        self.asked(Call::Submit, "submission")?;
        inner.submit(recording)
    }

    fn read(&mut self, inner: &mut dyn Backend, buffer: BufferId, offset: u64, bytes: u64) -> Result<ReadFuture> {
        self.asked(Call::Read, "read")?;
        inner.read(buffer, offset, bytes)
    }
}

/// The largest difference that rounding of `fp8` and `tq3` pages makes where one run reads exact ones.
const ROUNDED: f32 = 0.5;
/// The largest difference that another order of summation makes.
const REORDERED: f32 = 1e-5;

/// What one life with refusals said, against that without: the same bits, until pages could not be sealed when they were
/// due. Such a page is read exact until it is; and while it holds its place, new pages may lie in another segment, whose
/// sums are merged in another order.
/// The same holds of sequences that were `used` between a refusal and the next try. Whether pages had to wait.
fn compare(said: &[Said], want: &[Said], used: bool, what: &str) -> bool {
    assert_eq!(said.len(), want.len());
    let mut deferred = false;
    for (at, (said, want)) in said.iter().zip(want).enumerate() {
        assert_eq!((want.deferred, said.out.len()), (0, want.out.len()));
        deferred |= said.deferred > 0;
        let limit = match (said.deferred, deferred || used) {
            (0, false) => 0.0,
            (0, true) => REORDERED,
            _ => ROUNDED,
        };
        for (place, (said, want)) in said.out.iter().zip(&want.out).enumerate() {
            let off = (said - want).abs();
            assert!(off <= limit, "{what}: step {at}, output {place}: {said} and not {want}");
            assert!(
                limit > 0.0 || said.to_bits() == want.to_bits(),
                "{what}: step {at}, output {place}: a zero's sign"
            );
        }
    }
    deferred
}

/// All lives of one backend: none refused, then `run` allocations from the first on, from the second, .. until the end.
/// Where several are refused, sequences are used between the tries.
fn every_allocation(mut backend: Box<dyn Backend>, handle: &Handle, basis: &str, way: Way, run: u64) {
    let mut labels = BTreeSet::new();
    let (mut want, mut pages) = (Vec::new(), Default::default());
    let (mut errors, mut deferrals) = (0, 0);
    for first in 0.. {
        handle.refuse(0..0);
        let mut engine = engine(backend, basis).expect("an engine");
        // The first life is undisturbed.
        handle.refuse(first..first + if first > 0 { run } else { 0 });
        let (said, refusals) = live(&mut engine, way, run as usize, run > 1);
        let refused = handle.refused();
        let stats = engine.stats();
        let what = format!("{basis}, {way:?}, from allocation {first} ({refused:?})");
        if first == 0 {
            assert!(stats.conversions > 100 && stats.reopened > 0, "{stats:?}");
            (want, pages) = (said, stats.pages);
        } else {
            let deferred = compare(&said, &want, run > 1, &what);
            assert_eq!(stats.pages, pages, "{what}");
            // A refusal is told, or puts off the sealing of pages; it is never lost.
            assert!(refused.is_empty() || !refusals.is_empty() || deferred, "{what}: nobody was told");
            (errors, deferrals) = (errors + refusals.len(), deferrals + u64::from(deferred));
        }
        backend = engine.into_backend();
        assert_eq!(backend.allocated_bytes(), 0, "{what}");
        if first > 0 && refused.is_empty() {
            println!(
                "{basis}, {way:?}, {run} in a row: {first} lives, {errors} errors, {deferrals} with pages deferred"
            );
            break;
        }
        labels.extend(refused);
    }
    for label in ["k pages", "v pages", "descriptors", "tables", "queries", "partials", "staging"] {
        assert!(labels.contains(label), "{label} was never refused: {labels:?}");
    }
    assert!(errors > 10 && deferrals > 0, "{errors} errors, {deferrals} deferrals");
}

#[test]
fn the_cpu_may_refuse_any_allocation() {
    for (basis, way) in [("hadamard", Way::LayerByLayer), ("mean", Way::AtOnce), ("mean", Way::LayerByLayer)] {
        for run in [1, 3] {
            let handle = Handle::default();
            every_allocation(Box::new(Hooked::new(cpu(), handle.clone())), &handle, basis, way, run);
        }
    }
}

#[test]
fn submissions_and_reads_may_be_refused() {
    for (call, way) in [(Call::Submit, Way::LayerByLayer), (Call::Submit, Way::AtOnce), (Call::Read, Way::LayerByLayer)]
    {
        let handle = Handle::default();
        let mut backend: Box<dyn Backend> = Box::new(Hooked::new(cpu(), handle.clone()));
        let mut want = Vec::new();
        for first in 0.. {
            let mut engine = engine(backend, "mean").expect("an engine");
            handle.refuse_calls(call, first..first + u64::from(first > 0));
            let (said, refusals) = live(&mut engine, way, 1, false);
            backend = engine.into_backend();
            assert_eq!(backend.allocated_bytes(), 0);
            if first == 0 {
                want = said;
                continue;
            }
            let what = format!("{way:?}, {call:?} {first}");
            assert!(!compare(&said, &want, false, &what), "{what}: pages waited");
            assert_eq!(refusals.len(), handle.refused().len(), "{what}");
            if refusals.is_empty() {
                println!("{way:?}: {} of {call:?} were refused in turn", first - 1);
                assert!(first > 12, "{what}");
                break;
            }
        }
    }
}

#[test]
fn an_engine_whose_first_buffers_are_refused_is_not_made() {
    let mut labels = Vec::new();
    for first in 1.. {
        let handle = Handle::default();
        handle.refuse(first..first + 1);
        match engine(Box::new(Hooked::new(cpu(), handle.clone())), "mean") {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}"),
        }
        labels.extend(handle.refused());
    }
    assert_eq!(labels, ["means", "sink logits", "means", "sink logits"]);
}

#[cfg(feature = "wgpu")]
#[test]
fn vulkan_may_refuse_any_allocation() {
    use kvarto::backend::wgpu::OpenOptions;
    match crate::support::gpu::open("vulkan", &OpenOptions::default()) {
        Err(error) => crate::support::require_or_skip("vulkan", &error.to_string()),
        Ok(backend) => {
            let handle = Handle::default();
            let hooked = Box::new(Hooked::new(backend, handle.clone()));
            every_allocation(hooked, &handle, "mean", Way::LayerByLayer, 1);
        }
    }
}
