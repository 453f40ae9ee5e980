//! Views of tensors: rows in a buffer, and segments of a weight tensor.

use crate::backend::{BufferId, BufferSlice, CpuCall};
use crate::error::{Error, ErrorKind, Result};
use crate::num::weights::WeightType;
use rayon::prelude::*;

/// Rows of f32 in a buffer. Several views may lie in one: q, k and v of `[rows][q + k + v]` differ in `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowView {
    /// The binding; views of one buffer bind the whole of it.
    pub slice: BufferSlice,
    /// First value of row 0, in values from the start of the slice.
    pub offset: u32,
    /// Values from one row to the next.
    pub stride: u32,
}

impl RowView {
    /// The whole of `buffer`, as `rows` rows of `width` values without gaps.
    pub fn dense(buffer: BufferId, rows: u32, width: u32) -> Self {
        let bytes = (u64::from(rows) * u64::from(width) * 4).max(4);
        RowView { slice: BufferSlice::whole(buffer, bytes), offset: 0, stride: width }
    }

    /// The values of `slice` as every row, for reading: a bias.
    pub fn repeated(slice: BufferSlice) -> Self {
        RowView { slice, offset: 0, stride: 0 }
    }

    /// The same rows, `values` further right.
    pub fn right(self, values: u32) -> Self {
        RowView { offset: self.offset.saturating_add(values), ..self }
    }

    /// Rows from `row` on.
    pub fn down(self, row: u32) -> Self {
        RowView { offset: self.offset.saturating_add(row.saturating_mul(self.stride)), ..self }
    }

    /// Refuses a view that `rows` rows of `width` values are not inside of. Written rows may not overlap.
    pub(crate) fn check(&self, what: &str, rows: u32, width: u32, written: bool) -> Result<()> {
        check_span(what, self.slice.bytes / 4, self.offset, self.stride, rows, width, written)
    }
}

/// Consecutive rows of a weight tensor, as they are stored in a GGUF file, in one binding. A tensor larger than
/// the adapter's bindings is several segments, and one dispatch each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightSegment {
    /// The rows' bytes, from the first row on.
    pub slice: BufferSlice,
    /// Which row of the tensor the first one is.
    pub first_row: u32,
    /// How many there are.
    pub rows: u32,
}

impl WeightSegment {
    /// A tensor that is wholly in `slice`.
    pub fn whole(slice: BufferSlice, rows: u32) -> Self {
        WeightSegment { slice, first_row: 0, rows }
    }

    pub(crate) fn check(&self, what: &str, weight: WeightType, columns: u32) -> Result<()> {
        let bytes = u64::from(self.rows) * weight.row_bytes(columns as usize)? as u64;
        if bytes > self.slice.bytes || self.first_row.checked_add(self.rows).is_none() {
            return Err(misfit(format!(
                "{what}: {} {} rows of {columns} values from row {} are {bytes} bytes, the slice has {}",
                self.rows,
                weight.as_str(),
                self.first_row,
                self.slice.bytes
            )));
        }
        Ok(())
    }
}

fn misfit(message: String) -> Error {
    Error::new(ErrorKind::Shape, message, "")
}

fn check_span(what: &str, len: u64, offset: u32, stride: u32, rows: u32, width: u32, written: bool) -> Result<()> {
    let end = u64::from(offset) + u64::from(rows.saturating_sub(1)) * u64::from(stride) + u64::from(width);
    if rows > 0 && (end > len || end > u64::from(u32::MAX)) {
        return Err(misfit(format!(
            "{what}: {rows} rows of {width} values, {stride} apart from {offset} on, end at value {end} of {len}"
        )));
    }
    if written && rows > 1 && stride < width {
        return Err(misfit(format!("{what}: written rows of {width} values are {stride} apart and overlap")));
    }
    Ok(())
}

/// Workgroups for `items` things, `each` a group.
pub(crate) fn groups(kernel: &str, items: u64, each: u32) -> Result<u32> {
    u32::try_from(items.div_ceil(u64::from(each)))
        .map_err(|_| misfit(format!("{kernel}: {items} items, {each} a workgroup, are more than 2^32 workgroups")))
}

/// Rows as a CPU kernel reads them.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    data: &'a [f32],
    stride: usize,
    width: usize,
}

impl<'a> Rows<'a> {
    /// The rows of binding `name`, at parameters `NAME_offset` and `NAME_stride`.
    pub(crate) fn of(call: &mut CpuCall<'a>, name: &str, rows: u32, width: u32) -> Result<Self> {
        let (offset, stride) = place(call, name);
        let data: &'a [f32] = call.read(name);
        check_span(name, data.len() as u64, offset, stride, rows, width, false)?;
        let data = if rows == 0 { &[] } else { &data[offset as usize..] };
        Ok(Rows { data, stride: stride as usize, width: width as usize })
    }

    /// Row `row`.
    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> &'a [f32] {
        &self.data[row * self.stride..][..self.width]
    }
}

/// Rows as a CPU kernel writes them.
pub(crate) struct RowsMut<'a> {
    data: &'a mut [f32],
    stride: usize,
    rows: usize,
    width: usize,
}

/// Work below which another thread would cost more than it saves, in values touched.
const WORTH_A_THREAD: usize = 1 << 15;

impl<'a> RowsMut<'a> {
    /// The rows of the written binding `name`, at parameters `NAME_offset` and `NAME_stride`.
    pub(crate) fn of(call: &mut CpuCall<'a>, name: &str, rows: u32, width: u32) -> Result<Self> {
        let (offset, stride) = place(call, name);
        let data: &'a mut [f32] = call.write(name);
        check_span(name, data.len() as u64, offset, stride, rows, width, true)?;
        let data = if rows == 0 { &mut [] } else { &mut data[offset as usize..] };
        Ok(RowsMut { data, stride: stride.max(width).max(1) as usize, rows: rows as usize, width: width as usize })
    }

    /// Calls `each` with every row and its number, on several threads when `cost` (values touched a row) says so.
    pub(crate) fn for_each(self, cost: usize, each: impl Fn(usize, &mut [f32]) + Sync + Send) {
        let (width, rows) = (self.width, self.rows);
        if rows * cost < 2 * WORTH_A_THREAD {
            for (row, values) in self.data.chunks_mut(self.stride).take(rows).enumerate() {
                each(row, &mut values[..width]);
            }
        } else {
            self.data
                .par_chunks_mut(self.stride)
                .take(rows)
                .with_min_len(WORTH_A_THREAD / cost.max(1) + 1)
                .enumerate()
                .for_each(|(row, values)| each(row, &mut values[..width]));
        }
    }
}

fn place(call: &CpuCall<'_>, name: &str) -> (u32, u32) {
    (call.param(&format!("{name}_offset")), call.param(&format!("{name}_stride")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_end_within_their_slice() {
        let view = RowView::dense(BufferId(1), 3, 10);
        assert!(view.check("x", 3, 10, true).is_ok());
        assert!(view.check("x", 0, 10, true).is_ok());
        assert!(view.check("x", 4, 10, false).is_err());
        assert!(view.right(1).check("x", 3, 10, false).is_err());
        assert!(view.right(4).check("x", 3, 6, false).is_ok());
        assert!(view.down(1).check("x", 2, 10, false).is_ok());
        assert!(view.down(u32::MAX).check("x", 1, 10, false).is_err());
        assert!(view.check("x", u32::MAX, u32::MAX, false).is_err());
        let overlapping = RowView { stride: 5, ..view };
        assert!(overlapping.check("x", 3, 10, false).is_ok());
        assert!(overlapping.check("x", 3, 10, true).is_err());
    }

    #[test]
    fn segments_hold_their_rows() {
        let slice = BufferSlice::whole(BufferId(1), 68 * 5);
        assert!(WeightSegment::whole(slice, 5).check("w", WeightType::Q8_0, 64).is_ok());
        assert!(WeightSegment::whole(slice, 6).check("w", WeightType::Q8_0, 64).is_err());
        assert!(WeightSegment::whole(slice, 5).check("w", WeightType::Q8_0, 65).is_err());
        assert!(WeightSegment { slice, first_row: u32::MAX, rows: 1 }.check("w", WeightType::Q8_0, 64).is_err());
    }
}
