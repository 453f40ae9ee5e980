//! Named lists of rows, for measurements that are to be the same on every machine.

use crate::error::{Error, ErrorKind, Result};

/// A decode bench of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What the row is called beside its shape: `fp8-native`.
    pub word: &'static str,
    /// Formats of pages, as `--kv` takes them.
    pub kv: &'static str,
    /// How a device of CUDA's is to multiply pages of e4m3: as 16-bit floats, as they are, or as it would. Others have
    /// no such choice.
    pub e4m3: Option<bool>,
    /// Sequences.
    pub batch: u32,
    /// Tokens that each holds.
    pub context: u32,
    /// Heads and head size, as `--shape` takes them.
    pub shape: &'static str,
}

impl Row {
    /// `decode fp8-native 8x32768 q32k8d128`.
    pub fn id(&self) -> String {
        format!("decode {} {}x{} {}", self.word, self.batch, self.context, self.shape)
    }
}

/// A list of rows under a name.
#[derive(Debug)]
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub summary: &'static str,
    pages: &'static [Pages],
}

/// A row's word, formats, and products of e4m3.
type Pages = (&'static str, &'static str, Option<bool>);

/// Sequences, tokens of each, heads and head size.
const SHAPES: [(u32, u32, &str); 3] = [(8, 32_768, "q32k8d128"), (1, 32_768, "q32k8d128"), (2, 59_008, "q24k4d256")];

const MIX: &str = "mix:fp8=0.31,tq3";

static SUITES: [Suite; 2] = [
    Suite {
        name: "blackwell",
        summary: "decode on a card of CUDA's, fp8 by both kinds of products; for compute capability 10.x and 12.x",
        pages: &[
            ("f16", "f16", None),
            ("bf16", "bf16", None),
            ("fp8", "fp8", Some(false)),
            ("fp8-native", "fp8", Some(true)),
            ("tq3", "tq3", None),
            ("tq4", "tq4", None),
            ("mix", MIX, Some(false)),
            ("mix-native", MIX, Some(true)),
        ],
    },
    Suite {
        name: "decode",
        summary: "decode on any backend, each format as the backend does it by itself",
        pages: &[
            ("f16", "f16", None),
            ("bf16", "bf16", None),
            ("fp8", "fp8", None),
            ("tq3", "tq3", None),
            ("tq4", "tq4", None),
            ("mix", MIX, None),
        ],
    },
];

impl Suite {
    /// All of them.
    pub fn all() -> &'static [Suite] {
        &SUITES
    }

    /// The one of this name.
    ///
    /// # Errors
    /// `Usage` with the names there are.
    pub fn named(name: &str) -> Result<&'static Suite> {
        SUITES.iter().find(|suite| suite.name == name).ok_or_else(|| {
            let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
            Error::new(ErrorKind::Usage, format!("{name:?} is no suite"), format!("suites: {}", names.join(", ")))
        })
    }

    /// Its rows, every kind of pages at one shape and then at the next.
    pub fn rows(&self) -> Vec<Row> {
        let of = |&(batch, context, shape): &(u32, u32, &'static str)| {
            let row = move |&(word, kv, e4m3): &Pages| Row { word, kv, e4m3, batch, context, shape };
            self.pages.iter().map(row)
        };
        SHAPES.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Mix;
    use crate::format::FormatRegistry;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_told_apart_and_can_be_read() {
        let formats = FormatRegistry::builtin();
        for suite in Suite::all() {
            let rows = suite.rows();
            let ids: BTreeSet<String> = rows.iter().map(Row::id).collect();
            assert_eq!(ids.len(), rows.len(), "{}", suite.name);
            for row in rows {
                match row.kv.strip_prefix("mix:") {
                    Some(mix) => drop(Mix::parse(mix, &formats).expect(row.kv)),
                    None => drop(formats.by_name(row.kv).expect(row.kv)),
                }
            }
            assert_eq!(Suite::named(suite.name).expect("it is there").name, suite.name);
        }
        let error = Suite::named("hopper").expect_err("no such suite");
        assert!(error.kind() == ErrorKind::Usage && error.remedy().contains("blackwell, decode"), "{error}");
    }
}
