//! The harness must see planted errors, and kernels must refuse indices outside their buffers.

use crate::{TOLERANCE, cpu};
use kvarto::conformance::{Built, Case, Formats, Kernel};

const F16: Formats = |_, _| ("f16", "f16");
const F32: Formats = |_, _| ("f32", "f32");

fn case(formats: Formats) -> Case {
    Case { sequences: vec![(100, 2), (30, 1)], formats, ..Case::default() }
}

fn check(built: &Built) -> Result<f64, String> {
    let outcome = built.run(&mut cpu()).map_err(|e| e.to_string())?;
    built.compare(&outcome, TOLERANCE)
}

/// Word and lowest bit of a value of the first page of a slab.
fn place(side: &kvarto::conformance::StoredSide, token: usize) -> (usize, u32) {
    let layout = side.codec.codec.layout();
    let (word, shift) = layout.position(0, token, 3);
    (side.used[0] * layout.page_words + word, shift)
}

#[test]
fn sound_pages_pass() {
    for formats in [F16, F32] {
        check(&case(formats).build().expect("a case")).unwrap();
    }
}

#[test]
fn a_flipped_bit_of_a_value_fails() {
    let mut built = case(F16).build().expect("a case");
    let side = built.v_slabs.get_mut("f16").unwrap();
    let (word, shift) = place(side, 1);
    // The top bit of the exponent.
    side.words[word] ^= 1 << (shift + 14);
    assert!(check(&built).unwrap_err().contains("channel 3"));
}

#[test]
fn a_flipped_bit_of_a_key_fails() {
    let mut built = case(F16).build().expect("a case");
    let side = built.k_slabs.get_mut("f16").unwrap();
    let (word, shift) = place(side, 1);
    side.words[word] ^= 1 << (shift + 14);
    assert!(check(&built).is_err());
}

#[test]
fn a_nan_in_a_key_that_is_read_fails() {
    for kernel in [Kernel::Decode, Kernel::Prefill] {
        let mut built = Case { kernel, ..case(F32) }.build().expect("a case");
        let side = built.k_slabs.get_mut("f32").unwrap();
        let (word, _) = place(side, 1);
        side.words[word] = f32::NAN.to_bits();
        assert!(check(&built).unwrap_err().contains("NaN"));
    }
}

#[test]
fn a_skipped_write_fails() {
    // An item fewer: its states keep their NaN pattern.
    let mut built = case(F16).build().expect("a case");
    built.classes[0].items -= 1;
    assert!(check(&built).unwrap_err().contains("NaN"));
    // A row fewer in the merge: its output does.
    let mut built = case(F16).build().expect("a case");
    built.merged_rows -= 1;
    assert!(check(&built).unwrap_err().contains("NaN"));
}

#[test]
fn a_write_beside_the_rows_fails() {
    let built = case(F16).build().expect("a case");
    let mut outcome = built.run(&mut cpu()).unwrap();
    outcome.out[0] = 0;
    assert!(built.compare(&outcome, TOLERANCE).unwrap_err().contains("beside"));
}

/// A NaN value that only later rows may see must not reach the rows before it.
#[test]
fn a_nan_value_reaches_only_rows_that_see_it() {
    for (kernel, rows) in [(Kernel::Decode, 16), (Kernel::Prefill, 40)] {
        let mut built =
            Case { sequences: vec![(64, rows)], formats: F32, kv_heads: 1, row_tile: rows, kernel, ..Case::default() }
                .build()
                .expect("a case");
        let token = 64 - rows / 2;
        for slabs in [&mut built.v_slabs, &mut built.k_slabs] {
            let side = slabs.get_mut("f32").unwrap();
            let (word, _) = place(side, token);
            side.words[word] = f32::NAN.to_bits();
        }
        let outcome = built.run(&mut cpu()).unwrap();
        for row in 0..rows {
            let sees = 64 - rows + row >= token;
            for head in 0..built.case.q_heads() {
                let nan = built.output(&outcome, row, head).iter().any(|x| x.is_nan());
                assert_eq!(nan, sees, "row {row} head {head}");
            }
        }
    }
}

/// B27: ids and slots outside the pool are errors, not reads of what lies there.
#[test]
fn indices_outside_are_refused() {
    let damage: [fn(&mut Built); 6] = [
        |b| b.descs.truncate(8),
        |b| b.descs.chunks_exact_mut(8).for_each(|d| d[4] = u32::MAX),
        |b| b.descs.chunks_exact_mut(8).for_each(|d| d[5] = 1000),
        |b| b.descs.chunks_exact_mut(8).for_each(|d| d[1] = 65),
        |b| b.classes[0].items_at = b.tables.len() - 4,
        |b| b.rows_at = usize::MAX >> 32,
    ];
    for (number, damage) in damage.into_iter().enumerate() {
        let mut built = case(F16).build().expect("a case");
        damage(&mut built);
        let error = built.run(&mut cpu()).expect_err(&format!("damage {number}"));
        assert_eq!(error.kind(), kvarto::ErrorKind::Shape, "damage {number}: {error}");
    }
}

/// Two items that write the same states are refused: threads would race.
#[test]
fn shared_states_are_refused() {
    let mut built = case(F16).build().expect("a case");
    let at = built.classes[0].items_at;
    built.tables[at + 8 + 5] = built.tables[at + 5];
    let error = built.run(&mut cpu()).unwrap_err();
    assert!(error.message().contains("written twice"), "{error}");
}
