// Copies slots within a slab, for copy-on-write. One workgroup takes one slot; no slot may be both a source
// and a destination of one dispatch.

const UNITS: u32 = WORDS / 4u;

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
    let source = tables[at] * UNITS;
    let goal = tables[at + 1u] * UNITS;
    for (var i = lid; i < UNITS; i += WORKGROUP) {
        slab[goal + i] = slab[source + i];
    }
}
