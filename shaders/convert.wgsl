// Converts a page side from one format to another: sealing and demotion. One workgroup takes one page side.

#codec_encode dst

var<private> source_base: u32;
var<private> source_valid: u32;

// What the encoder reads; tokens that do not exist enter as zeros, whatever the source holds there.
fn source4(token: u32, c4: u32) -> vec4<f32> {
    if (token >= source_valid) {
        return vec4<f32>(0.0);
    }
    return src_load4(source_base, token, c4) * src_scale(source_base, token);
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
    let at = params.items_at + group * 4u;
    source_base = tables[at] * SRC_WORDS;
    source_valid = tables[at + 2u];
#if FROM_PARTS
    src_part1 = tables[at + 3u] * SRC1_WORDS - SRC_WORDS;
#endif
#if TO_PARTS
    dst_part1 = tables[at + 3u] * DST1_WORDS - DST_WORDS;
#endif
    dst_encode_page(tables[at + 1u] * DST_WORDS, lid);
}
