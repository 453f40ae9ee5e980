//! One wgpu backend an API for the tests of a program.

use super::require_or_skip;
use kvarto::backend::wgpu::{AdapterChoice, LimitBase, LimitMask, OpenOptions, WgpuBackend, Without};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The APIs that tests run on; on one machine two of them are there, elsewhere skipped with a reason.
pub const APIS: [&str; 2] = ["vulkan", "gl"];

type Shared = Mutex<Result<WgpuBackend, String>>;

fn shared(api: &str) -> &'static Shared {
    static VULKAN: OnceLock<Shared> = OnceLock::new();
    static FLOOR: OnceLock<Shared> = OnceLock::new();
    static GL: OnceLock<Shared> = OnceLock::new();
    let (cell, options) = match api {
        "vulkan" => (&VULKAN, OpenOptions::default()),
        "vulkan floor" => (&FLOOR, floor()),
        "gl" => (&GL, OpenOptions::default()),
        other => panic!("no tests for {other}"),
    };
    let api = api.trim_end_matches(" floor");
    cell.get_or_init(|| Mutex::new(open(api, &options).map_err(|e| e.to_string())))
}

/// A device held to WebGPU's defaults.
pub fn floor() -> OpenOptions {
    OpenOptions {
        limits: LimitMask::new(LimitBase::WebgpuDefault),
        without: Without { f16: true, subgroups: true, ..Without::default() },
        ..OpenOptions::default()
    }
}

/// Opens the first adapter of `api`, software included.
pub fn open(api: &str, options: &OpenOptions) -> kvarto::Result<WgpuBackend> {
    WgpuBackend::open_with(&AdapterChoice::Api { api: api.into(), index: 0 }, options)
}

/// Runs `test` on the shared backend of each API, or says why not.
pub fn on_each(test: impl Fn(&mut WgpuBackend)) {
    APIS.into_iter().for_each(|api| on(api, &test));
}

/// Runs `test` on the shared backend of `api`, or says why not.
pub fn on(api: &str, test: impl FnOnce(&mut WgpuBackend)) {
    let mut guard: MutexGuard<'_, _> = shared(api).lock().unwrap_or_else(PoisonError::into_inner);
    match guard.as_mut() {
        Ok(backend) => test(backend),
        Err(reason) => require_or_skip(api, reason),
    }
}

/// Runs `test` on a backend of its own for each API, or says why not.
pub fn on_each_new(options: &OpenOptions, test: impl Fn(WgpuBackend)) {
    APIS.into_iter().for_each(|api| on_new(api, options, &test));
}

/// Runs `test` on a backend of its own for `api`, or says why not.
pub fn on_new(api: &str, options: &OpenOptions, test: impl FnOnce(WgpuBackend)) {
    // One device at a time: the shared one is not used meanwhile.
    let guard = shared(api).lock().unwrap_or_else(PoisonError::into_inner);
    match guard.as_ref() {
        Ok(_) => test(open(api, options).expect("a second device")),
        Err(reason) => require_or_skip(api, reason),
    }
}
