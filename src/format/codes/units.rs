//! Shader text that reads codes by units: a byte of two codes finds both values in a table at once.

use super::super::{Layout, Units};
use crate::shape::{PageGeometry, Side};

/// The table's values are this much smaller than the codebook's: sums of products then stay within f16.
const FACTOR: u32 = 32;

/// Reads of a page side of `bits`-bit codes; `None` where a side's units differ among themselves. The format's own
/// text defines `fn {p}_value(code: u32) -> f32`.
pub(in super::super) fn units(layout: &Layout, bits: u32, prefix: &str) -> Option<Units> {
    let PageGeometry { tokens, head_dim } = layout.geometry;
    // K: words of a unit, as many as its last block has groups of 32 channels.
    let groups = if head_dim.is_multiple_of(128) { 4 } else { head_dim.div_ceil(32) };
    // V: rows of units are as long as the block of channels is wide; a short one beside full ones has its own length.
    let short = (head_dim % 128).div_ceil(16) % 8;
    let (text, unit_tokens, quads, count) = match (layout.side, bits) {
        (Side::K, _) if groups > 4 => return None,
        (Side::V, _) if head_dim > 128 && short != 0 => return None,
        (Side::K, 4) if groups % 2 == 1 => return None,
        (Side::K, 4) => (K4.to_string(), 2, 4, head_dim.div_ceil(128) * 2 * groups),
        (Side::K, _) => (K.to_string(), 2, 4 * groups, head_dim.div_ceil(128) * 2),
        (Side::V, 4) => (v4(tokens), (tokens / 4).min(16), 1, 4 * tokens.div_ceil(64)),
        (Side::V, _) => (v(tokens, bits), (tokens / 4).min(16), 1, 4 * tokens.div_ceil(64)),
    };
    let twins = match (layout.side, bits) {
        (Side::V, 4) => 1,
        (Side::V, _) if tokens > 16 => 16,
        _ => 0,
    };
    let text = table(layout.side, bits) + &text;
    let text = text
        .replace("{fetch_a0}", &words(groups, "a"))
        .replace("{fetch_a1}", &words(groups, "(a + {p}_plane2_word(0u, 8u) - {p}_plane2_word(0u, 0u))"))
        .replace("{fetch_b}", &if bits == 3 { words(groups, "b") } else { "vec4<u32>(0u)".into() })
        .replace("{plane1_at}", if bits == 3 { "{p}_plane1_word(token, 0u)" } else { "0u" })
        .replace("{plane1_more}", if bits == 3 { "{p}_plane1_word(0u, c) - {p}_plane1_word(0u, 0u)" } else { "0u" })
        .replace("{b_at}", if groups % 2 == 0 { "half * {groups}u / 2u + i / 2u" } else { "i" })
        .replace("{b_shift}", if groups % 2 == 0 { "i % 2u" } else { "half" })
        .replace("{groups}", &groups.to_string())
        .replace("{unit_groups}", &(groups / 2).max(1).to_string())
        .replace("{p}", prefix);
    Some(Units {
        text,
        tokens: unit_tokens,
        quads,
        count,
        words: 4,
        table_bytes: entries(bits) * 8,
        twins,
        scaled: false,
        half: true,
    })
}

/// `count` words of the slab from word `first` on, as a vector of four.
fn words(count: usize, first: &str) -> String {
    match count {
        4 => format!("{{p}}_slab[{first} / 4u]"),
        _ => {
            let each: Vec<String> =
                (0..4).map(|i| if i < count { format!("{{p}}_word({first} + {i}u)") } else { "0u".into() }).collect();
            format!("vec4<u32>({})", each.join(", "))
        }
    }
}

/// Entries of a table.
fn entries(bits: u32) -> usize {
    match bits {
        2 => 16,
        3 => 64,
        _ => 256,
    }
}

/// Tables and look-ups. Codes of 2 bits: a nibble holds two. Of 3 bits: a byte of the upper bits of four codes and
/// one of the lower bits of eight give six bits for each two. Of 4 bits: a byte holds two.
fn table(side: Side, bits: u32) -> String {
    let (first, second, lookup) = match bits {
        2 => ("i & 3u", "i >> 2u", "return {p}_table[(a >> (4u * n)) & 15u];"),
        3 => (
            "((i & 3u) << 1u) | ((i >> 4u) & 1u)",
            "((i >> 1u) & 6u) | (i >> 5u)",
            "let even = (a & 0x0f0f0f0fu) | ((b << (4u - 2u * shift)) & 0x30303030u);
    let odd = ((a >> 4u) & 0x0f0f0f0fu) | ((b >> (2u * shift)) & 0x30303030u);
    return {p}_table[(select(even, odd, n % 2u == 1u) >> (8u * (n / 2u))) & 255u];",
        ),
        _ => ("i & 15u", "i >> 4u", "return {p}_table[(a >> (8u * (n / 2u))) & 255u];"),
    };
    let kind = match side {
        Side::K => "pair",
        Side::V => "vec2<stored>",
    };
    TABLE
        .replace("{entries}", &entries(bits).to_string())
        .replace("{first}", first)
        .replace("{second}", second)
        .replace("{lookup}", lookup)
        .replace("{kind}", kind)
        .replace("{factor}", &format!("{FACTOR}.0"))
        .replace("{inverse}", &format!("{:?}", 1.0 / f64::from(FACTOR)))
}

const TABLE: &str = "#unzeroed
var<workgroup> {p}_table: array<{kind}, {entries}>;
const {p}_factor: f32 = {factor};
fn {p}_prepare(lid: u32) {
    for (var i = lid; i < {entries}u; i += WORKGROUP) {
        {p}_table[i] = {kind}(vec2<f32>({p}_value({first}), {p}_value({second})) * {inverse});
    }
}
// Two values whose codes stand at nibble n of word a (of 3 bits: with the lower ones in word b).
fn {p}_lookup(a: u32, b: u32, shift: u32, n: u32) -> {kind} {
    {lookup}
}
";

/// K of 2 and 3 bits: two rows t of units, words of tokens T and T + 8.
const K: &str = "struct {p}_Unit {
    a0: vec4<u32>,
    a1: vec4<u32>,
    b: vec4<u32>,
}
// Words of planes at channel 0: positions are sums of one term of the token and one of the channel.
alias {p}_At = vec2<u32>;
fn {p}_at(base: u32, token: u32) -> {p}_At {
    return base + vec2<u32>({p}_plane2_word(token, 0u), {plane1_at});
}
fn {p}_fetch(at: {p}_At, unit: u32) -> {p}_Unit {
    let c = unit / 2u * 128u + unit % 2u * 16u;
    let a = at.x + {p}_plane2_word(0u, c) - {p}_plane2_word(0u, 0u);
    let b = at.y + {plane1_more};
    return {p}_Unit({fetch_a0}, {fetch_a1}, {fetch_b});
}
fn {p}_pair(unit: {p}_Unit, which: u32, at: u32) -> pair {
    let half = at / (4u * {groups}u);
    let i = at / 4u % {groups}u;
    let a = select(unit.a0[i], unit.a1[i], half == 1u);
    return {p}_lookup(a, unit.b[{b_at}], {b_shift}, at % 4u + 4u * which);
}
fn {p}_channels(unit: u32, at: u32) -> vec2<u32> {
    let half = at / (4u * {groups}u);
    let i = at / 4u % {groups}u;
    return unit / 2u * 128u + i * 32u + (unit % 2u * 2u + half) * 8u + at % 4u + vec2<u32>(0u, 4u);
}
";

/// K of 4 bits, an even number of groups: one unit of 16 bytes holds 16 channels of tokens T and T + 8.
const K4: &str = "alias {p}_Unit = vec4<u32>;
fn {p}_first_channel(unit: u32) -> u32 {
    let t = unit / {unit_groups}u;
    return t / 4u * 128u + t % 4u * 8u + unit % {unit_groups}u * 64u;
}
alias {p}_At = u32;
fn {p}_at(base: u32, token: u32) -> {p}_At { return (base + {p}_plane4_word(token, 0u)) / 4u; }
fn {p}_fetch(at: {p}_At, unit: u32) -> {p}_Unit {
    return {p}_slab[at + ({p}_plane4_word(0u, {p}_first_channel(unit)) - {p}_plane4_word(0u, 0u)) / 4u];
}
fn {p}_pair(unit: {p}_Unit, which: u32, at: u32) -> pair {
    return {p}_lookup(unit[at / 2u], 0u, 0u, at % 2u * 2u + 4u * which);
}
fn {p}_channels(unit: u32, at: u32) -> vec2<u32> {
    let word = at / 2u;
    return {p}_first_channel(unit) + word / 2u * 32u + word % 2u * 4u + at % 2u * 2u + vec2<u32>(0u, 1u);
}
";

/// V of 2 and 3 bits: one row t of units, four channels of 16 tokens (8 of 32, 4 of 16).
fn v(tokens: usize, bits: u32) -> String {
    let words_of_unit = tokens.min(64) / 16;
    // For channel k of the four: word of plane2, word and shift of plane1.
    let value = |k: usize| {
        let (a, b, shift) = match words_of_unit {
            4 => (format!("{}u + at / 4u", k / 2 * 2), k / 2, "at / 4u".to_string()),
            2 => (format!("{}u", k / 2), 0, format!("{}u", k / 2)),
            _ => ("0u".to_string(), 0, "0u".to_string()),
        };
        format!("{{p}}_lookup(unit.a[{a}], unit.b[{b}u], {shift}, at % 2u + at / 2u % 2u * 2u + {}u)", k % 2 * 4)
    };
    let b = match (bits, words_of_unit) {
        (2, _) => "vec2<u32>(0u)",
        (_, 4) => "vec2<u32>({p}_word(b), {p}_word(b + 1u))",
        (_, 2) => "vec2<u32>({p}_word(b), 0u)",
        _ => "vec2<u32>({p}_word(b) >> (unit % 2u * 2u), 0u)",
    };
    let plane1 = |position: &str| match bits {
        2 => "0u".to_string(),
        _ => format!("{{p}}_plane1_word({position})"),
    };
    let fetch = format!(
        "struct {{p}}_Unit {{
    a: vec4<u32>,
    b: vec2<u32>,
}}
alias {{p}}_At = vec2<u32>;
fn {{p}}_at(base: u32, c4: u32) -> {{p}}_At {{
    return base + vec2<u32>({{p}}_plane2_word(0u, c4 * 4u), {});
}}
fn {{p}}_fetch(at: {{p}}_At, unit: u32) -> {{p}}_Unit {{
    let token = unit / 4u * 64u + unit % 4u * 2u;
    let a = at.x + {{p}}_plane2_word(token, 0u) - {{p}}_plane2_word(0u, 0u);
    let b = at.y + {} - {};
    return {{p}}_Unit({}, {b});
}}
",
        plane1("0u, c4 * 4u"),
        plane1("token, 0u"),
        plane1("0u, 0u"),
        words(words_of_unit, "a"),
    );
    fetch + &v_values(tokens, &[value(0), value(1), value(2), value(3)])
}

/// V of 4 bits: as above, in words of eight codes.
fn v4(tokens: usize) -> String {
    let words_of_unit = tokens.min(64) / 16;
    let value = |k: usize, word: &str| {
        let high = if words_of_unit == 1 { "at / 2u" } else { "at / 2u % 2u" };
        format!("{{p}}_lookup({word}, 0u, 0u, 2u * ({high}) + {}u)", k % 2 * 4)
    };
    let (a, b) = match words_of_unit {
        4 => {
            ("{p}_slab[at / 4u]".to_string(), "{p}_slab[(at + {p}_plane4_word(0u, 2u) - {p}_plane4_word(0u, 0u)) / 4u]")
        }
        2 => ("{p}_slab[at / 4u]".to_string(), "vec4<u32>(0u)"),
        _ => (words(2, "at"), "vec4<u32>(0u)"),
    };
    let fetch = format!(
        "struct {{p}}_Unit {{
    a: vec4<u32>,
    b: vec4<u32>,
}}
alias {{p}}_At = u32;
fn {{p}}_at(base: u32, c4: u32) -> {{p}}_At {{ return base + {{p}}_plane4_word(0u, c4 * 4u); }}
fn {{p}}_fetch(column: {{p}}_At, unit: u32) -> {{p}}_Unit {{
    let at = column + {{p}}_plane4_word(unit / 4u * 64u + unit % 4u * 2u, 0u) - {{p}}_plane4_word(0u, 0u);
    return {{p}}_Unit({a}, {b});
}}
"
    );
    // A look-up gives tokens x and x + 1 (x even).
    let word = |k: usize| match words_of_unit {
        4 => format!("unit.{}[at / 4u * 2u + at % 2u]", if k < 2 { "a" } else { "b" }),
        2 => format!("unit.a[{}u + at % 2u]", k / 2 * 2),
        _ => format!("unit.a[{}u]", k / 2),
    };
    let values: Vec<String> = (0..4).map(|k| value(k, &word(k))).collect();
    let twins = format!(
        "fn {{p}}_twins(unit: {{p}}_Unit, at: u32) -> Twins {{
    return Twins({}, {}, {}, {});
}}
",
        values[0], values[1], values[2], values[3]
    );
    // at: of 64 tokens, T/16 % 2 + 2 · (x/8) + 4 · (T/32); of 16, 2 · (x/8).
    let token = match tokens {
        16 => "at % 2u + at / 2u * 8u",
        _ => "at % 2u + at / 2u % 2u * 16u + at / 4u % 2u * 8u + at / 8u * 32u",
    };
    let twins = if tokens == 16 { twins.replace("at / 2u", "at") } else { twins };
    fetch + &twins + &v_token(token)
}

/// The values of a unit of 2 or 3 bits. A look-up gives tokens T and T + 16; of pages of 16, channels c and c + 2.
fn v_values(tokens: usize, values: &[String; 4]) -> String {
    let [v0, v1, v2, v3] = values;
    match tokens {
        16 => {
            format!(
                "fn {{p}}_quad(unit: {{p}}_Unit, at: u32, quad: u32) -> vec4<f32> {{
    return vec4<f32>(vec4<stored>({v0}.x, {v1}.x, {v2}.y, {v3}.y));
}}
#if V_HALF
fn {{p}}_halves(unit: {{p}}_Unit, at: u32, quad: u32) -> Halves {{ return Halves({v0}, {v1}); }}
#endif
"
            ) + &v_token("at % 2u + at / 2u * 8u")
        }
        _ => {
            format!(
                "fn {{p}}_twins(unit: {{p}}_Unit, at: u32) -> Twins {{
    return Twins({v0}, {v1}, {v2}, {v3});
}}
"
            ) + &v_token("at / 8u * 32u + at % 2u * 16u + at / 2u % 2u + at / 4u % 2u * 8u")
        }
    }
}

fn v_token(expression: &str) -> String {
    format!(
        "fn {{p}}_token(unit: u32, at: u32) -> u32 {{ return unit / 4u * 64u + unit % 4u * 2u + {expression}; }}
"
    )
}
