//! Random calibrated means and maps for cases, with inverses that nobody had to compute.

use super::Random;
use crate::kernel::{SideBasis, maps};

/// A KV head's calibrated mean and map. The map is a reflection, a stretch by 1/2 to 2 and another reflection, so that its
/// inverse is known.
#[derive(Clone, Debug)]
pub struct HeadMaps {
    /// The mean, `[dim]`.
    pub mean: Vec<f32>,
    /// The map as stored, `[dim][dim]` by rows.
    pub map: Vec<f32>,
    /// Its inverse, likewise.
    pub inverse: Vec<f64>,
}

/// The heads of one side; empty where it is not calibrated.
#[derive(Clone, Debug)]
pub struct SideMaps {
    basis: SideBasis,
    dim: usize,
    /// By KV head.
    pub heads: Vec<HeadMaps>,
}

impl SideMaps {
    /// Means and maps of `heads` KV heads for a calibrated `basis`; nothing is drawn for another.
    pub fn new(basis: SideBasis, heads: usize, dim: usize, random: &mut Random) -> Self {
        let heads = if basis.fixed { (0..heads).map(|_| HeadMaps::new(dim, random)).collect() } else { Vec::new() };
        SideMaps { basis, dim, heads }
    }

    /// The side's region of a layer's maps, as kernels read it; of K with `query`, else of V.
    pub fn region(&self, query: bool) -> Vec<f32> {
        let (dim, mut floats) = (self.dim, Vec::new());
        let columns =
            |at: &dyn Fn(usize, usize) -> f32| -> Vec<f32> { (0..dim * dim).map(|i| at(i % dim, i / dim)).collect() };
        for HeadMaps { mean, map, inverse } in &self.heads {
            floats.extend(mean);
            if self.basis.map {
                floats.extend(columns(&|row, column| map[row * dim + column]));
                floats.extend(match query {
                    true => columns(&|row, column| inverse[column * dim + row] as f32),
                    false => columns(&|row, column| inverse[row * dim + column] as f32),
                });
            }
        }
        floats.resize(maps::region_floats(self.basis, self.heads.len(), dim), 0.0);
        floats
    }
}

impl HeadMaps {
    fn new(dim: usize, random: &mut Random) -> Self {
        let mut unit = || {
            let row: Vec<f64> = random.normal(dim).iter().map(|&x| f64::from(x)).collect();
            let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            row.iter().map(|x| x / norm).collect::<Vec<f64>>()
        };
        let (left, right) = (unit(), unit());
        let mean = random.normal(dim);
        let stretch: Vec<f64> = (0..dim).map(|_| 2f64.powf(random.below(2001) as f64 / 1000.0 - 1.0)).collect();
        // (1 - 2 a aT) D (1 - 2 b bT) = D - 2 a (aT D) - 2 (D b) bT + 4 (aT D b) a bT
        let product = |a: &[f64], d: &dyn Fn(usize) -> f64, b: &[f64]| -> Vec<f64> {
            let inner: f64 = (0..dim).map(|i| a[i] * d(i) * b[i]).sum();
            let entry = |i: usize, j: usize| {
                let diagonal = if i == j { d(i) } else { 0.0 };
                diagonal - 2.0 * a[i] * a[j] * d(j) - 2.0 * d(i) * b[i] * b[j] + 4.0 * inner * a[i] * b[j]
            };
            (0..dim * dim).map(|at| entry(at / dim, at % dim)).collect()
        };
        let map = product(&left, &|i| stretch[i], &right).iter().map(|&x| x as f32).collect();
        HeadMaps { mean, map, inverse: product(&right, &|i| 1.0 / stretch[i], &left) }
    }

    /// A row as stored.
    pub fn forward(&self, basis: SideBasis, row: &mut [f32]) {
        row.iter_mut().zip(&self.mean).for_each(|(x, m)| *x -= m);
        if basis.map {
            let about: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
            for (x, weights) in row.iter_mut().zip(self.map.chunks_exact(about.len())) {
                *x = weights.iter().zip(&about).map(|(&m, a)| f64::from(m) * a).sum::<f64>() as f32;
            }
        }
    }

    /// The way back.
    pub fn backward(&self, basis: SideBasis, row: &mut Vec<f64>) {
        if basis.map {
            *row =
                self.inverse.chunks_exact(row.len()).map(|m| m.iter().zip(&*row).map(|(a, b)| a * b).sum()).collect();
        }
        row.iter_mut().zip(&self.mean).for_each(|(x, &m)| *x += f64::from(m));
    }
}
