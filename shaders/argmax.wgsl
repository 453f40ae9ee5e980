// Index of the largest value of a row; the lowest of equal ones; 0xffffffff when the row holds a NaN.
// One workgroup a row. All comparisons are of integers.

#unzeroed
var<workgroup> keys: array<u32, WORKGROUP>;
var<workgroup> places: array<u32, WORKGROUP>;

const NAN_KEY: u32 = 0xffffffffu;

// Larger floats have larger keys; both zeros have one; a NaN's is above that of infinity.
fn order_key(bits: u32) -> u32 {
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return NAN_KEY;
    }
    return select(0x80000000u | magnitude, 0x80000000u - magnitude, bits != magnitude);
}

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = group_index(id, count);
    if (row >= params.groups) {
        return;
    }
    let start = params.logits_offset + row * params.logits_stride;
    // No float has key 0: a thread without values never wins.
    var key = 0u;
    var place = 0u;
    for (var i = thread; i < params.width; i += WORKGROUP) {
        let next = order_key(logits[start + i]);
        if (next > key) {
            key = next;
            place = i;
        }
    }
    keys[thread] = key;
    places[thread] = place;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        if (thread < half) {
            let other = keys[thread + half];
            let other_place = places[thread + half];
            if (other > keys[thread] || (other == keys[thread] && other_place < places[thread])) {
                keys[thread] = other;
                places[thread] = other_place;
            }
        }
        workgroupBarrier();
    }
    if (thread == 0u) {
        out[params.out_offset + row] = select(places[0], NAN_KEY, keys[0] == NAN_KEY);
    }
}
