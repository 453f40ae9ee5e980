//! Lists in order of time that never grow beyond a bound.

/// A series that is thinned where it would outgrow its bound: every second sample stays, and from then on every second
/// one that comes. Whatever its length, it spans the whole trace.
#[derive(Clone, Debug)]
pub struct Series<T> {
    samples: Vec<T>,
    most: usize,
    stride: u64,
    seen: u64,
}

impl<T> Series<T> {
    /// An empty one that holds at most `most` samples.
    pub fn new(most: usize) -> Self {
        Series { samples: Vec::new(), most: most.max(2), stride: 1, seen: 0 }
    }

    /// Takes a sample in, or leaves it out.
    pub fn push(&mut self, sample: T) {
        if self.seen.is_multiple_of(self.stride) {
            if self.samples.len() >= self.most {
                let mut at = 0;
                self.samples.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.stride *= 2;
                if !self.seen.is_multiple_of(self.stride) {
                    self.seen += 1;
                    return;
                }
            }
            self.samples.push(sample);
        }
        self.seen += 1;
    }

    /// The samples, in order.
    pub fn samples(&self) -> &[T] {
        &self.samples
    }

    /// One in this many was kept.
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// The samples up to the first for which `after` says that it is later.
    pub fn until(&self, after: impl Fn(&T) -> bool) -> &[T] {
        &self.samples[..self.samples.partition_point(|sample| !after(sample))]
    }
}

/// A list that forgets its older half where it would outgrow its bound.
#[derive(Clone, Debug)]
pub struct Recent<T> {
    items: Vec<T>,
    most: usize,
    forgotten: u64,
}

impl<T> Recent<T> {
    /// An empty one that holds at most `most` items.
    pub fn new(most: usize) -> Self {
        Recent { items: Vec::new(), most: most.max(2), forgotten: 0 }
    }

    /// Takes an item in.
    pub fn push(&mut self, item: T) {
        if self.items.len() >= self.most {
            let half = self.items.len() / 2;
            self.items.drain(..half);
            self.forgotten += half as u64;
        }
        self.items.push(item);
    }

    /// The items that are left, in order.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// Items before them.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The items up to the first for which `after` says that it is later.
    pub fn until(&self, after: impl Fn(&T) -> bool) -> &[T] {
        &self.items[..self.items.partition_point(|item| !after(item))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_spans_everything_within_its_bound() {
        let mut series = Series::new(100);
        for n in 0..10_000u64 {
            series.push(n);
            assert!(series.samples().len() <= 100);
            let gaps: Vec<u64> = series.samples().windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(gaps.iter().all(|gap| *gap == series.stride()), "{n}: {:?}", series.samples());
        }
        assert_eq!(series.samples()[0], 0);
        assert!(*series.samples().last().unwrap() >= 10_000 - series.stride());
        assert_eq!(series.until(|n| *n > 500).last(), Some(&(500 / series.stride() * series.stride())));
    }

    #[test]
    fn a_list_forgets_its_oldest() {
        let mut list = Recent::new(10);
        (0..1000).for_each(|n| list.push(n));
        assert_eq!(list.forgotten() + list.items().len() as u64, 1000);
        assert_eq!(*list.items().last().unwrap(), 999);
        assert!(list.items().len() <= 10);
    }
}
