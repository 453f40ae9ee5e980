// Stored weights in units of 8 columns. The kernel has constants WEIGHT (ggml's type number) and COLUMNS (of a
// row), and the binding `w: array<u32>`.
//
// A unit is two runs of 4 columns: `low` from unit_column(unit) on, `high` UNIT_GAP further.

struct Unit {
    low: vec4<f32>,
    high: vec4<f32>,
}

const UNITS: u32 = COLUMNS / 8u;
const BLOCKS: u32 = COLUMNS / 32u;

fn nibbles(word: u32) -> vec4<f32> {
    return vec4<f32>(vec4<u32>(word, word >> 8u, word >> 16u, word >> 24u) & vec4<u32>(15u));
}

fn signed_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4<i32>(bitcast<i32>(word)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

// The 16 bits at half-word `at`.
fn half_at(at: u32) -> f32 {
    return unpack2x16float(w[at >> 1u] >> (16u * (at & 1u))).x;
}

// The 32 bits from half-word `at` on. Does not read past the word that holds the last of them.
fn word_at(at: u32) -> u32 {
    let first = w[at >> 1u];
    let next = w[(at + 1u) >> 1u];
    return select(first, (first >> 16u) | (next << 16u), (at & 1u) == 1u);
}

#if WEIGHT == 2
// Q4_0: f16 d, 16 bytes.
const UNIT_GAP: u32 = 16u;

fn unit_column(unit: u32) -> u32 {
    return (unit >> 2u) * 32u + (unit & 3u) * 4u;
}

fn unit_at(row: u32, unit: u32) -> Unit {
    let block = (row * BLOCKS + (unit >> 2u)) * 9u;
    let d = half_at(block);
    let q = word_at(block + 1u + 2u * (unit & 3u));
    return Unit((nibbles(q) - vec4<f32>(8.0)) * d, (nibbles(q >> 4u) - vec4<f32>(8.0)) * d);
}
#elif WEIGHT == 3
// Q4_1: f16 d, f16 m, 16 bytes.
const UNIT_GAP: u32 = 16u;

fn unit_column(unit: u32) -> u32 {
    return (unit >> 2u) * 32u + (unit & 3u) * 4u;
}

fn unit_at(row: u32, unit: u32) -> Unit {
    let block = (row * BLOCKS + (unit >> 2u)) * 5u;
    let scale = unpack2x16float(w[block]);
    let q = w[block + 1u + (unit & 3u)];
    return Unit(nibbles(q) * scale.x + vec4<f32>(scale.y), nibbles(q >> 4u) * scale.x + vec4<f32>(scale.y));
}
#elif WEIGHT == 8
// Q8_0: f16 d, 32 signed bytes.
const UNIT_GAP: u32 = 4u;

fn unit_column(unit: u32) -> u32 {
    return unit * 8u;
}

fn unit_at(row: u32, unit: u32) -> Unit {
    let block = (row * BLOCKS + (unit >> 2u)) * 17u;
    let d = half_at(block);
    let q = block + 1u + 4u * (unit & 3u);
    return Unit(signed_bytes(word_at(q)) * d, signed_bytes(word_at(q + 2u)) * d);
}
#elif WEIGHT == 1
// F16.
const UNIT_GAP: u32 = 4u;

fn unit_column(unit: u32) -> u32 {
    return unit * 8u;
}

fn unit_at(row: u32, unit: u32) -> Unit {
    let at = (row * UNITS + unit) * 4u;
    return Unit(
        vec4<f32>(unpack2x16float(w[at]), unpack2x16float(w[at + 1u])),
        vec4<f32>(unpack2x16float(w[at + 2u]), unpack2x16float(w[at + 3u])),
    );
}
#elif WEIGHT == 1000
// Ours: an f32 scale for each half, an f32 offset, 32 signed bytes.
const UNIT_GAP: u32 = 4u;

fn unit_column(unit: u32) -> u32 {
    return unit * 8u;
}

fn unit_at(row: u32, unit: u32) -> Unit {
    let block = (row * BLOCKS + (unit >> 2u)) * 11u;
    let in_block = unit & 3u;
    let d = bitcast<f32>(w[block + (in_block >> 1u)]);
    let m = vec4<f32>(bitcast<f32>(w[block + 2u]));
    let q = block + 3u + 2u * in_block;
    return Unit(signed_bytes(w[q]) * d + m, signed_bytes(w[q + 1u]) * d + m);
}
#elif WEIGHT == 30
// BF16.
const UNIT_GAP: u32 = 4u;

fn unit_column(unit: u32) -> u32 {
    return unit * 8u;
}

fn upper_halves(a: u32, b: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(a << 16u, a & 0xffff0000u, b << 16u, b & 0xffff0000u));
}

fn unit_at(row: u32, unit: u32) -> Unit {
    let at = (row * UNITS + unit) * 4u;
    return Unit(upper_halves(w[at], w[at + 1u]), upper_halves(w[at + 2u], w[at + 3u]));
}
#else
// F32.
const UNIT_GAP: u32 = 4u;

fn unit_column(unit: u32) -> u32 {
    return unit * 8u;
}

fn unit_at(row: u32, unit: u32) -> Unit {
    let at = (row * UNITS + unit) * 8u;
    return Unit(
        bitcast<vec4<f32>>(vec4<u32>(w[at], w[at + 1u], w[at + 2u], w[at + 3u])),
        bitcast<vec4<f32>>(vec4<u32>(w[at + 4u], w[at + 5u], w[at + 6u], w[at + 7u])),
    );
}
#endif

