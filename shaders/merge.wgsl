// One softmax over an entry's partial states: their maximum, their weighted sum, the sink's logit, then out
// of the basis of V, mean back. One workgroup takes one query head of one row.

const_assert ((WORKGROUP & (WORKGROUP - 1u)) == 0u);
const BASIS_MAX: u32 = V_DIM;
const STRIDE: u32 = V_DIM + 4u;
const EMPTY: f32 = -3.4028234663852886e38;
// Channels of a thread, and threads that share a channel's partials.
const OWN: u32 = (V_DIM + WORKGROUP - 1u) / WORKGROUP;
const SLICES: u32 = max(1u, WORKGROUP / V_DIM);

#include "lib/hadamard_block.wgsl"
#if MAP
#include "lib/map_block.wgsl"
#endif

// Floats of a KV head's calibrated mean and maps.
const RECORD: u32 = select(V_DIM, V_DIM + 2u * V_DIM * V_DIM, MAP);

#unzeroed
// Scratch of reductions; then weights of WORKGROUP partials and where they start.
var<workgroup> scratch: array<f32, WORKGROUP>;
var<workgroup> starts: array<u32, WORKGROUP>;

// First float of the state of this row and head in the `index`th listed partial.
fn state_at(list: u32, index: u32, vector: u32) -> u32 {
    return (tables[list + index] + vector) * STRIDE;
}

// Whether a state saw a key: its sum is not zero, by its bits, so that NaN counts as seen.
fn seen(l: f32) -> bool {
    return (bitcast<u32>(l) & 0x7fffffffu) != 0u;
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
    let row = group / Q_HEADS;
    let head = group % Q_HEADS;
    let row_at = params.rows_at + row * 4u;
    let list_at = params.lists_at + (tables[row_at + 1u] * KV_HEADS + head / GROUP) * 2u;
    let list = tables[list_at];
    let count = tables[list_at + 1u];
    let vector = tables[row_at + 2u] * GROUP + head % GROUP;

    var most = EMPTY;
    for (var i = lid; i < count; i += WORKGROUP) {
        let at = state_at(list, i, vector);
        if (seen(partials[at + 1u])) {
            most = max(most, partials[at]);
        }
    }
    scratch[lid] = most;
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lid < half) {
            scratch[lid] = max(scratch[lid], scratch[lid + half]);
        }
    }
    workgroupBarrier();
    most = scratch[0];

    // Sums over the partials, WORKGROUP at a time: weights by threads, then channels by threads.
    let slice = select(0u, lid / V_DIM, SLICES > 1u);
    let channel = select(lid, lid % V_DIM, SLICES > 1u);
    var sum: array<f32, OWN>;
    for (var o = 0u; o < OWN; o++) {
        sum[o] = 0.0;
    }
    var own_l = 0.0;
    for (var first = 0u; first < count; first += WORKGROUP) {
        workgroupBarrier();
        if (first + lid < count) {
            let at = state_at(list, first + lid, vector);
            let l = partials[at + 1u];
            let weight = select(0.0, exp(partials[at] - most), seen(l));
            own_l += weight * l;
            scratch[lid] = weight;
            starts[lid] = at + 4u;
        }
        workgroupBarrier();
        let here = min(WORKGROUP, count - first);
        if (slice < SLICES) {
            for (var i = slice; i < here; i += SLICES) {
                for (var o = 0u; o < OWN; o++) {
                    let c = channel + o * WORKGROUP;
                    if (c < V_DIM) {
                        sum[o] += scratch[i] * partials[starts[i] + c];
                    }
                }
            }
        }
    }
    workgroupBarrier();
    scratch[lid] = own_l;
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lid < half) {
            scratch[lid] += scratch[lid + half];
        }
    }
    workgroupBarrier();
    let keys = scratch[0];

    // The slices' sums meet in basis_row, one slice after another: a fixed order.
    for (var s = 0u; s < SLICES; s++) {
        workgroupBarrier();
        if (slice == s) {
            for (var o = 0u; o < OWN; o++) {
                let c = channel + o * WORKGROUP;
                if (c < V_DIM) {
                    var before = 0.0;
                    if (s > 0u) {
                        before = basis_row[c];
                    }
                    basis_row[c] = sum[o] + before;
                }
            }
        }
    }

    // Weights of keys add up to `share` of the whole: less than 1 beside a sink.
    let some = seen(keys);
    var factor = 1.0 / select(1.0, keys, some);
    var share = 1.0;
#if SINK
    let sink = sinks[head];
    let top = max(most, sink);
    let shrink = exp(most - top);
    let whole = keys * shrink + exp(sink - top);
    factor = shrink / whole;
    share = keys * factor;
#endif
#if ROTATE
    hadamard_transform(lid, V_DIM);
#elif MAP
    map_transform(lid, V_DIM, head / GROUP * RECORD + V_DIM + V_DIM * V_DIM);
#else
    workgroupBarrier();
#endif
#if MEAN
    let mean_at = tables[row_at + 3u] * params.mean_stride + params.mean_layer_at
        + head / GROUP * (K_DIM + V_DIM) + K_DIM;
#endif
    let to = params.out_offset + row * params.out_stride + head * V_DIM;
    for (var c = lid; c < V_DIM; c += WORKGROUP) {
        var x = basis_row[c] * factor;
#if ROTATE
        x *= hadamard_sign(c);
#endif
#if MEAN
        x += share * means[mean_at + c];
#elif FIXED
        x += share * maps[head / GROUP * RECORD + c];
#endif
        out[to + c] = select(0.0, x, some);
    }
}
