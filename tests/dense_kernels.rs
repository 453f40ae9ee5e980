//! The dense kernels against f64 references written here, on the CPU and on a GPU where there is one.
//!
//! Outputs and the gaps between rows start as NaN of a known pattern: what a kernel leaves out fails the
//! comparison, what it writes beside its rows changes the pattern.

mod dense;
mod support;

use dense::halves::{add_of_one_row_to_every_row, gates_of_halves_of_one_buffer, head_norm_of_heads_side_by_side};
use dense::rig::{Rig, Rng, Weights, close};
use kvarto::ErrorKind;
use kvarto::backend::Specialisation;
use kvarto::kernel::linear::LinearPath;
use kvarto::kernel::{RowView, WeightSegment, add, argmax, embed, gather, linear, rms_norm, rope};
use kvarto::num::rope::{Pairing, RopeScaling, RopeTable};
use kvarto::num::weights::WeightType;

on_every_backend!(
    linear_of_every_type_and_row_count,
    linear_of_odd_sizes,
    linear_in_segments_and_over_a_vocabulary,
    linear_takes_what_a_row_of_ones_adds_up_to,
    embed_takes_rows_out_of_segments,
    embed_leaves_rows_of_other_segments_alone,
    rms_norm_of_strided_rows,
    head_norm_of_heads_side_by_side,
    gates_of_halves_of_one_buffer,
    add_and_gather_move_rows,
    add_of_one_row_to_every_row,
    rope_turns_pairs_and_leaves_the_rest,
    argmax_is_lowest_and_knows_nan,
    no_rows_are_nothing_to_do,
);

#[test]
fn what_does_not_fit_is_refused_on_the_cpu() {
    dense::rig::on_cpu(what_does_not_fit_is_refused);
}

#[cfg(feature = "wgpu")]
#[test]
fn kernels_read_only_the_workgroup_memory_that_they_wrote() {
    dense::rig::poisoned_and_not(|rig| {
        rms_norm_of_strided_rows(rig);
        argmax_is_lowest_and_knows_nan(rig);
        for (weight, rows) in [(WeightType::Q4_0, 3), (WeightType::F16, 70)] {
            let weights = Weights::random(weight, 96, 67);
            for path in LinearPath::ALL {
                check_linear(rig, &weights, rows, true, path, 1000);
            }
        }
    });
}

/// Multiplies, by segments of `per_segment` rows, and compares with f64 sums over the definition's values.
fn check_linear(rig: &mut Rig, weights: &Weights, rows: u32, accumulate: bool, path: LinearPath, per_segment: u32) {
    let spec = linear::specialise(weights.weight, weights.columns, accumulate, path).unwrap();
    check_linear_of(rig, weights, rows, &spec, &format!("{path:?}"), per_segment);
}

/// The same of a specialisation.
fn check_linear_of(rig: &mut Rig, weights: &Weights, rows: u32, spec: &Specialisation, what: &str, per_segment: u32) {
    let accumulate = spec.flag("ACCUMULATE");
    let (columns, outs) = (weights.columns, weights.rows);
    let mut rng = Rng::new(u64::from(rows) + 7);
    let x: Vec<f32> = rng.floats((rows * columns) as usize, 1.0);
    let before: Vec<f32> = rng.floats((rows * outs) as usize, 1.0);
    let x_view = rig.strided(&x, rows, columns, 8, columns + 12);
    let y_view = if accumulate {
        rig.strided(&before, rows, outs, 3, outs + 5)
    } else {
        rig.strided_poison(rows, outs, 3, outs + 5)
    };
    let mut first = 0;
    while first < outs {
        let count = per_segment.min(outs - first);
        let slice = rig.bytes(&weights.row_bytes(first, count));
        let segment = WeightSegment { slice, first_row: first, rows: count };
        rig.run(spec, |p| linear::dispatch(p, spec, segment, x_view, y_view, rows));
        first += count;
    }
    let y = rig.rows(y_view, rows, outs);
    rig.clear();
    for out in 0..outs as usize {
        let values = weights.values(out);
        for row in 0..rows as usize {
            let (mut sum, mut size) = (0.0, 1e-30);
            for (w, &x) in values.iter().zip(&x[row * columns as usize..]) {
                let product = w * f64::from(x);
                sum += product;
                size += product.abs();
            }
            if accumulate {
                let old = f64::from(before[row * outs as usize + out]);
                sum += old;
                size += old.abs();
            }
            let got = f64::from(y[row * outs as usize + out]);
            assert!(
                (got - sum).abs() <= 1e-5 * size,
                "{} {columns}x{outs} {what} row {row} of {rows} out {out}: {got}, not {sum}",
                weights.weight.as_str()
            );
        }
    }
}

fn linear_of_every_type_and_row_count(rig: &mut Rig) {
    for weight in WeightType::ALL {
        let weights = Weights::random(weight, 576, 67);
        for rows in [1, 2, 3, 4, 5, 17, 64] {
            for path in rig.paths(rows) {
                check_linear(rig, &weights, rows, rows % 2 == 0, path, 1000);
            }
        }
    }
}

fn linear_of_odd_sizes(rig: &mut Rig) {
    for (turn, weight) in WeightType::ALL.into_iter().enumerate() {
        let sizes = [(32, 1), (32, 9), (64, 130), (96, 5), (1536, 63), (8192, 3), (2560, 13)];
        for (columns, outs) in rig.some(turn, sizes.into()) {
            let weights = Weights::random(weight, columns, outs);
            for rows in [1, 3, 6] {
                for path in rig.paths(rows) {
                    check_linear(rig, &weights, rows, false, path, 1000);
                }
            }
        }
    }
    // Plain rows may end within a block of 32.
    for (turn, weight) in [WeightType::F32, WeightType::F16, WeightType::BF16].into_iter().enumerate() {
        for columns in rig.some(turn, vec![8, 40, 1048]) {
            let weights = Weights::random(weight, columns, 21);
            for rows in [1, 4, 70] {
                for path in rig.paths(rows) {
                    check_linear(rig, &weights, rows, true, path, 1000);
                }
            }
        }
    }
}

fn linear_in_segments_and_over_a_vocabulary(rig: &mut Rig) {
    for weight in [WeightType::Q8_0, WeightType::Q4_0, WeightType::Q4_1] {
        let weights = Weights::random(weight, 64, 131);
        for rows in [1, 4, 33] {
            for path in rig.paths(rows) {
                check_linear(rig, &weights, rows, true, path, 50);
                check_linear(rig, &weights, rows, false, path, 50);
            }
        }
        let vocabulary = Weights::random(weight, 64, 49_152);
        check_linear(rig, &vocabulary, 1, false, LinearPath::OneRow, 30_000);
        check_linear(rig, &vocabulary, 6, false, LinearPath::ManyRows, 30_000);
    }
}

fn linear_takes_what_a_row_of_ones_adds_up_to(rig: &mut Rig) {
    // Whole numbers: sums are exact in every order, so results are, on every path.
    for columns in rig.some(0, vec![64u32, 256, 512, 768, 1536, 6144]) {
        let weights = Weights::ones(WeightType::Q8_0, columns, 5);
        for path in LinearPath::ALL {
            let x = rig.strided(&vec![1.0; 3 * columns as usize], 3, columns, 0, columns);
            let y = rig.strided_poison(3, 5, 0, 5);
            let spec = linear::specialise(WeightType::Q8_0, columns, false, path).unwrap();
            let slice = rig.bytes(&weights.row_bytes(0, 5));
            rig.run(&spec, |p| linear::dispatch(p, &spec, WeightSegment::whole(slice, 5), x, y, 3));
            assert_eq!(rig.rows(y, 3, 5), vec![columns as f32; 15], "{path:?}");
        }
    }
}

fn embed_takes_rows_out_of_segments(rig: &mut Rig) {
    for weight in WeightType::ALL {
        for (columns, vocabulary) in [(64, 301), (576, 77), (32, 49_152)] {
            let table = Weights::random(weight, columns, vocabulary);
            let spec = embed::specialise(weight, columns).unwrap();
            let tokens = [vocabulary - 1, 0, 1, vocabulary / 2, 3, 3, vocabulary / 2 - 1];
            for (rows, scale) in [(1u32, 1.0f32), (2, 25.3), (7, 0.4)] {
                let token_slice = rig.words(&tokens[..rows as usize]);
                let y = rig.strided_poison(rows, columns, 5, columns + 1);
                let half = vocabulary / 2;
                for (first, count) in [(0, half), (half, vocabulary - half)] {
                    let slice = rig.bytes(&table.row_bytes(first, count));
                    let segment = WeightSegment { slice, first_row: first, rows: count };
                    rig.run(&spec, |p| embed::dispatch(p, &spec, token_slice, segment, y, rows, scale));
                }
                let got = rig.rows(y, rows, columns);
                for row in 0..rows as usize {
                    let want = table.values(tokens[row] as usize);
                    for (i, &want) in want.iter().enumerate() {
                        let got = got[row * columns as usize + i];
                        let (size, scale) = (table.size(tokens[row] as usize, i), f64::from(scale));
                        close(got, want * scale, 1e-6 * size * scale, weight.as_str());
                    }
                }
            }
        }
    }
}

fn embed_leaves_rows_of_other_segments_alone(rig: &mut Rig) {
    let table = Weights::random(WeightType::F32, 8, 10);
    let spec = embed::specialise(WeightType::F32, 8).unwrap();
    let tokens = rig.words(&[4, 5, 9, u32::MAX]);
    let before: Vec<f32> = (0..32).map(|i| i as f32).collect();
    let y = rig.strided(&before, 4, 8, 0, 8);
    let slice = rig.bytes(&table.row_bytes(5, 3));
    let segment = WeightSegment { slice, first_row: 5, rows: 3 };
    rig.run(&spec, |p| embed::dispatch(p, &spec, tokens, segment, y, 4, 1.0));
    let got = rig.rows(y, 4, 8);
    for row in [0, 2, 3] {
        assert_eq!(got[row * 8..][..8], before[row * 8..][..8]);
    }
    for (got, want) in got[8..16].iter().zip(table.values(5)) {
        assert_eq!(f64::from(*got), want);
    }
}

fn rms_norm_of_strided_rows(rig: &mut Rig) {
    for width in [1u32, 7, 64, 255, 576, 1536, 4099] {
        let spec = rms_norm::specialise(width).unwrap();
        for rows in [1u32, 3, 64] {
            let mut rng = Rng::new(u64::from(width * rows));
            let x = rng.floats((rows * width) as usize, 3.0);
            let w = rng.floats(width as usize + 2, 1.0);
            let x_view = rig.strided(&x, rows, width, 1, width + 3);
            let y_view = rig.strided_poison(rows, width, 2, width + 1);
            let weights = rig.floats(&w);
            rig.run(&spec, |p| rms_norm::dispatch(p, &spec, x_view, weights, 2, y_view, rows, 1e-5));
            let got = rig.rows(y_view, rows, width);
            for (row, x) in x.chunks_exact(width as usize).enumerate() {
                let mean = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / f64::from(width);
                let scale = 1.0 / (mean + f64::from(1e-5f32)).sqrt();
                for (i, &v) in x.iter().enumerate() {
                    let want = f64::from(v) * scale * f64::from(w[i + 2]);
                    close(got[row * width as usize + i], want, 1e-5 * want.abs() + 1e-9, "rms_norm");
                }
            }
        }
    }
}

fn add_and_gather_move_rows(rig: &mut Rig) {
    let (plus, take) = (add::specialise().unwrap(), gather::specialise().unwrap());
    for (rows, width) in [(1u32, 576u32), (3, 65), (64, 1536)] {
        let mut rng = Rng::new(u64::from(rows));
        let a = rng.floats((rows * width) as usize, 1.0);
        let b = rng.floats((rows * width) as usize, 1.0);
        let a_view = rig.strided(&a, rows, width, 7, width + 1);
        let b_view = rig.strided(&b, rows, width, 0, width + 3);
        rig.run(&plus, |p| add::dispatch(p, a_view, b_view, rows, width));
        let sums: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(rig.rows(a_view, rows, width), sums);

        let indices: Vec<u32> = [rows - 1, 0, rows / 2].into();
        let index_slice = rig.words(&indices);
        let y = rig.strided_poison(3, width, 2, width + 4);
        rig.run(&take, |p| gather::dispatch(p, b_view, rows, index_slice, y, 3, width));
        let want: Vec<f32> =
            indices.iter().flat_map(|&i| &b[(i * width) as usize..][..width as usize]).copied().collect();
        assert_eq!(rig.rows(y, 3, width), want);
    }
}

fn rope_turns_pairs_and_leaves_the_rest(rig: &mut Rig) {
    for pairing in [Pairing::Adjacent, Pairing::HalfSplit] {
        for (dim, rotary, heads, rows) in [(64u32, 64u32, 9u32, 1u32), (64, 64, 12, 5), (80, 32, 3, 17), (6, 2, 1, 3)] {
            let spec = rope::specialise(dim, rotary, pairing).unwrap();
            let table = RopeTable::new(10_000.0, rotary as usize, &RopeScaling::None).unwrap();
            let positions: Vec<u32> = (0..rows).map(|r| r * 977 + 3).collect();
            let turns = rig.floats(&table.rows(&positions));
            let width = dim * heads;
            let x = Rng::new(u64::from(dim * rows)).floats((rows * width) as usize, 1.0);
            let view = rig.strided(&x, rows, width, 3, width + 11);
            rig.run(&spec, |p| rope::dispatch(p, &spec, view, turns, rows, heads));
            let got = rig.rows(view, rows, width);
            for (at, &value) in x.iter().enumerate() {
                let (row, i) = (at / width as usize, at % dim as usize);
                let (half, rotary) = (rotary as usize / 2, rotary as usize);
                if i >= rotary {
                    assert_eq!(got[at], value);
                    continue;
                }
                let (pair, first) = match pairing {
                    Pairing::Adjacent => (i / 2, i % 2 == 0),
                    Pairing::HalfSplit => (i % half, i < half),
                };
                let step = if pairing == Pairing::Adjacent { 1 } else { half };
                let angle = f64::from(positions[row]) * 10_000f64.powf(-2.0 * pair as f64 / rotary as f64);
                let (own, other) = if first { (value, x[at + step]) } else { (value, x[at - step]) };
                let sign = if first { -1.0 } else { 1.0 };
                let want = f64::from(own) * angle.cos() + sign * f64::from(other) * angle.sin();
                close(got[at], want, 1e-6, "rope");
            }
        }
    }
}

fn argmax_is_lowest_and_knows_nan(rig: &mut Rig) {
    let spec = argmax::specialise().unwrap();
    for width in [1usize, 63, 256, 1000, 49_152] {
        let base = Rng::new(width as u64).floats(width, 10.0);
        let last = width - 1;
        let middle = width / 2;
        let mut rows: Vec<(Vec<f32>, u32)> = Vec::new();
        let largest = (0..width).fold(0, |best, i| if base[i] > base[best] { i } else { best });
        rows.push((base.clone(), largest as u32));
        let mut put = |places: &[usize], value: f32, want: u32| {
            let mut row = base.clone();
            places.iter().for_each(|&p| row[p] = value);
            rows.push((row, want));
        };
        put(&[last], 1e30, last as u32);
        put(&[last, middle], 1e30, middle as u32);
        put(&[middle], f32::INFINITY, middle as u32);
        put(&[middle], f32::NAN, argmax::NAN);
        put(&[last], -f32::NAN, argmax::NAN);
        put(&[last], f32::from_bits(0x7f80_0001), argmax::NAN);
        rows.push((vec![f32::NEG_INFINITY; width], 0));
        rows.push((vec![-2.5; width], 0));
        let mut zeros = vec![-1.0; width];
        (zeros[middle], zeros[last]) = (-0.0, 0.0);
        rows.push((zeros, middle as u32));
        let tiny: Vec<f32> = (0..width).map(|i| if i == last { -1e-30 } else { -1.0 }).collect();
        rows.push((tiny, last as u32));

        let count = rows.len() as u32;
        let flat: Vec<f32> = rows.iter().flat_map(|(row, _)| row.clone()).collect();
        let view = rig.strided(&flat, count, width as u32, 9, width as u32 + 2);
        let out = rig.words(&vec![0xabcd_0123; count as usize + 2]);
        rig.run(&spec, |p| argmax::dispatch(p, view, out, 1, count, width as u32));
        let got = rig.read_words(out);
        let want: Vec<u32> = rows.iter().map(|(_, want)| *want).collect();
        assert_eq!(got[1..=count as usize], want, "width {width}");
        assert_eq!((got[0], got[count as usize + 1]), (0xabcd_0123, 0xabcd_0123));
    }
}

fn no_rows_are_nothing_to_do(rig: &mut Rig) {
    let view = RowView { slice: rig.floats(&[1.0; 64]), offset: 0, stride: 64 };
    let other = RowView { slice: rig.floats(&[1.0; 64]), offset: 0, stride: 64 };
    let spec = add::specialise().unwrap();
    rig.run(&spec, |p| add::dispatch(p, view, other, 0, 64));
    let spec = linear::specialise(WeightType::F32, 64, false, LinearPath::OneRow).unwrap();
    let slice = rig.floats(&[1.0; 64]);
    rig.run(&spec, |p| linear::dispatch(p, &spec, WeightSegment::whole(slice, 1), view, other, 0));
    assert_eq!(rig.rows(other, 1, 64), [1.0; 64]);
}

fn what_does_not_fit_is_refused(rig: &mut Rig) {
    assert_eq!(
        linear::specialise(WeightType::Q4_1, 48, false, LinearPath::OneRow).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    assert_eq!(embed::specialise(WeightType::Q8_0, 100).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(rope::specialise(64, 66, Pairing::Adjacent).unwrap_err().kind(), ErrorKind::Unsupported);

    let view = RowView { slice: rig.floats(&[1.0; 128]), offset: 0, stride: 64 };
    let other = RowView { slice: rig.floats(&[1.0; 128]), offset: 0, stride: 64 };
    let spec = linear::specialise(WeightType::Q8_0, 64, false, LinearPath::OneRow).unwrap();
    let pipeline = rig.prepare(&spec);
    let weights = |rows| WeightSegment { slice: other.slice, first_row: 0, rows };
    let shape = |result: kvarto::Result<kvarto::backend::Dispatch>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Shape);
    };
    assert!(linear::dispatch(pipeline, &spec, weights(7), view, other, 2).is_ok());
    shape(linear::dispatch(pipeline, &spec, weights(8), view, other, 2));
    shape(linear::dispatch(pipeline, &spec, weights(7), view, other, 3));
    shape(linear::dispatch(pipeline, &spec, weights(7), RowView { stride: 63, ..view }, other, 2));
    shape(linear::dispatch(pipeline, &spec, weights(7), view, RowView { stride: 6, ..other }, 2));
    shape(argmax::dispatch(pipeline, view, other.slice, 127, 2, 64));
    shape(gather::dispatch(pipeline, view, 2, other.slice, other, 129, 64));

    // A dispatch made by hand, past its slice, is an error on the CPU, never a panic.
    let mut bad = linear::dispatch(pipeline, &spec, weights(7), view, other, 2).unwrap();
    bad.params[0] = 1000;
    assert_eq!(rig.try_submit(bad).unwrap_err().kind(), ErrorKind::Shape);
    let spec = gather::specialise().unwrap();
    let pipeline = rig.prepare(&spec);
    let indices = rig.words(&[2]);
    let outside = gather::dispatch(pipeline, view, 2, indices, other, 1, 64).unwrap();
    assert_eq!(rig.try_submit(outside).unwrap_err().kind(), ErrorKind::Shape);
}
