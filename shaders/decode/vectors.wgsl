// Of decode.wgsl: its queries, its weights in f16, finished logits, and outputs.

// Two channels of a query vector, in the order of K's units, padding as 0.
fn query_pair(at: u32, unit: u32, which: u32, down: f32) -> vec2<f32> {
    let c = k_channels(unit, which);
    let x = vec2<f32>(q[at + min(c.x, K_DIM - 1u)], q[at + min(c.y, K_DIM - 1u)]);
    return select(vec2<f32>(0.0), x * down, c < vec2<u32>(K_DIM));
}

// Query vectors, positions and biases of a chunk; those past the item's end get row 0's and no result.
fn load_queries(item: Item, chunk: u32, count: u32, lid: u32) {
    for (var i = lid; i < K_UNITS * K_STEPS * CHUNK; i += WORKGROUP) {
        let v = chunk + i % CHUNK;
        let step = i / CHUNK;
        let unit = step / K_STEPS;
#if HALF
        let first = step % K_STEPS * 4u;
        var value = vec4<u32>(0u);
#else
        let first = step % K_STEPS * 2u;
        var value = vec4<f32>(0.0);
#endif
        if (v < count) {
            let head = item.kv_head * GROUP + v % GROUP;
            let at = ((item.row_start + v / GROUP) * Q_HEADS + head) * (K_DIM + 4u);
#if HALF
            let down = q[at + K_DIM + 1u];
#for i < 4
            value[#{i}] = pack2x16float(query_pair(at, unit, first + #{i}u, down));
#endfor
#else
            value = vec4<f32>(query_pair(at, unit, first, 1.0), query_pair(at, unit, first + 1u, 1.0));
#endif
        }
        queries[i] = value;
    }
    if (lid < 8u) {
        let v = chunk + lid;
        var position = row_position(item.row_start);
        var bias = 0.0;
        var scale = 1.0;
        if (lid < CHUNK && v < count) {
            let row = item.row_start + v / GROUP;
            position = row_position(row);
            let at = (row * Q_HEADS + item.kv_head * GROUP + v % GROUP) * (K_DIM + 4u) + K_DIM;
            bias = q[at];
#if HALF
            scale = q[at + 2u];
#endif
        }
        positions[lid] = position;
        biases[lid] = bias;
        scales[lid] = scale;
    }
}

// The block's token number `t` of this thread; the two of a unit of K are neighbours in `t`.
fn own_token(lid: u32, t: u32) -> u32 {
#if K_UNIT_TOKENS == 2
    let i = t / 2u * WORKGROUP + lid;
    return i / 8u * 16u + i % 8u + t % 2u * 8u;
#else
    return t * WORKGROUP + lid;
#endif
}

#if V_HALF
#if TWINS > 0
// Where the weights of the block's token `t` begin, those of its twin beside them; which of both it is.
fn half_at(t: u32) -> u32 {
    return ((t & (TWINS - 1u)) | ((t >> 1u) & ~(TWINS - 1u))) * QUADS * 2u;
}

fn set_half(t: u32, v: u32, weight: f32) {
    halves[half_at(t) + v / 2u][v % 2u * 2u + t / TWINS % 2u] = f16(weight);
}

fn half_of(t: u32, v: u32) -> f32 {
    return f32(halves[half_at(t) + v / 2u][v % 2u * 2u + t / TWINS % 2u]);
}
#else
fn half_of(t: u32, v: u32) -> f32 {
    return f32(halves[t * QUADS + v / 4u][v % 4u]);
}
#endif
#endif

// Finished logits of one token for 4 vectors: scaled, biased, capped; EMPTY where not visible.
fn finish(sum: vec4<f32>, scale: vec4<f32>, bias: vec4<f32>, seen: vec4<bool>) -> vec4<f32> {
    return select(vec4<f32>(EMPTY), cap4(sum * scale + bias), seen);
}

// Adds the slices' outputs of one vector and writes them. All threads call it, in uniform control flow.
fn write_output(state: u32, quad: u32, value: vec4<f32>, lid: u32) {
    workgroupBarrier();
    weights[lid] = value;
    workgroupBarrier();
    if (lid < V_COLUMNS) {
        var sum = weights[lid];
        for (var i = 1u; i < SLICES; i++) {
            sum += weights[i * V_COLUMNS + lid];
        }
        partials[state * STRIDE4 + 1u + lid * V_QUADS + quad] = sum;
    }
}
