//! What a backend is opened with.

use super::{LimitMask, Without};

/// How to open a backend.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Limits that the device is held to, as on a poorer adapter.
    pub limits: LimitMask,
    /// Optional features that are left unused, as on an adapter without.
    pub without: Without,
    /// Has workgroup memory play subgroups of so many invocations, a power of two from 4 to 256, whatever the adapter has:
    /// kernels are then seen to be right for sizes that no adapter at hand has.
    pub play_subgroup: Option<u32>,
    /// Refuses allocations that would bring the live bytes above this, as a small device would.
    pub memory_limit: Option<u64>,
    /// Longest predicted time of one submission, milliseconds, on whatever adapter; 0 for no limit. Unset: 50, none for
    /// software. Drivers give up a device on which one submission runs for seconds.
    ///
    /// A submission is predicted to take the sum, over its dispatches, of workgroups times the pipeline's time a
    /// workgroup: first a guess of 2 microseconds, then as completed submissions took. What is longer is cut at
    /// boundaries, and long dispatches of attention and of matrix products are recorded in parts with boundaries between
    /// them. Results are the same bits. One workgroup is never cut, and nothing recorded with
    /// [`super::WgpuBackend::record_into`] is.
    pub max_submission_ms: Option<u32>,
    /// Nanoseconds that every workgroup is predicted to take, whatever was measured: for tests, whose splits must not
    /// depend on a machine's speed.
    pub assumed_group_ns: Option<u32>,
    /// Compiles without bounds on loops and indices. Every loop of every kernel and format must then end, and every
    /// index lie within its array.
    /// The environment's `KVARTO_CHECKED=1` has the last word.
    pub trusted: bool,
    /// Fills workgroup memory with NaN patterns as each kernel begins: for tests that kernels read only what they
    /// wrote.
    pub poison_workgroup: bool,
    /// Installs the device's callbacks for errors and loss, replacing those there. A caller who keeps their own
    /// hands the reports on to [`super::WgpuBackend::error_sink`].
    pub take_callbacks: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            limits: LimitMask::default(),
            without: Without::default(),
            play_subgroup: None,
            memory_limit: None,
            max_submission_ms: None,
            assumed_group_ns: None,
            trusted: false,
            poison_workgroup: false,
            take_callbacks: true,
        }
    }
}
