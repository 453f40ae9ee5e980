// Stores new rows of K and V: minus the mean, rotated or mapped, encoded, into the slots of open pages.
// One workgroup takes one side of one KV head of one item.

const BASIS_MAX: u32 = max(K_DIM, V_DIM);

#codec_store k
#codec_store v
#include "lib/hadamard_block.wgsl"
#if K_MAP
#include "lib/map_block.wgsl"
#elif V_MAP
#include "lib/map_block.wgsl"
#endif

// Floats of a KV head's calibrated mean and maps.
const K_RECORD: u32 = select(K_DIM, K_DIM + 2u * K_DIM * K_DIM, K_MAP);
const V_RECORD: u32 = select(V_DIM, V_DIM + 2u * V_DIM * V_DIM, V_MAP);

// Channels 4*c4 to 4*c4 + 3 of the row in workgroup memory.
fn basis4(c4: u32) -> vec4<f32> {
    let c = c4 * 4u;
    return vec4<f32>(basis_row[c], basis_row[c + 1u], basis_row[c + 2u], basis_row[c + 3u]);
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
    let side = group % 2u;
    let head = group / 2u % KV_HEADS;
    let item = params.items_at + group / (2u * KV_HEADS) * 4u;
    let row = tables[item];
    let token = tables[item + 1u];
    let page = tables[tables[item + 2u] + head];
    // This head's page is of another class: another dispatch writes it.
    if (page == 0xffffffffu) {
        return;
    }
    let desc = page * 8u;
    let mean_slot = tables[params.rows_at + row * 4u + 3u];
    let mean_at = mean_slot * params.mean_stride + params.mean_layer_at + head * (K_DIM + V_DIM);

    if (side == 0u) {
        let at = params.k_offset + row * params.k_stride + head * K_DIM;
        for (var c = lid; c < K_DIM; c += WORKGROUP) {
            var x = k_in[at + c];
#if K_MEAN
            x -= means[mean_at + c];
#elif K_FIXED
            x -= maps[head * K_RECORD + c];
#endif
#if K_ROTATE
            x *= hadamard_sign(c);
#endif
            basis_row[c] = x;
        }
#if K_ROTATE
        hadamard_transform(lid, K_DIM);
#elif K_MAP
        map_transform(lid, K_DIM, head * K_RECORD + K_DIM);
#else
        workgroupBarrier();
#endif
        let base = descs[desc + 4u] * K_WORDS;
        for (var c4 = lid; c4 < K_DIM / 4u; c4 += WORKGROUP) {
            k_store4(base, token, c4, basis4(c4));
        }
    } else {
        let at = params.v_offset + row * params.v_stride + head * V_DIM;
        for (var c = lid; c < V_DIM; c += WORKGROUP) {
            var x = v_in[at + c];
#if V_MEAN
            x -= means[mean_at + K_DIM + c];
#elif V_FIXED
            x -= maps[V_REGION + head * V_RECORD + c];
#endif
#if V_ROTATE
            x *= hadamard_sign(c);
#endif
            basis_row[c] = x;
        }
#if V_ROTATE
        hadamard_transform(lid, V_DIM);
#elif V_MAP
        map_transform(lid, V_DIM, V_REGION + head * V_RECORD + V_DIM);
#else
        workgroupBarrier();
#endif
        let base = descs[desc + 5u] * V_WORDS;
        for (var c4 = lid; c4 < V_DIM / 4u; c4 += WORKGROUP) {
            v_store4(base, token, c4, basis4(c4));
        }
    }
}
