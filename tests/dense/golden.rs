//! Rotary frequencies against those of transformers (`tests/golden/rope.json`).

use kvarto::num::rope::{RopeScaling, RopeTable};
use serde_json::Value;

#[test]
fn frequencies_are_those_of_transformers() {
    let golden: Value = serde_json::from_str(include_str!("../golden/rope.json")).unwrap();
    let cases = golden["cases"].as_array().unwrap();
    let mut kinds = Vec::new();
    for case in cases {
        let parameters = &case["parameters"];
        let number = |name: &str| parameters[name].as_f64().unwrap_or_else(|| panic!("no {name}")) as f32;
        let kind = parameters["rope_type"].as_str().unwrap();
        kinds.push(kind);
        let scaling = match kind {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: number("factor") },
            "llama3" => RopeScaling::Llama3Bands {
                factor: number("factor"),
                low: number("low_freq_factor"),
                high: number("high_freq_factor"),
                original: number("original_max_position_embeddings"),
            },
            "yarn" => RopeScaling::Yarn {
                factor: number("factor"),
                original_context: number("original_max_position_embeddings"),
                beta_fast: number("beta_fast"),
                beta_slow: number("beta_slow"),
                attn_factor: None,
            },
            other => panic!("no scaling for {other}"),
        };
        let dim = case["dim"].as_u64().unwrap() as usize;
        let table = RopeTable::new(parameters["rope_theta"].as_f64().unwrap(), dim, &scaling).unwrap();
        let wanted = case["inv_freq"].as_array().unwrap();
        assert_eq!(table.frequencies().len(), wanted.len());
        for (i, (got, want)) in table.frequencies().iter().zip(wanted).enumerate() {
            let want = want.as_f64().unwrap();
            // The golden numbers were calculated in f32.
            assert!((got - want).abs() <= 1e-6 * want, "{kind}, pair {i}: {got}, not {want}");
        }
        let factor = case["attention_factor"].as_f64().unwrap();
        assert!((table.attention_factor() - factor).abs() <= 1e-12, "{kind}: {}", table.attention_factor());
        let row = table.rows(&[1]);
        let (cos, sin) = (f64::from(row[2]), f64::from(row[3]));
        assert!((cos.hypot(sin) - factor).abs() < 1e-6, "{kind}: the attention factor is in the table");
    }
    assert_eq!(kinds, ["default", "linear", "llama3", "yarn"]);
}
