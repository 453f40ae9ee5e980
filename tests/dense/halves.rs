//! What stands between the projections of a block's halves: norms of heads, biases, gates.

use super::rig::{Rig, Rng, close};
use kvarto::ErrorKind;
use kvarto::kernel::gated_mul::Activation;
use kvarto::kernel::{RowView, add, gated_mul, head_norm};

pub fn head_norm_of_heads_side_by_side(rig: &mut Rig) {
    for (dim, heads, rows) in [(64u32, 9u32, 1u32), (256, 4, 5), (80, 3, 17), (6, 1, 3)] {
        let spec = head_norm::specialise(dim).unwrap();
        let mut rng = Rng::new(u64::from(dim * rows));
        let width = dim * heads;
        let x = rng.floats((rows * width) as usize, 3.0);
        let w = rng.floats(dim as usize, 1.0);
        let view = rig.strided(&x, rows, width, 3, width + 11);
        let weights = rig.floats(&w);
        rig.run(&spec, |p| head_norm::dispatch(p, &spec, view, weights, rows, heads, 1e-6));
        let got = rig.rows(view, rows, width);
        for (head, (got, x)) in got.chunks(dim as usize).zip(x.chunks(dim as usize)).enumerate() {
            let mean = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / f64::from(dim);
            let scale = 1.0 / (mean + f64::from(1e-6f32)).sqrt();
            for ((&got, &v), &w) in got.iter().zip(x).zip(&w) {
                let want = f64::from(v) * scale * f64::from(w);
                close(got, want, 1e-5 * want.abs() + 1e-9, &format!("head {head} of {dim}"));
            }
        }
    }
}

pub fn gates_of_halves_of_one_buffer(rig: &mut Rig) {
    let silu: fn(f64) -> f64 = |x| x / (1.0 + (-x).exp());
    let gelu: fn(f64) -> f64 =
        |x| 0.5 * x * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044_715 * x.powi(3))).tanh());
    // What 1 + tanh loses of small outputs in f64 is below the floor.
    for (activation, exact, floor) in [(Activation::Silu, silu, 1e-30), (Activation::GeluTanh, gelu, 1e-13)] {
        let spec = gated_mul::specialise(activation).unwrap();
        for (rows, width) in [(1u32, 1536u32), (5, 63), (64, 200)] {
            let mut rng = Rng::new(u64::from(width));
            let mut both = rng.floats((rows * 2 * width) as usize, 4.0);
            // Far ends: what a naive exponential, or a cube, overflows at.
            both[..6].copy_from_slice(&[-200.0, 200.0, -0.0, 3e13, -3e13, -6.0]);
            let both_view = rig.strided(&both, rows, 2 * width, 4, 2 * width + 4);
            let out = rig.strided_poison(rows, width, 1, width + 2);
            rig.run(&spec, |p| gated_mul::dispatch(p, both_view, both_view.right(width), out, rows, width));
            let got = rig.rows(out, rows, width);
            for row in 0..rows as usize {
                for i in 0..width as usize {
                    let gate = f64::from(both[row * 2 * width as usize + i]);
                    let up = f64::from(both[row * 2 * width as usize + width as usize + i]);
                    let want = exact(gate) * up;
                    close(got[row * width as usize + i], want, 1e-5 * want.abs() + floor, "a gate");
                }
            }
        }
    }
}

pub fn add_of_one_row_to_every_row(rig: &mut Rig) {
    let spec = add::specialise().unwrap();
    for (rows, width) in [(1u32, 96u32), (5, 65), (33, 320)] {
        let mut rng = Rng::new(u64::from(width));
        let x = rng.floats((rows * width) as usize, 1.0);
        let bias = rng.floats(width as usize, 1.0);
        let view = rig.strided(&x, rows, width, 2, width + 5);
        let slice = rig.floats(&bias);
        rig.run(&spec, |p| add::dispatch(p, view, RowView::repeated(slice), rows, width));
        let sums: Vec<f32> = x.iter().zip(bias.iter().cycle()).map(|(x, b)| x + b).collect();
        assert_eq!(rig.rows(view, rows, width), sums);
    }
    let short = RowView::repeated(rig.floats(&[1.0; 4]));
    let view = RowView { slice: rig.floats(&[1.0; 10]), offset: 0, stride: 5 };
    let pipeline = rig.prepare(&spec);
    assert_eq!(add::dispatch(pipeline, view, short, 2, 5).unwrap_err().kind(), ErrorKind::Shape);
}
