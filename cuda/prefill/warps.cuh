// Products of warps, each for itself, by mma.sync: on every architecture. Fragments come by ldmatrix, to which lane 8i
// + r gives the address of row r of the i-th matrix of 8 x 8. While a step's logits are made its values come, and while
// these are multiplied the next step's keys.

KV_FN void load_matrices(unsigned address, unsigned (&x)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address));
}

KV_FN void load_transposed(unsigned address, unsigned (&x)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address));
}

// Products of the warp's queries with the step's keys.
KV_FN void multiply_keys(const Shared &shared, Scores &s) {
    const unsigned lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 * MATRICES;
    // Rows g and g + 8, then the next eight channels of them.
    const unsigned queries = shared_address(shared.queries + lane / 16 * VECTORS + row + lane % 16);
    // Eight tokens, the next eight channels of them, and the same of the next eight tokens.
    const unsigned keys = shared_address(shared.keys[0] + lane / 8 % 2 * PITCH + lane / 16 * 8 + lane % 8);
#pragma unroll
    for (unsigned x = 0; x < MATRICES * T_BLOCKS * 4; ++x) s[x / 4 / T_BLOCKS][x / 4 % T_BLOCKS][x % 4] = 0.0f;
#pragma unroll
    for (unsigned step = 0; step < K_DIM / 16; ++step) {
        unsigned a[MATRICES][4];
#pragma unroll
        for (unsigned i = 0; i < MATRICES; ++i) load_matrices(queries + (step * 2 * VECTORS + 16 * i) * 16, a[i]);
#pragma unroll
        for (unsigned j = 0; j < T_BLOCKS; j += 2) {
            unsigned b[4];
            load_matrices(keys + (step * 2 * PITCH + 8 * j) * 16, b);
#pragma unroll
            for (unsigned i = 0; i < MATRICES; ++i) {
                KeyProduct::multiply(s[i][j], a[i], b[0], b[1]);
                KeyProduct::multiply(s[i][j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

// Adds the step's values.
KV_FN void multiply_values(const Shared &shared, const Scores &p, Rows &rows) {
    const unsigned lane = threadIdx.x % 32;
    // Eight tokens, the next eight, and the next eight channels of both.
    const unsigned values = shared_address(shared.values[0] + lane / 16 * PITCH + lane % 16);
#pragma unroll
    for (unsigned k = 0; k < STEP / 16; ++k) {
        unsigned a[MATRICES][4];
        Rows::pack(p, k, a);
#pragma unroll
        for (unsigned j = 0; j < V_BLOCKS; j += 2) {
            unsigned b[4];
            load_transposed(values + (j * PITCH + 16 * k) * 16, b);
#pragma unroll
            for (unsigned i = 0; i < MATRICES; ++i) {
                ValueProduct::multiply(rows.o[i][j], a[i], b[0], b[1]);
                ValueProduct::multiply(rows.o[i][j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

// The `i`th of the steps looked up.
template <bool MASKED>
KV_FN void take(const Block &block, Rows &rows, unsigned i) {
    Shared &shared = block.shared;
    const unsigned step = shared.order[i];
    copies_done();
    __syncthreads();
    block.bring_values(step, 0);
    if constexpr (K_RAW > 0) {
        block.spread_keys(step, 0, 0);
        __syncthreads();
    }
    Scores s;
    multiply_keys(shared, s);
    copies_done();
    __syncthreads();
    if (i + 1 < shared.steps) block.bring_keys(shared.order[i + 1], 0);
    if constexpr (V_RAW > 0) {
        block.spread_values(step, 0, 0);
        __syncthreads();
    }
    rows.finish_logits(s, shared.key_scales[0]);
    Bits seen = {};
    Factors shrink;
    if constexpr (MASKED) rows.see(shared.pieces + step * PIECES, seen);
    bool changed = rows.template soften<MASKED>(s, seen, shrink);
    if constexpr (ValueTiles::SCALED) changed |= rows.template weigh<MASKED>(s, seen, shared.value_scales[0], shrink);
    if (changed) rows.shrink_outputs(shrink);
    if constexpr (MASKED && !ValueTiles::EXACT) block.settle_unfit(rows, step, 0);
    multiply_values(shared, s, rows);
}

KV_FN void walk(const Block &block, Rows &rows) {
    const unsigned whole = block.shared.whole, steps = block.shared.steps;
    if (steps > 0) block.bring_keys(block.shared.order[0], 0);
#pragma unroll 1
    for (unsigned i = 0; i < whole; ++i) take<false>(block, rows, i);
#pragma unroll 1
    for (unsigned i = whole; i < steps; ++i) take<true>(block, rows, i);
}
