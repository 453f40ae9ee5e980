//! `tq3n`: `tq3` in two parts, `[plane2][γ]` and `[plane1]`, each in a slab of its own.
//!
//! The first part is, word for word, a page of `tq2`: freeing the second demotes a page to two bits and moves nothing.
//! γ is then still tq3's, fitted to the eight values; decoding has tq2's four.

use super::super::{Codec, Format, Layout, Units};
use super::TqCodec;
use crate::error::Result;
use crate::shape::{PageGeometry, Side};
use std::ops::Range;
use std::sync::Arc;

/// Three-bit codes whose lower bits can be freed alone; wants rotated rows.
pub struct Tq3Nested;

impl Format for Tq3Nested {
    fn name(&self) -> &str {
        "tq3n"
    }

    fn summary(&self) -> &str {
        "tq3 in two parts: without the second a page is one of tq2"
    }

    fn wants_rotation(&self) -> bool {
        true
    }

    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        Ok(Arc::new(Nested { whole: TqCodec::<8>::of(side, geometry)?, split: false }))
    }

    fn first_part(&self) -> Option<&str> {
        Some("tq2")
    }
}

/// tq3's codec, for pages in one piece or in two.
struct Nested {
    whole: TqCodec<8>,
    split: bool,
}

impl Nested {
    /// Words before `plane1`.
    fn first_words(&self) -> usize {
        self.whole.layout.planes[1].offset_words
    }

    /// Text that finds `plane1` where it stands.
    fn placed(&self, text: String, prefix: &str) -> String {
        let places = [
            // Codes of a token, and the bases of a column of units.
            ("{p}_word(base + {p}_plane1_word(", "{p}1_word({p}_part1 + {p}_plane1_word("),
            (
                "return base + vec2<u32>({p}_plane2_word(",
                "return vec2<u32>(base, {p}_part1) + vec2<u32>({p}_plane2_word(",
            ),
            // Words of a unit: `b` counts from the second base.
            ("{p}_slab[b / 4u]", "{p}1_slab[b / 4u]"),
            ("{p}_word(b + ", "{p}1_word(b + "),
            ("{p}_word(b)", "{p}1_word(b)"),
        ];
        if self.split { replaced(text, prefix, &places) } else { text }
    }
}

/// Reads by `load4` that remember the further part: they come when another page may have been begun.
const REMEMBERED: [(&str, &str); 4] = [
    ("alias {p}_At = vec2<u32>;", "alias {p}_At = vec3<u32>;"),
    ("return vec2<u32>(base, token);", "return vec3<u32>(base, token, {p}_part1);"),
    ("return vec2<u32>(base, c4);", "return vec3<u32>(base, c4, {p}_part1);"),
    ("-> {p}_Unit { return {p}_load4(", "-> {p}_Unit {\n    {p}_part1 = at.z;\n    return {p}_load4("),
];

fn replaced(text: String, prefix: &str, places: &[(&str, &str)]) -> String {
    let own = |text: &str| text.replace("{p}", prefix);
    places.iter().fold(text, |text, (from, to)| text.replace(&own(from), &own(to)))
}

impl Codec for Nested {
    fn layout(&self) -> &Layout {
        &self.whole.layout
    }

    fn parts(&self) -> [usize; 2] {
        let (words, first) = (self.whole.layout.page_words, self.first_words());
        if self.split { [first, words - first] } else { [words, 0] }
    }

    fn split(&self) -> Option<Arc<dyn Codec>> {
        let Layout { side, geometry, .. } = self.whole.layout;
        Some(Arc::new(Nested { whole: TqCodec::<8>::of(side, geometry).ok()?, split: true }))
    }

    fn encode(&self, values: &[f32], page: &mut [u32]) {
        self.whole.encode(values, page);
    }

    fn decode(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]) {
        self.whole.decode(page, tokens, out);
    }

    fn wgsl(&self, prefix: &str) -> String {
        self.placed(self.whole.wgsl(prefix), prefix)
    }

    fn wgsl_units(&self, prefix: &str) -> Units {
        match self.whole.units(prefix) {
            Some(units) => Units { text: self.placed(units.text, prefix), ..units },
            None => {
                let units = Units::by_load4(&self.whole.layout, prefix);
                let text = if self.split { replaced(units.text, prefix, &REMEMBERED) } else { units.text };
                Units { text, ..units }
            }
        }
    }

    fn wgsl_encode(&self, prefix: &str) -> String {
        self.whole.wgsl_encode_to(prefix, self.split)
    }

    fn cuda(&self, prefix: &str) -> String {
        // Of a page in one piece: there are no CUDA kernels yet that would be given two.
        self.whole.cuda(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tq2;
    use super::*;

    #[test]
    fn the_first_part_is_a_page_of_tq2() {
        for side in Side::BOTH {
            for tokens in [16, 32, 64, 128] {
                for head_dim in [32, 64, 96, 128, 256] {
                    let geometry = PageGeometry { tokens, head_dim };
                    let whole = Tq3Nested.codec(side, geometry).unwrap();
                    let split = whole.split().unwrap();
                    let two = Tq2.codec(side, geometry).unwrap();
                    assert_eq!(whole.parts(), [whole.layout().page_words, 0]);
                    let [first, further] = split.parts();
                    assert_eq!((first, first + further), (two.layout().page_words, whole.layout().page_words));
                    let values: Vec<f32> =
                        (0..geometry.values()).map(|i| ((i * 37 % 101) as f32 - 50.0) / 20.0).collect();
                    let mut page = vec![u32::MAX; first + further];
                    split.encode(&values, &mut page);
                    let (mut three, mut coarse) = (vec![0.0; values.len()], vec![0.0; values.len()]);
                    split.decode(&page, 0..tokens, &mut three);
                    two.decode(&page[..first], 0..tokens, &mut coarse);
                    // Codes of two bits are the upper bits of those of three: signs agree, and order does not turn.
                    for (t, c) in three.iter().zip(&coarse) {
                        assert_eq!(t.signum(), c.signum());
                    }
                    let off = |x: &[f32]| -> f64 {
                        let square: f64 = x.iter().zip(&values).map(|(x, v)| f64::from(x - v).powi(2)).sum();
                        square.sqrt() / values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
                    };
                    assert!(off(&three) < 0.3 && off(&coarse) > off(&three) && off(&coarse) < 0.6, "{}", off(&coarse));
                }
            }
        }
    }

    #[test]
    fn split_text_takes_no_word_of_plane1_from_the_first_slab() {
        for side in Side::BOTH {
            for (tokens, head_dim) in [(16, 64), (32, 96), (64, 128), (128, 256)] {
                let whole = Tq3Nested.codec(side, PageGeometry { tokens, head_dim }).unwrap();
                let split = whole.split().unwrap();
                let text = |codec: &dyn Codec| codec.wgsl("k") + &codec.wgsl_units("k").text + &codec.wgsl_encode("k");
                let (one, two) = (text(whole.as_ref()), text(split.as_ref()));
                assert!(!one.contains("part1") && !one.contains("k1_"));
                for gone in
                    ["k_word(base + k_plane1_word", "k_word(b)", "k_word(b +", "k_slab[b / 4u]", "return base + vec2"]
                {
                    assert!(!two.contains(gone), "{gone} in {two}");
                }
                for there in
                    ["k1_word(k_part1 + k_plane1_word(", "vec2<u32>(base, k_part1)", "k1_slab[k_part1 + first + i]"]
                {
                    assert!(two.contains(there), "{there} not in {two}");
                }
            }
        }
        // Head sizes whose units differ are read by `load4`, which finds the part again.
        for side in Side::BOTH {
            let whole = Tq3Nested.codec(side, PageGeometry { tokens: 64, head_dim: 192 }).unwrap();
            let text = whole.split().unwrap().wgsl_units("v").text;
            assert!(text.contains("v_part1 = at.z") && text.contains(", v_part1)") && !text.contains("vec2<u32>(base"));
        }
    }
}
