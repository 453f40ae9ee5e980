// Number formats in portable WGSL: no f16 extension, no f32 subnormals, no reliance on how a device
// rounds a conversion or treats NaN. The CPU twins of these functions stand in src/num.

// Comparisons such as x != x may be compiled away under fast-math; the exponent's bits may not.
fn is_nan_bits(bits: u32) -> bool {
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

// The f16 nearest to x (ties to even), saturated at +-65504; NaN becomes 0x7e00. In integers, since
// devices may round pack2x16float either way and flush f16 subnormals.
fn f16_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let a = min(bits & 0x7fffffffu, 0x477fe000u);
    let normal = ((a + 0xfffu + ((a >> 13u) & 1u)) >> 13u) - 0x1c000u;
    let m = (a & 0x7fffffu) | 0x800000u;
    let s = min(126u - min(a >> 23u, 112u), 25u);
    let tiny = (m + (1u << (s - 1u)) - 1u + ((m >> s) & 1u)) >> s;
    return select(sign | select(normal, tiny, a < 0x38800000u), 0x7e00u, is_nan_bits(bits));
}

fn f16_pack(v: vec2<f32>) -> u32 {
    return f16_bits(v.x) | (f16_bits(v.y) << 16u);
}

fn f16_unpack(w: u32) -> vec2<f32> {
    return unpack2x16float(w);
}

// The value of f16 bits of a finite number, exact: devices may flush f16 subnormals in f16_unpack.
fn f16_value(bits: u32) -> f32 {
    let m = bits & 0x7fffu;
    let normal = bitcast<f32>((m << 13u) + 0x38000000u);
    let x = select(normal, f32(m) * 5.9604644775390625e-8, m < 0x400u);
    return select(x, -x, (bits & 0x8000u) != 0u);
}

// The bf16 nearest to x (ties to even); NaN becomes 0x7fc0.
fn bf16_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    return select((bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u, 0x7fc0u, is_nan_bits(bits));
}

fn bf16_pack(v: vec2<f32>) -> u32 {
    return bf16_bits(v.x) | (bf16_bits(v.y) << 16u);
}

fn bf16_unpack(w: u32) -> vec2<f32> {
    return bitcast<vec2<f32>>(vec2<u32>(w << 16u, w & 0xffff0000u));
}

// Four e4m3 codes of a word, lowest byte first. 0x7f and 0xff, which pages never hold, read as +-480.
fn e4m3_decode4(word: u32) -> vec4<f32> {
    let b = vec4<u32>(word, word >> 8u, word >> 16u, word >> 24u);
    let m = b & vec4<u32>(0x7fu);
    let normal = bitcast<vec4<f32>>((m << vec4<u32>(20u)) + vec4<u32>(0x3c000000u));
    let tiny = vec4<f32>(m) * 0.001953125;
    let magnitude = bitcast<vec4<u32>>(select(normal, tiny, m < vec4<u32>(8u)));
    return bitcast<vec4<f32>>(magnitude | ((b & vec4<u32>(0x80u)) << vec4<u32>(24u)));
}

// The e4m3 code nearest to x (ties to even), saturated at +-448; NaN becomes 0 (a page's scale
// carries it).
fn e4m3_encode(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 24u) & 0x80u;
    let a = min(bits & 0x7fffffffu, 0x43e00000u);
    let normal = ((a + 0x7ffffu + ((a >> 20u) & 1u)) >> 20u) - 0x3c0u;
    let m = (a & 0x7fffffu) | 0x800000u;
    let s = min(141u - min(a >> 23u, 120u), 25u);
    let tiny = (m + (1u << (s - 1u)) - 1u + ((m >> s) & 1u)) >> s;
    return select(sign | select(normal, tiny, a < 0x3c800000u), 0u, is_nan_bits(bits));
}

fn e4m3_encode4(v: vec4<f32>) -> u32 {
    return e4m3_encode(v.x) | (e4m3_encode(v.y) << 8u) | (e4m3_encode(v.z) << 16u) | (e4m3_encode(v.w) << 24u);
}

// 1/x correctly rounded, for x from 2^-125 to 2^125: WGSL's division may be 2.5 ulp off, which
// would round some codes otherwise than the CPU does. Long division, one bit of quotient a step.
fn f32_reciprocal(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let e = (bits >> 23u) & 0xffu;
    let m = (bits & 0x7fffffu) | 0x800000u;
    var q = 0u;
    var r = 0x800000u;
    for (var i = 0u; i < 24u; i += 1u) {
        r = r << 1u;
        let fits = r >= m;
        r = select(r, r - m, fits);
        q = (q << 1u) | select(0u, 1u, fits);
    }
    // A tie would need a power of two with an odd factor.
    q = q + select(0u, 1u, 2u * r > m);
    let quotient = ((253u - e) << 23u) + (q - 0x800000u);
    return bitcast<f32>(select(quotient, (254u - e) << 23u, m == 0x800000u));
}

// x/127 correctly rounded, for x from 2^-110: its 24 bits of quotient by whole numbers. 127 leaves no ties.
fn f32_127th(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let m = (bits & 0x7fffffu) | 0x800000u;
    let k = select(7u, 6u, (m << 7u) / 127u >= 0x1000000u);
    let n = m << k;
    let q = n / 127u;
    let r = n - q * 127u;
    return bitcast<f32>(((((bits >> 23u) & 0xffu) - k) << 23u) + (q - 0x800000u) + select(0u, 1u, 2u * r > 127u));
}
