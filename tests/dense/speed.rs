//! How fast the linear layer is, printed; nothing is asserted about time.
//! `cargo test --test dense_kernels speed -- --ignored --nocapture`

use super::rig::{Rig, Rng, Weights, on_cpu};
use kvarto::backend::Recording;
use kvarto::kernel::linear::{self, LinearPath};
use kvarto::kernel::{RowView, WeightSegment};
use kvarto::num::weights::WeightType;
use std::time::Instant;

/// Every product of SmolLM2-135M: columns and outputs of a layer, 30 layers, the vocabulary.
const LAYER: [(u32, u32); 4] = [(576, 960), (576, 576), (576, 3072), (1536, 576)];
const LAYERS: usize = 30;
const VOCABULARY: (u32, u32) = (576, 49_152);

/// What one pass over the model took.
struct Pass {
    /// Seconds on the clock, the best of several.
    best: f64,
    /// Seconds of all threads together, the mean: what a busy machine does not spoil.
    busy: f64,
    /// Bytes of weights.
    bytes: f64,
    /// Multiplications and additions.
    operations: f64,
}

fn pass(rig: &mut Rig, weight: WeightType, rows: u32) -> Pass {
    let mut shapes: Vec<(u32, u32)> = std::iter::repeat_n(LAYER, LAYERS).flatten().collect();
    shapes.push(VOCABULARY);
    let x = Rng::new(1).floats(rows as usize * 1536, 1.0);
    let x = rig.floats(&x);
    let y = rig.floats(&vec![0.0; rows as usize * VOCABULARY.1 as usize]);
    let (mut bytes, mut operations) = (0.0, 0.0);
    let mut recording = Recording::new();
    for (columns, outs) in shapes {
        let weights = Weights::random(weight, columns, outs);
        let slice = rig.bytes(&weights.row_bytes(0, outs));
        let spec = linear::specialise(weight, columns, false, LinearPath::for_rows(rows)).unwrap();
        let pipeline = rig.prepare(&spec);
        let x = RowView { slice: x, offset: 0, stride: 1536 };
        let y = RowView { slice: y, offset: 0, stride: VOCABULARY.1 };
        let segment = WeightSegment::whole(slice, outs);
        recording.dispatch(linear::dispatch(pipeline, &spec, segment, x, y, rows).unwrap());
        bytes += slice.bytes as f64;
        operations += 2.0 * f64::from(rows) * f64::from(columns) * f64::from(outs);
    }
    let repeats = if rows == 1 { 20 } else { 2 };
    let (mut best, busy) = (f64::INFINITY, cpu_seconds());
    for _ in 0..repeats {
        let start = Instant::now();
        rig.submit(recording.clone()).unwrap();
        best = best.min(start.elapsed().as_secs_f64());
    }
    let busy = (cpu_seconds() - busy) / f64::from(repeats);
    rig.clear();
    Pass { best, busy, bytes, operations }
}

/// Seconds that this process's threads have run, where the system says; steps of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = |at: usize| stat.rsplit(')').next()?.split_whitespace().nth(at)?.parse::<f64>().ok();
    (ticks(11).unwrap_or(f64::NAN) + ticks(12).unwrap_or(f64::NAN)) / 100.0
}

#[test]
#[ignore = "measures; run it alone on an idle machine"]
fn speed() {
    on_cpu(|rig| {
        for weight in WeightType::ALL {
            for rows in [1, 4, 128] {
                let Pass { best, busy, bytes, operations } = pass(rig, weight, rows);
                println!(
                    "{:>5} {rows:>4} rows: {:8.2} ms {:6.2} GB/s {:7.1} GFLOP/s; a core {:6.2} GB/s {:7.1} GFLOP/s",
                    weight.as_str(),
                    best * 1e3,
                    bytes / best / 1e9,
                    operations / best / 1e9,
                    bytes / busy / 1e9,
                    operations / busy / 1e9
                );
            }
        }
    });
}
