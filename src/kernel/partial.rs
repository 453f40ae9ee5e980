//! Partial softmax states: what attention kernels emit and `merge` combines.

/// The running maximum of a state that has seen no key; finite, so that differences of two stay defined.
pub const NO_KEY: f32 = -3.402_823_5e38;

/// Floats ahead of the output in a stored state: m, l and padding to 16 bytes.
pub const HEADER: usize = 4;

/// Floats of a stored state of `v_dim` channels.
pub fn floats(v_dim: usize) -> usize {
    v_dim + HEADER
}

/// Softmax over a subset of a row's keys, unnormalised, in natural logarithms.
///
/// Merging is associative and commutative up to rounding (the online softmax, arXiv 1805.02867), so states of any
/// formats, splits, tiers and devices combine, as long as all are in one basis of V.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialState {
    /// Largest logit seen; [`NO_KEY`] before any.
    pub m: f32,
    /// Sum of exp(logit − m); 0 when no key was seen.
    pub l: f32,
    /// Sum of exp(logit − m) · value, `v_dim` channels.
    pub o: Vec<f32>,
}

impl PartialState {
    /// A state that has seen no key.
    pub fn empty(v_dim: usize) -> Self {
        PartialState { m: NO_KEY, l: 0.0, o: vec![0.0; v_dim] }
    }

    /// The state of a softmax given by its normalised output and natural log-sum-exp.
    ///
    /// A log-sum-exp of −∞ says that no key was seen; `output` is then ignored.
    pub fn from_output(output: &[f32], lse: f32) -> Self {
        if lse == f32::NEG_INFINITY {
            return PartialState::empty(output.len());
        }
        PartialState { m: lse, l: 1.0, o: output.to_vec() }
    }

    /// Whether no key was seen. A NaN sum counts as seen, so that faults reach the output.
    pub fn is_empty(&self) -> bool {
        self.l == 0.0
    }

    /// Adds the keys that `other` has seen. Channels beyond the shorter of the two are left alone.
    pub fn merge(&mut self, other: &PartialState) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            self.clone_from(other);
            return;
        }
        // Not f32::max, which would drop a NaN.
        let m = if other.m <= self.m { self.m } else { other.m };
        let (mine, theirs) = ((self.m - m).exp(), (other.m - m).exp());
        self.m = m;
        self.l = self.l * mine + other.l * theirs;
        for (a, &b) in self.o.iter_mut().zip(&other.o) {
            *a = *a * mine + b * theirs;
        }
    }

    /// Natural log-sum-exp of the logits seen; −∞ when there were none.
    pub fn lse(&self) -> f32 {
        if self.is_empty() { f32::NEG_INFINITY } else { self.m + self.l.ln() }
    }

    /// The normalised output; zeros when no key was seen.
    pub fn output(&self) -> Vec<f32> {
        if self.is_empty() { vec![0.0; self.o.len()] } else { self.o.iter().map(|&o| o / self.l).collect() }
    }

    /// State `index` of a buffer of states of `v_dim` channels; `None` beyond its end.
    pub fn read(buffer: &[f32], index: usize, v_dim: usize) -> Option<Self> {
        let start = index.checked_mul(floats(v_dim))?;
        let state = buffer.get(start..start.checked_add(floats(v_dim))?)?;
        Some(PartialState { m: state[0], l: state[1], o: state[HEADER..].to_vec() })
    }

    /// Stores the state as number `index` of `buffer`; `false`, and nothing written, beyond its end.
    #[must_use]
    pub fn write(&self, buffer: &mut [f32], index: usize) -> bool {
        let size = floats(self.o.len());
        let range = index.checked_mul(size).and_then(|start| Some(start..start.checked_add(size)?));
        let Some(state) = range.and_then(|r| buffer.get_mut(r)) else {
            return false;
        };
        state[..HEADER].copy_from_slice(&[self.m, self.l, 0.0, 0.0]);
        state[HEADER..].copy_from_slice(&self.o);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f32, b: f32) -> bool {
        (a - b).abs() <= 1e-6
    }

    #[test]
    fn empty_states_merge_as_nothing() {
        let mut both = PartialState::empty(2);
        both.merge(&PartialState::empty(2));
        assert!(both.is_empty());
        assert_eq!(both.lse(), f32::NEG_INFINITY);
        assert_eq!(both.output(), [0.0, 0.0]);

        let some = PartialState::from_output(&[3.0, -1.0], 2.5);
        for (mut a, b) in [(PartialState::empty(2), some.clone()), (some.clone(), PartialState::empty(2))] {
            a.merge(&b);
            assert_eq!(a, some);
        }
    }

    #[test]
    fn the_logarithm_is_natural() {
        let mut a = PartialState::from_output(&[1.0], 1.0);
        a.merge(&PartialState::from_output(&[0.0], 0.0));
        assert!(close(a.output()[0], 0.731_058_6), "{a:?}");
        assert!(close(a.lse(), 1.313_261_7), "{a:?}");
    }

    #[test]
    fn nan_is_kept() {
        let nan = PartialState { m: NO_KEY, l: f32::NAN, o: vec![f32::NAN] };
        let mut a = PartialState::from_output(&[1.0], 1.0);
        a.merge(&nan);
        assert!(a.output()[0].is_nan());
        let mut b = nan.clone();
        b.merge(&PartialState::from_output(&[1.0], 1.0));
        assert!(b.output()[0].is_nan());
        let mut c = PartialState::from_output(&[1.0], 1.0);
        c.merge(&PartialState { m: f32::NAN, l: 1.0, o: vec![0.0] });
        assert!(c.output()[0].is_nan());
    }

    #[test]
    fn stored_states_read_back() {
        let state = PartialState { m: -2.0, l: 3.0, o: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0] };
        let mut buffer = vec![f32::NAN; 2 * floats(8)];
        assert!(state.write(&mut buffer, 1));
        assert!(!state.write(&mut buffer, 2));
        assert_eq!(PartialState::read(&buffer, 1, 8).as_ref(), Some(&state));
        assert_eq!(PartialState::read(&buffer, 2, 8), None);
        assert!(buffer[0].is_nan());
    }
}
