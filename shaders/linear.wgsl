// y[row][out] (+)= sum of w[out][column] * x[row][column]. x is read 4 columns at a time.

fn x_at(row: u32) -> u32 {
    return (params.x_offset + row * params.x_stride) >> 2u;
}

fn put(row: u32, out: u32, sum: f32) {
    if (row < params.rows && out < params.outs) {
        let at = params.y_offset + row * params.y_stride + out;
#if ACCUMULATE
        y[at] = y[at] + sum;
#else
        y[at] = sum;
#endif
    }
}

#if ROW_TILE == 64
// Many rows. A workgroup of 256 threads makes a tile of 64 rows and 64 outputs, 32 columns at a time: every
// thread brings one unit of weights and one of x to workgroup memory and sums 4 x 4 of the products.
// A tile's row has 8 vectors of 4 columns; vector v of row r stands at place v ^ (r & 7), so that threads on
// neighbouring rows meet different banks. The two tiles are 16 KiB.

#unzeroed
var<workgroup> x_tile: array<vec4<f32>, 512>;
var<workgroup> w_tile: array<vec4<f32>, 512>;

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
    let out_tiles = (params.outs + 63u) / 64u;
    let first_row = (group / out_tiles) * 64u;
    let first_out = (group % out_tiles) * 64u;

    // What this thread loads: unit `unit` of a row of each tile.
    let lane = thread >> 2u;
    let unit = thread & 3u;
    let load_out = min(first_out + lane, params.outs - 1u);
    let load_x = x_at(min(first_row + lane, params.rows - 1u));
    let low_place = lane * 8u + (((unit_column(unit)) >> 2u) ^ (lane & 7u));
    let high_place = lane * 8u + (((unit_column(unit) + UNIT_GAP) >> 2u) ^ (lane & 7u));

    // What it sums: rows tile_row + 16 i, outputs tile_out + 16 j.
    let tile_out = thread & 15u;
    let tile_row = thread >> 4u;
    var sum0 = vec4<f32>();
    var sum1 = vec4<f32>();
    var sum2 = vec4<f32>();
    var sum3 = vec4<f32>();
    for (var first = 0u; first < params.units; first += 4u) {
        var weights = Unit(vec4<f32>(), vec4<f32>());
        var x_low = vec4<f32>();
        var x_high = vec4<f32>();
        if (first + unit < params.units) {
            weights = unit_at(load_out, first + unit);
            let column = unit_column(first + unit);
            x_low = x[load_x + (column >> 2u)];
            x_high = x[load_x + ((column + UNIT_GAP) >> 2u)];
        }
        w_tile[low_place] = weights.low;
        w_tile[high_place] = weights.high;
        x_tile[low_place] = x_low;
        x_tile[high_place] = x_high;
        workgroupBarrier();
        // 16 rows apart leaves the low three bits of a row, so one place serves all four.
        for (var v = 0u; v < 8u; v++) {
            let w_place = tile_out * 8u + (v ^ (tile_out & 7u));
            let x_place = tile_row * 8u + (v ^ (tile_row & 7u));
            let w0 = w_tile[w_place];
            let w1 = w_tile[w_place + 128u];
            let w2 = w_tile[w_place + 256u];
            let w3 = w_tile[w_place + 384u];
            let x0 = x_tile[x_place];
            let x1 = x_tile[x_place + 128u];
            let x2 = x_tile[x_place + 256u];
            let x3 = x_tile[x_place + 384u];
            sum0 += vec4<f32>(dot(x0, w0), dot(x0, w1), dot(x0, w2), dot(x0, w3));
            sum1 += vec4<f32>(dot(x1, w0), dot(x1, w1), dot(x1, w2), dot(x1, w3));
            sum2 += vec4<f32>(dot(x2, w0), dot(x2, w1), dot(x2, w2), dot(x2, w3));
            sum3 += vec4<f32>(dot(x3, w0), dot(x3, w1), dot(x3, w2), dot(x3, w3));
        }
        workgroupBarrier();
    }
    let row = first_row + tile_row;
    let out = first_out + tile_out;
    put(row, out, sum0.x);
    put(row, out + 16u, sum0.y);
    put(row, out + 32u, sum0.z);
    put(row, out + 48u, sum0.w);
    put(row + 16u, out, sum1.x);
    put(row + 16u, out + 16u, sum1.y);
    put(row + 16u, out + 32u, sum1.z);
    put(row + 16u, out + 48u, sum1.w);
    put(row + 32u, out, sum2.x);
    put(row + 32u, out + 16u, sum2.y);
    put(row + 32u, out + 32u, sum2.z);
    put(row + 32u, out + 48u, sum2.w);
    put(row + 48u, out, sum3.x);
    put(row + 48u, out + 16u, sum3.y);
    put(row + 48u, out + 32u, sum3.z);
    put(row + 48u, out + 48u, sum3.w);
}
#else
// Few rows. LANES threads share two neighbouring outputs and stride over the units of their weights; every unit
// meets ROW_TILE rows of x; sums meet in workgroup memory.

#if ROW_TILE == 1
alias Sum = f32;
#else
alias Sum = vec4<f32>;
#endif

const OUT_TILE: u32 = WORKGROUP / LANES * 2u;

#unzeroed
var<workgroup> sums0: array<Sum, WORKGROUP>;
var<workgroup> sums1: array<Sum, WORKGROUP>;

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
    let out_tiles = (params.outs + OUT_TILE - 1u) / OUT_TILE;
    let row = (group / out_tiles) * ROW_TILE;
    let lane = thread % LANES;
    let out = (group % out_tiles) * OUT_TILE + (thread / LANES) * 2u;

    // Rows and outputs past the end repeat the last one and are not written.
    let out0 = min(out, params.outs - 1u);
    let out1 = min(out + 1u, params.outs - 1u);
    let at0 = x_at(row);
#if ROW_TILE == 4
    let at1 = x_at(min(row + 1u, params.rows - 1u));
    let at2 = x_at(min(row + 2u, params.rows - 1u));
    let at3 = x_at(min(row + 3u, params.rows - 1u));
#endif
    var sum0 = Sum();
    var sum1 = Sum();
    for (var unit = lane; unit < params.units; unit += LANES) {
        let a = unit_at(out0, unit);
        let b = unit_at(out1, unit);
        let low = unit_column(unit) >> 2u;
        let high = (unit_column(unit) + UNIT_GAP) >> 2u;
        let low0 = x[at0 + low];
        let high0 = x[at0 + high];
#if ROW_TILE == 1
        sum0 += dot(a.low, low0) + dot(a.high, high0);
        sum1 += dot(b.low, low0) + dot(b.high, high0);
#else
        let low1 = x[at1 + low];
        let high1 = x[at1 + high];
        let low2 = x[at2 + low];
        let high2 = x[at2 + high];
        let low3 = x[at3 + low];
        let high3 = x[at3 + high];
        sum0 += vec4<f32>(dot(a.low, low0), dot(a.low, low1), dot(a.low, low2), dot(a.low, low3));
        sum0 += vec4<f32>(dot(a.high, high0), dot(a.high, high1), dot(a.high, high2), dot(a.high, high3));
        sum1 += vec4<f32>(dot(b.low, low0), dot(b.low, low1), dot(b.low, low2), dot(b.low, low3));
        sum1 += vec4<f32>(dot(b.high, high0), dot(b.high, high1), dot(b.high, high2), dot(b.high, high3));
#endif
    }
    sums0[thread] = sum0;
    sums1[thread] = sum1;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        if (lane < half) {
            sums0[thread] = sums0[thread] + sums0[thread + half];
            sums1[thread] = sums1[thread] + sums1[thread + half];
        }
        workgroupBarrier();
    }
    if (lane == 0u) {
        let total0 = sums0[thread];
        let total1 = sums1[thread];
#if ROW_TILE == 1
        put(row, out, total0);
        put(row, out + 1u, total1);
#else
        put(row, out, total0.x);
        put(row, out + 1u, total1.x);
        put(row + 1u, out, total0.y);
        put(row + 1u, out + 1u, total1.y);
        put(row + 2u, out, total0.z);
        put(row + 2u, out + 1u, total1.z);
        put(row + 3u, out, total0.w);
        put(row + 3u, out + 1u, total1.w);
#endif
    }
}
#endif
