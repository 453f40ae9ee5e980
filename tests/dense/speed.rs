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

/// Seconds of one pass, the best of several, and the bytes of weights and operations of a pass.
fn pass(rig: &mut Rig, weight: WeightType, rows: u32) -> (f64, f64, f64) {
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
    let repeats = if rows == 1 { 30 } else { 5 };
    let best = (0..repeats)
        .map(|_| {
            let start = Instant::now();
            rig.submit(recording.clone()).unwrap();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    rig.clear();
    (best, bytes, operations)
}

#[test]
#[ignore = "measures; run it alone on an idle machine"]
fn speed() {
    on_cpu(|rig| {
        for weight in WeightType::ALL {
            for rows in [1, 4, 16, 128, 512] {
                let (seconds, bytes, operations) = pass(rig, weight, rows);
                println!(
                    "{:>5} {rows:>4} rows: {:8.2} ms  {:6.2} GB/s  {:7.1} GFLOP/s",
                    weight.as_str(),
                    seconds * 1e3,
                    bytes / seconds / 1e9,
                    operations / seconds / 1e9
                );
            }
        }
    });
}
