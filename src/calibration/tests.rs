use super::*;
use crate::basis::{HeadMap, LayerMaps};
use crate::num::testing::Normal;
use proptest::prelude::*;

fn file(seed: u64, moments: bool) -> CalibrationFile {
    let mut normal = Normal::new(seed);
    let mut head = |dim: usize| HeadMap { mean: normal.row(dim), map: normal.row(dim * dim) };
    let layers = (0..2).map(|_| LayerMaps { k: vec![head(4), head(4)], v: vec![head(8), head(8)] }).collect();
    let header = Header {
        version: VERSION,
        kvarto: "0.0.0".into(),
        model_sha256: "00ff".into(),
        model: "tiny".into(),
        architecture: "llama".into(),
        text_sha256: "abcd".into(),
        tokens: 300,
        windows: 1,
        window_tokens: 300,
        skipped_tokens: 64,
        checksum: String::new(),
    };
    let mut square = || normal.row(2 * 2 * 64);
    let moments = moments.then(|| SecondMoments { k: square(), q: square(), v: square(), output: square() });
    CalibrationFile { header, layers, moments }
}

fn unsigned(mut file: CalibrationFile) -> CalibrationFile {
    file.header.checksum.clear();
    file
}

#[test]
fn a_file_reads_back_and_its_bytes_are_always_the_same() {
    for moments in [false, true] {
        let written = file(1, moments);
        let bytes = written.to_bytes().expect("writes");
        assert_eq!(bytes, file(1, moments).to_bytes().expect("writes"));
        assert_eq!(unsigned(CalibrationFile::parse(&bytes).expect("reads")), written);
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let bytes = file(2, false).to_bytes().expect("writes");
    for end in 0..bytes.len() {
        let error = CalibrationFile::parse(&bytes[..end]).expect_err("cut");
        assert_eq!(error.kind(), ErrorKind::File, "{end}: {error}");
    }
    assert!(CalibrationFile::parse(&[bytes.clone(), vec![0]].concat()).is_err());
}

proptest! {
    /// A changed byte is found, or changes nothing that counts (space in the JSON).
    #[test]
    fn a_changed_byte_is_found(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let written = file(3, true);
        let mut bytes = written.to_bytes().expect("writes");
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(read) = CalibrationFile::parse(&bytes) {
            prop_assert_eq!(unsigned(read), written, "byte {}", at);
        }
    }

    #[test]
    fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(CalibrationFile::parse(&bytes).is_err());
    }
}

#[test]
fn other_versions_and_other_files_are_refused_by_name() {
    let later = CalibrationFile { header: Header { version: 2, ..file(4, false).header }, ..file(4, false) };
    let error = CalibrationFile::parse(&later.to_bytes().expect("writes")).expect_err("later");
    assert!(error.message().contains("version 2"), "{error}");
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![1], &[0; 4]).expect("a view");
    let other = safetensors::serialize([("x", view)], None).expect("writes");
    let error = CalibrationFile::parse(&other).expect_err("another");
    assert!(error.message().contains("no calibration"), "{error}");
    let mut uneven = file(5, false);
    uneven.layers[1].k.pop();
    assert!(uneven.to_bytes().is_err());
}

proptest! {
    #[test]
    fn windows_are_disjoint_and_within_the_text(tokens in 0usize..5000, most in 0usize..6000, window in 0usize..2000) {
        let options = CalibrateOptions { tokens: most, window_tokens: window };
        match windows(tokens, &options) {
            Err(error) => {
                prop_assert!(tokens.min(most).min(window) < LEAST_TOKENS);
                prop_assert_eq!(error.kind(), ErrorKind::Usage);
            }
            Ok((starts, length)) => {
                prop_assert!(!starts.is_empty() && starts.len() * length <= most);
                prop_assert!(starts.windows(2).all(|pair| pair[0] + length <= pair[1]));
                prop_assert!(starts[starts.len() - 1] + length <= tokens);
            }
        }
    }
}
