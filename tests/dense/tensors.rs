//! CUDA's own dense kernels, where there is a device: against the same references, by the same limits.

use super::rig::{Rig, Weights};
use crate::support::require_or_skip;
use crate::{check_linear_of, rms_norm_of_strided_rows};
use kvarto::backend::Backend;
use kvarto::backend::cuda::{CudaBackend, compiles};
use kvarto::kernel::linear::{LinearPath, tensor};
use kvarto::num::weights::WeightType;

/// Columns and outputs: whole stages and odd ones, rows that begin within a word, outputs past a tile.
const SIZES: [(u32, u32); 8] =
    [(576, 67), (96, 5), (32, 1), (64, 130), (4096, 200), (1536, 63), (14_336, 40), (2560, 13)];

#[test]
fn products_of_tensor_cores_are_right() {
    let mut backend = match compiles().and_then(|()| CudaBackend::open(0)) {
        Ok(backend) => backend,
        Err(error) => return require_or_skip("cuda", error.message()),
    };
    let Some(own) = tensor::Machine::of(backend.caps()) else {
        panic!("{} has tensor cores", backend.caps().title());
    };
    let mut rig = Rig::over(&mut backend);
    // A card with less shared memory is laid out for in other ways.
    for machine in [own, tensor::Machine { shared_bytes: own.shared_bytes.min(99 << 10), ..own }] {
        for (turn, weight) in WeightType::ALL.into_iter().enumerate() {
            for (at, (columns, outs)) in SIZES.into_iter().enumerate() {
                check(&mut rig, machine, &Weights::random(weight, columns, outs), (turn + at) % 2 == 0);
            }
        }
        for weight in [WeightType::F16, WeightType::BF16, WeightType::F32] {
            for columns in [8, 40, 1048] {
                check(&mut rig, machine, &Weights::random(weight, columns, 21), true);
            }
        }
    }
}

#[test]
fn norms_are_right() {
    match compiles().and_then(|()| CudaBackend::open(0)) {
        Ok(mut backend) => rms_norm_of_strided_rows(&mut Rig::over(&mut backend)),
        Err(error) => require_or_skip("cuda", error.message()),
    }
}

fn check(rig: &mut Rig, machine: tensor::Machine, weights: &Weights, accumulate: bool) {
    for path in LinearPath::ALL {
        let spec = tensor::specialise(machine, weights.weight, weights.columns, accumulate, path);
        let Some(spec) = spec.expect("a kernel") else { continue };
        let rows: &[u32] = match path {
            LinearPath::OneRow => &[1, 3],
            LinearPath::FewRows => &[2, 5, 8, 13],
            LinearPath::ManyRows => &[17, 64, 70],
        };
        for &rows in rows {
            check_linear_of(rig, weights, rows, &spec, &format!("{path:?} on tensor cores"), 50);
        }
    }
}
