// Widens the box of a page by the keys that a step appends to it. One workgroup takes one page; a thread owns channels.
// All in integers: what contains every key may depend neither on a device's rounding nor on its subnormals.

#include "lib/plane.wgsl"

// Magnitude bits of an f32 to those of an f16 that is not smaller. No subnormals: readers may flush them.
fn magnitude_up(a: u32) -> u32 {
    let normal = select(((a + 0x1fffu) >> 13u) - 0x1c000u, 0x400u, a <= 0x38800000u);
    return select(select(normal, 0u, a == 0u), 0x7c00u, a > 0x477fe000u);
}

// To those of one that is not larger.
fn magnitude_down(a: u32) -> u32 {
    let normal = select((a >> 13u) - 0x1c000u, 0u, a < 0x38800000u);
    return select(select(normal, 0x7bffu, a > 0x477fe000u), 0x7c00u, a >= 0x7f800000u);
}

// f16 bits in the order of their values, and back. NaN, always 0x7e00, stands above everything.
fn ordered(h: u32) -> u32 {
    return h ^ select(0x8000u, 0xffffu, (h & 0x8000u) != 0u);
}

fn unordered(key: u32) -> u32 {
    return key ^ select(0xffffu, 0x8000u, (key & 0x8000u) != 0u);
}

fn with_sign(magnitude: u32, negative: bool) -> u32 {
    return select(magnitude, magnitude | 0x8000u, negative && magnitude != 0u);
}

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(id, groups);
    if (group >= params.groups) {
        return;
    }
    let work = plane_work(group);
    if (!work.live) {
        return;
    }
    for (var c = lid; c < K_DIM; c += WORKGROUP) {
        var low = 0xffffu;
        var high = 0u;
        if (!work.fresh) {
            let old = planes[work.record + c];
            low = ordered(old & 0xffffu);
            high = ordered(old >> 16u);
        }
        for (var r = 0u; r < work.rows; r++) {
            let bits = k_in[work.k_at + r * params.k_stride + c];
            let a = bits & 0x7fffffffu;
            let negative = bits != a;
            let up = magnitude_up(a);
            let down = magnitude_down(a);
            let below = select(with_sign(select(down, up, negative), negative), 0x7e00u, a > 0x7f800000u);
            let above = select(with_sign(select(up, down, negative), negative), 0x7e00u, a > 0x7f800000u);
            low = min(low, ordered(below));
            high = max(high, ordered(above));
        }
        let word = unordered(low) | (unordered(high) << 16u);
        planes[work.record + c] = select(word, 0x7e007e00u, high > 0xfc00u);
    }
}
