//! The checks of the suite, and a run of them.

use super::codes::{self, Agreement, codec};
use super::grid::{self, FormatFactors, NAMES, cases, covering, mixed};
use super::{Case, CheckResult, EXPECTED_FAILURES, ExpectedFailure, Kernel, Report, Verdict};
use crate::backend::Backend;
use crate::error::{Error, ErrorKind, Result};
use crate::shape::{PAGE_TOKENS, PageGeometry, Side};
use std::time::{Duration, Instant};

/// Largest error of attention as a fraction of the largest output, on the CPU: f32 sums of at most 4097 terms and 512
/// channels. Formats do not matter: both sides read the same values.
pub const CPU_TOLERANCE: f64 = 5e-6;
/// The same on a GPU, whose sums have another order and whose `exp` is less exact.
pub const GPU_TOLERANCE: f64 = 2e-5;
/// The same where products with K or V are made in f16, for formats that have lost tens of times as much already: the
/// worst seen is 2.2e-3. The floor tier faces the tight limit with the same kernel text.
pub const HALF_TOLERANCE: f64 = 5e-3;
/// Head sizes at which formats are asked whether they take them.
const HEAD_SIZES: [usize; 5] = [64, 80, 96, 128, 256];
/// Head sizes of the packed pages, in turn.
const PACKED: [usize; 8] = [128, 96, 256, 80, 64, 80, 256, 192];

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only [`grid::covering`] cases and one page size of each format's codes, instead of all.
    pub quick: bool,
    /// Only the check of this id.
    pub only: Option<String>,
    /// Known failures.
    pub expected: Vec<ExpectedFailure>,
}

impl Default for Options {
    /// Everything, with the library's list of known failures.
    fn default() -> Self {
        Options { quick: false, only: None, expected: EXPECTED_FAILURES.to_vec() }
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Checks done, this one included.
    pub done: usize,
    /// Checks in all.
    pub total: usize,
    /// The one that was just done.
    pub last: &'a CheckResult,
}

enum Check {
    Attention(Box<Case>),
    Pack(&'static str, Side, PageGeometry),
    Unpack(&'static str, Side, PageGeometry),
    Refusal(&'static str, Side, PageGeometry, Error),
}

/// Runs the suite. Errors of the backend are in the report: that of the check it came with, and after one of the device
/// the further checks are skipped. `progress` is called after each check.
pub fn run(backend: &mut dyn Backend, options: &Options, progress: &mut dyn FnMut(Progress<'_>)) -> Report {
    let start = Instant::now();
    let caps = backend.caps().clone();
    let mut checks = checks(options.quick);
    if let Some(only) = &options.only {
        checks.retain(|(id, _)| id == only);
    }
    let known: Vec<_> = options.expected.iter().filter(|e| e.concerns(&caps)).collect();
    let total = checks.len();
    let (mut results, mut lost) = (Vec::with_capacity(total), None);
    for (id, check) in checks {
        let start = Instant::now();
        let mut result = check.blank(&id);
        match &lost {
            Some(id) => result.verdict = Verdict::Skipped(format!("the device failed in {id}")),
            None => {
                if let Err(error) = check.run(backend, &mut result) {
                    if matches!(error.kind(), ErrorKind::Device | ErrorKind::DeviceLost) {
                        lost = Some(id.clone());
                    }
                    result.verdict = match error.kind() {
                        ErrorKind::OutOfMemory => Verdict::Skipped(error.to_string()),
                        _ => Verdict::Fail(error.to_string()),
                    };
                }
            }
        }
        if let Some(known) = known.iter().find(|e| e.case == id) {
            result.verdict = known.judge(result.verdict);
        }
        result.time = start.elapsed();
        results.push(result);
        if let Some(last) = results.last() {
            progress(Progress { done: results.len(), total, last });
        }
    }
    if !options.quick && options.only.is_none() {
        let stale = known.iter().filter(|known| !results.iter().any(|r| r.id == known.case)).map(|known| stale(known));
        let stale: Vec<_> = stale.collect();
        results.extend(stale);
    }
    Report { caps, results, time: start.elapsed() }
}

/// A listed failure of a check that is not there, as a failure: the list must not go stale.
fn stale(known: &ExpectedFailure) -> CheckResult {
    CheckResult {
        id: known.case.into(),
        kernel: "list",
        k_format: String::new(),
        v_format: String::new(),
        shape: "an expected failure".into(),
        verdict: Verdict::Fail(format!("no check has this name; it is listed for: {}", known.reason)),
        worst: None,
        tolerance: 0.0,
        time: Duration::ZERO,
    }
}

/// The checks by id. Ids of a quick run are those of the whole one.
fn checks(quick: bool) -> Vec<(String, Check)> {
    let grid = match quick {
        true => covering(),
        false => cases(FormatFactors::Sides).into_iter().enumerate().collect(),
    };
    let mut checks: Vec<_> =
        grid.into_iter().map(|(number, case)| (format!("grid-{number}"), Check::Attention(Box::new(case)))).collect();
    if !quick {
        checks.extend(Kernel::BOTH.map(|kernel| {
            let row_tile = if kernel == Kernel::Decode { 8 } else { 32 };
            let case = Case { row_tile, ..mixed(kernel) };
            (format!("mixed-{}", kernel.as_str()), Check::Attention(Box::new(case)))
        }));
    }
    for (kernel, page_tokens) in [(Kernel::Decode, 64), (Kernel::Prefill, 64), (Kernel::Decode, 16)] {
        let row_tile = if kernel == Kernel::Decode { 2 } else { 32 };
        let case = Case { row_tile, ..grid::short_block(kernel, page_tokens) };
        checks.push((format!("short-block-{}-{page_tokens}", kernel.as_str()), Check::Attention(Box::new(case))));
    }
    for kernel in Kernel::BOTH {
        let case = |case: Case| Check::Attention(Box::new(case));
        checks.push((format!("in-parts-{}", kernel.as_str()), case(grid::in_parts(kernel))));
        checks.push((format!("widest-window-{}", kernel.as_str()), case(grid::widest_window(kernel))));
    }
    for (turn, (format, side)) in NAMES.iter().flat_map(|f| Side::BOTH.map(|side| (*f, side))).enumerate() {
        for (at, tokens) in PAGE_TOKENS.into_iter().enumerate().filter(|(at, _)| !quick || *at == turn % 4) {
            let head_dim = grid::head_dim(format, PACKED[(turn + 3 * at) % PACKED.len()]);
            let geometry = PageGeometry { tokens, head_dim };
            let id = |what: &str| format!("{what}-{format}-{}-{tokens}", side.as_str());
            checks.push((id("pack"), Check::Pack(format, side, geometry)));
            checks.push((id("unpack"), Check::Unpack(format, side, geometry)));
        }
    }
    for (format, side) in NAMES.iter().flat_map(|f| Side::BOTH.map(|side| (*f, side))) {
        for head_dim in HEAD_SIZES {
            let geometry = PageGeometry { tokens: 64, head_dim };
            if let Err(error) = codec(format, side, geometry) {
                let id = format!("codec-{format}-{}-head-{head_dim}", side.as_str());
                checks.push((id, Check::Refusal(format, side, geometry, error)));
            }
        }
    }
    checks
}

impl Check {
    /// The result before anything is run.
    fn blank(&self, id: &str) -> CheckResult {
        let formats = |format: &str, side| match side {
            Side::K => (format.to_string(), String::new()),
            Side::V => (String::new(), format.to_string()),
        };
        let page = |g: &PageGeometry| format!("pages of {}, head {}", g.tokens, g.head_dim);
        let (kernel, (k_format, v_format), shape) = match self {
            Check::Attention(case) => {
                let (k, v) = (case.formats)(0, 0);
                let formats = if case.uniform() { (k.into(), v.into()) } else { ("all".into(), "all".into()) };
                (case.kernel.as_str(), formats, case.words())
            }
            Check::Pack(format, side, geometry) => ("pack", formats(format, *side), page(geometry)),
            Check::Unpack(format, side, geometry) => ("unpack", formats(format, *side), page(geometry)),
            Check::Refusal(format, side, geometry, _) => ("codec", formats(format, *side), page(geometry)),
        };
        let verdict = Verdict::Skipped("not run".into());
        CheckResult {
            id: id.into(),
            kernel,
            k_format,
            v_format,
            shape,
            verdict,
            worst: None,
            tolerance: 0.0,
            time: Duration::ZERO,
        }
    }

    fn run(&self, backend: &mut dyn Backend, result: &mut CheckResult) -> Result<()> {
        match self {
            Check::Attention(case) => attention(backend, case, result)?,
            Check::Pack(format, side, geometry) => {
                agreed(codes::pack(backend, format, *side, *geometry)?, "words", result);
            }
            Check::Unpack(format, side, geometry) => {
                agreed(codes::unpack(backend, format, *side, *geometry)?, "values", result);
            }
            Check::Refusal(.., error) => result.verdict = Verdict::Refused(error.to_string()),
        }
        Ok(())
    }
}

/// Twice the same step: right, and the same to the bit.
fn attention(backend: &mut dyn Backend, case: &Case, result: &mut CheckResult) -> Result<()> {
    let built = case.build()?;
    result.tolerance = built.tolerance(backend.caps());
    let outcome = built.run(backend)?;
    let again = built.run(backend)?;
    let measured = built.measure(&outcome);
    result.worst = Some(measured.error);
    result.verdict = match built.judge(&measured, &outcome, result.tolerance) {
        Err(message) => Verdict::Fail(message),
        Ok(()) if !outcome.same_bits(&again) => Verdict::Fail("two runs of the same step differ in their bits".into()),
        Ok(()) => Verdict::Pass,
    };
    Ok(())
}

fn agreed(found: Agreement, what: &str, result: &mut CheckResult) {
    result.worst = Some(found.apart as f64);
    result.verdict = match found.apart {
        0 => Verdict::Pass,
        apart => Verdict::Fail(format!("{apart} of {} {what} differ: {}", found.compared, found.first)),
    };
}
