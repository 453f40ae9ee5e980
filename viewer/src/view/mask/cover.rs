//! How much of each pixel some ranges cover, in time of the ranges' number.

/// Ranges over pixels, each pixel one unit wide.
pub struct Cover {
    slopes: Vec<f32>,
}

impl Cover {
    /// Of `width` pixels.
    pub fn new(width: usize) -> Self {
        Cover { slopes: vec![0.0; width + 2] }
    }

    /// Adds a range, times a weight.
    pub fn add(&mut self, from: f64, to: f64, weight: f32) {
        let width = (self.slopes.len() - 2) as f64;
        let (from, to) = (from.clamp(0.0, width), to.clamp(0.0, width));
        if from < to {
            self.edge(from, weight);
            self.edge(to, -weight);
        }
    }

    fn edge(&mut self, at: f64, weight: f32) {
        let (pixel, part) = (at as usize, at.fract() as f32);
        self.slopes[pixel] += weight * (1.0 - part);
        self.slopes[pixel + 1] += weight * part;
    }

    /// The share of each pixel.
    pub fn shares(&self) -> impl Iterator<Item = f32> {
        let slopes = &self.slopes[..self.slopes.len() - 2];
        slopes.iter().scan(0.0f32, |sum, slope| {
            *sum += slope;
            Some(sum.clamp(0.0, 1.0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_covered_by_parts() {
        let mut cover = Cover::new(5);
        cover.add(0.5, 2.25, 1.0);
        cover.add(3.1, 3.3, 1.0);
        cover.add(4.0, 99.0, 0.5);
        cover.add(2.0, 1.0, 1.0);
        cover.add(f64::NAN, 1.0, 1.0);
        let shares: Vec<f32> = cover.shares().map(|share| (share * 100.0).round() / 100.0).collect();
        assert_eq!(shares, [0.5, 1.0, 0.25, 0.2, 0.5]);
    }
}
