// Turns pairs of a head by the table's angle; one thread a pair.

const HALF: u32 = ROTARY_DIM / 2u;

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = group_index(id, count);
    if (group >= params.groups) {
        return;
    }
    let item = group * WORKGROUP + thread;
    let pair = item % HALF;
    let head = (item / HALF) % params.heads;
    let row = item / HALF / params.heads;
    if (row >= params.rows) {
        return;
    }
    let head_at = params.x_offset + row * params.x_stride + head * DIM;
#if ADJACENT
    let low = head_at + 2u * pair;
    let high = low + 1u;
#else
    let low = head_at + pair;
    let high = low + HALF;
#endif
    let turn = 2u * (row * HALF + pair);
    let cosine = table[turn];
    let sine = table[turn + 1u];
    let a = x[low];
    let b = x[high];
    x[low] = a * cosine - b * sine;
    x[high] = a * sine + b * cosine;
}
