//! Checked access of CPU kernels to tables, descriptors, slots and rows: a bad index is an error, not a panic.

use crate::error::{Error, ErrorKind, Result};
use crate::page::flags;

/// `values[start..start + len]`, named in the error if it does not fit.
pub(super) fn range<'a, T>(values: &'a [T], start: usize, len: usize, what: &str) -> Result<&'a [T]> {
    start.checked_add(len).and_then(|end| values.get(start..end)).ok_or_else(|| outside(what, start, len, values.len()))
}

/// Item `index` of the `N`-word items that start at word `at` of the tables.
pub(super) fn item<const N: usize>(tables: &[u32], at: usize, index: usize) -> Result<[usize; N]> {
    let words = range(tables, at.saturating_add(index.saturating_mul(N)), N, "table item")?;
    Ok(std::array::from_fn(|i| words[i] as usize))
}

/// A page descriptor's fields that kernels read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    /// Tokens that exist.
    pub(super) valid_tokens: usize,
    /// Position of token 0.
    pub(super) first_position: u32,
    /// Slot in the K slab.
    pub(super) k_slot: usize,
    /// Slot in the V slab.
    pub(super) v_slot: usize,
    /// Row of its further parts' slots among the descriptors, or all ones.
    pub(super) extra: usize,
    /// Row of its side planes' record, or all ones.
    pub(super) side: u32,
}

/// Descriptor `id`: 8 words, see the block table. Flags that are not built are refused: see [`flags::check`].
pub(super) fn descriptor(descs: &[u32], id: usize) -> Result<Descriptor> {
    let words = range(descs, id.saturating_mul(8), 8, "page descriptor")?;
    flags::check((words[0] >> 16) as u16)?;
    Ok(Descriptor {
        valid_tokens: (words[1] & 0xffff) as usize,
        first_position: words[3],
        k_slot: words[4] as usize,
        v_slot: words[5] as usize,
        extra: words[6] as usize,
        side: words[7],
    })
}

/// A page of one side: its slot in the slab of whole pages or of first parts, and, where pages are in two parts, its slot
/// in the slab of further ones. In one piece it is read in place, in two it is put together in `joined`.
pub(super) fn page<'a>(
    first: (&'a [u32], usize, usize),
    further: Option<(&[u32], usize, usize)>,
    joined: &'a mut Vec<u32>,
) -> Result<&'a [u32]> {
    let start = slot(first.0, first.1, first.2)?;
    let Some((slab, number, words)) = further.filter(|f| f.2 > 0) else { return Ok(start) };
    joined.clear();
    joined.extend_from_slice(start);
    joined.extend_from_slice(slot(slab, number, words)?);
    Ok(joined)
}

/// Slots of a page's further parts, of K and of V, in row `row` of the descriptors.
pub(super) fn further_slots(descs: &[u32], row: usize) -> Result<[usize; 2]> {
    let words = range(descs, row.saturating_mul(8), 8, "row of further parts")?;
    Ok([words[0] as usize, words[1] as usize])
}

/// Slot `slot` of a slab of slots of `words` words.
pub(super) fn slot(slab: &[u32], slot: usize, words: usize) -> Result<&[u32]> {
    range(slab, slot.saturating_mul(words), words, "page slot")
}

/// Where head `head`'s mean of K and V lies among the means.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means {
    /// Floats of a mean slot.
    pub(super) stride: usize,
    /// First float of the layer in a slot.
    pub(super) layer_at: usize,
    /// Floats of a head's mean: K, then V.
    pub(super) head_floats: usize,
}

impl Means {
    /// First float of a head's mean of K; its mean of V follows.
    pub(super) fn at(self, mean_slot: usize, kv_head: usize) -> usize {
        mean_slot.saturating_mul(self.stride).saturating_add(self.layer_at).saturating_add(kv_head * self.head_floats)
    }
}

/// Splits `values` into the given parts (start, length, what it is for), which may come in any order.
///
/// # Errors
/// `Shape` when two parts overlap or one lies outside: threads could not write them safely.
pub(super) fn split_disjoint<'a, T, P>(
    values: &'a mut [T],
    mut parts: Vec<(usize, usize, P)>,
    what: &str,
) -> Result<Vec<(P, &'a mut [T])>> {
    parts.sort_by_key(|part| part.0);
    let total = values.len();
    let (mut rest, mut taken) = (values, 0usize);
    let mut split = Vec::with_capacity(parts.len());
    for (start, len, payload) in parts {
        let Some(skip) = start.checked_sub(taken) else {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("{what} at {start} is written twice: the part before it ends at {taken}"),
                "give every item a part of its own",
            ));
        };
        let end = skip.checked_add(len).filter(|&end| end <= rest.len());
        let Some(end) = end else {
            return Err(outside(what, start, len, total));
        };
        let (head, tail) = rest.split_at_mut(end);
        split.push((payload, &mut head[skip..]));
        rest = tail;
        taken = start + len;
    }
    Ok(split)
}

fn outside(what: &str, start: usize, len: usize, total: usize) -> Error {
    Error::new(ErrorKind::Shape, format!("{what}: {start}..+{len} of {total}"), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_in_any_order_and_must_not_overlap() {
        let mut values = [0u32; 10];
        for (name, part) in split_disjoint(&mut values, vec![(6, 4, 3), (0, 2, 1), (3, 2, 2)], "part").unwrap() {
            part.fill(name);
        }
        assert_eq!(values, [1, 1, 0, 2, 2, 0, 3, 3, 3, 3]);
        assert!(split_disjoint(&mut values, vec![(0, 2, 1), (1, 2, 2)], "part").is_err());
        assert!(split_disjoint(&mut values, vec![(8, 3, 1)], "part").is_err());
        assert!(split_disjoint(&mut values, vec![(usize::MAX, 2, 1)], "part").is_err());
    }

    #[test]
    fn indices_outside_are_errors() {
        assert!(item::<4>(&[0; 8], 4, 0).is_ok());
        assert!(item::<4>(&[0; 8], 4, 1).is_err());
        assert!(item::<4>(&[0; 8], usize::MAX, 1).is_err());
        assert!(descriptor(&[0; 15], 1).is_err());
        assert!(slot(&[0; 16], 2, 8).is_err());
    }

    #[test]
    fn a_page_table_with_flags_that_are_not_built_is_refused_by_name() {
        let mut descs = [0u32; 16];
        descs[8] = u32::from(flags::SEALED | flags::PINNED | flags::REOPENED) << 16;
        assert!(descriptor(&descs, 1).is_ok());
        for (flag, name) in [(flags::POSITIONS, "positions"), (flags::LIVE, "live"), (flags::SYNTHETIC, "synthetic")] {
            descs[8] = u32::from(flags::SEALED | flag) << 16;
            let error = descriptor(&descs, 1).unwrap_err();
            assert!(error.kind() == ErrorKind::Unsupported && error.message().contains(name), "{error}");
            assert!(descriptor(&descs, 0).is_ok());
        }
    }
}
