//! Where kernels run: one trait over the CPU, wgpu and CUDA.
//!
//! A backend owns buffers and pipelines and executes [`Recording`]s in the order they are submitted.
//! Nothing in it blocks: submission returns an id, reading returns a future.

#[cfg(all(feature = "cuda", feature = "wgpu"))]
mod adapter;
pub mod assemble;
mod awake;
mod caps;
mod checks;
pub mod cpu;
mod cpu_call;
#[cfg(feature = "cuda")]
pub mod cuda;
mod declaration;
mod listing;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod reading;
mod recording;
#[cfg(feature = "wgpu")]
pub mod wgpu;

#[cfg(all(feature = "cuda", feature = "wgpu"))]
pub use adapter::Adapter;
pub use caps::{BackendKind, Caps};
pub use cpu::CpuBackend;
pub use cpu_call::CpuCall;
pub use declaration::{
    Access, BindingDecl, CodecUse, Constant, CudaText, Element, KernelDecl, ParamDecl, ParamKind, Specialisation,
};
pub use listing::{Listed, ListingBackend};
pub use recording::{BufferSlice, Command, Dispatch, Recording};

use crate::error::Result;
use std::future::Future;
use std::pin::Pin;

/// A buffer of a backend. Ids are never used twice by one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u64);

/// A prepared kernel of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipelineId(pub u32);

/// Orders submissions of one backend; larger is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubmissionId(pub u64);

/// The bytes of a read, once the device has them.
pub type ReadFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send>>;

/// How finely submissions are timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// Not at all.
    #[default]
    None,
    /// Whole submissions, on the host's clock.
    Steps,
    /// Each kernel: device timestamps where there are any, else one pass a kernel, said in the record. Kernels of a
    /// GPU then run one by one, each with a pass of its own, which costs each some microseconds.
    Kernels,
    /// Runs of the named kernels, each as it runs untimed: timestamps stand around the whole run. The entry is named
    /// [`SPAN`] and counts the runs' dispatches.
    Spans(&'static [&'static str]),
}

/// Name of the entry that [`Timing::Spans`] gives.
pub const SPAN: &str = "span";

impl Timing {
    /// What a dispatch of `kernel` is counted under; `None` where it is not timed by itself.
    pub fn entry(self, kernel: &'static str) -> Option<&'static str> {
        match self {
            Timing::None | Timing::Steps => None,
            Timing::Kernels => Some(kernel),
            Timing::Spans(kernels) => kernels.contains(&kernel).then_some(SPAN),
        }
    }

    /// Whether kernels are timed, not only whole submissions.
    pub fn of_kernels(self) -> bool {
        matches!(self, Timing::Kernels | Timing::Spans(_))
    }
}

/// Time spent in one kernel since the last call of [`Backend::take_times`].
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTime {
    /// Kernel name, as in its declaration.
    pub kernel: &'static str,
    /// Dispatches counted.
    pub dispatches: u64,
    /// Nanoseconds, summed.
    pub nanoseconds: u64,
}

/// Runs kernels over buffers. Calls take effect in the order they are made.
pub trait Backend: Send {
    /// What the adapter can do; the dispatcher decides by this record and nothing else.
    fn caps(&self) -> &Caps;

    /// A zero-filled buffer of at least `bytes` bytes (at least 16).
    ///
    /// # Errors
    /// `OutOfMemory` when the device refuses it, `Unsupported` above the adapter's buffer limit.
    fn alloc(&mut self, label: &str, bytes: u64) -> Result<BufferId>;

    /// Gives a buffer back once the submissions that use it are done.
    fn free(&mut self, buffer: BufferId);

    /// Queues host bytes (a multiple of 4, at a multiple of 4) to be there before the next submission.
    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Compiles a kernel, or finds it compiled. Slow; belongs in warm-up.
    fn prepare(&mut self, specialisation: &Specialisation) -> Result<PipelineId>;

    /// Queues a recording: one pass unless copies or [`Caps::max_submission_ms`] split it. What is predicted to take
    /// longer goes in several submissions, cut at boundaries ([`Recording::boundary`]) and nowhere else; the id is the
    /// last one's.
    ///
    /// # Errors
    /// `Shape` for commands that do not fit; `OutOfMemory` when there is no room to begin. Nothing of the recording has
    /// run then. After `Device` and `DeviceLost`, parts of it may have.
    fn submit(&mut self, recording: Recording) -> Result<SubmissionId>;

    /// The newest submission known to be complete, or the error that the device reported since.
    fn poll(&mut self) -> Result<SubmissionId>;

    /// Reads `bytes` bytes (multiples of 4) as they are after everything submitted so far.
    fn read(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<ReadFuture>;

    /// How to time from now on.
    fn set_timing(&mut self, timing: Timing) -> Result<()>;

    /// Kernel times since the last call.
    fn take_times(&mut self) -> Result<Vec<KernelTime>>;

    /// Bytes of all live buffers.
    fn allocated_bytes(&self) -> u64;

    /// The most bytes that were live at once.
    fn peak_bytes(&self) -> u64;

    /// Pipelines made so far.
    fn pipelines_made(&self) -> u64;

    /// Workgroups of `pipeline` that are predicted to take as long as one submission may ([`Caps::max_submission_ms`]):
    /// at least 1, and `u32::MAX` without a limit. No backend cuts a dispatch; who records a longer one can make
    /// several of it with boundaries between them, as the engine and the model do.
    fn groups_a_submission(&self, _pipeline: PipelineId) -> u32 {
        u32::MAX
    }

    /// How often [`Backend::submit`] cut a recording because of [`Caps::max_submission_ms`], so far.
    fn splits(&self) -> u64 {
        0
    }

    /// After `true`, making a new pipeline is an error: a step must not compile anything.
    fn forbid_new_pipelines(&mut self, forbid: bool);

    /// The wgpu backend, for recording into a caller's encoder.
    #[cfg(feature = "wgpu")]
    fn as_wgpu(&mut self) -> Option<&mut wgpu::WgpuBackend> {
        None
    }
}

/// Reads and waits. For programs and tests; a frame loop awaits [`Backend::read`] instead.
pub fn read_blocking(backend: &mut dyn Backend, buffer: BufferId, offset: u64, bytes: u64) -> Result<Vec<u8>> {
    let future = backend.read(buffer, offset, bytes)?;
    block_on(future)
}

/// Parks this thread until the future is done.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
