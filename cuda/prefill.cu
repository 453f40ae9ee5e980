// Attention of many query vectors over a list of pages, on tensor cores.
//
// A block takes an item, VECTORS query vectors at a time. Step by step it brings STEP tokens of keys and values to panels
// in shared memory, in 16 bits whatever the format (tiles/panels.cuh); each warp multiplies its vectors with all of them,
// logits and outputs in registers. prefill/warps.cuh and prefill/warpgroups.cuh are two ways to multiply.

// The item's query vectors from `chunk` on, in 16 bits; those past its end are zeros.
KV_FN void load_queries(Shared &shared, const unsigned *tables, const float *q, const Params &params, const Item &item,
                        unsigned chunk) {
    const unsigned count = item.rows * GROUP;
    const auto of = [&](unsigned vector) {
        return q + (unsigned long long)((item.row_start + vector / GROUP) * Q_HEADS + item.kv_head * GROUP + vector % GROUP) *
                       (K_DIM + 4);
    };
    // Eight lanes take as many vectors.
    share<K_DIM / 8 * VECTORS>([&](unsigned i) {
        const unsigned unit = i / 8 % (K_DIM / 8), vector = i / K_DIM * 8 + i % 8;
        uint4 packed = make_uint4(0u, 0u, 0u, 0u);
        if (chunk + vector < count) {
            const float *own = of(chunk + vector);
            // Prepared queries are within 1 so, but for infinities and NaN.
            const float down = __ldg(own + K_DIM + 1);
            const float4 x = __ldg((const float4 *)own + 2 * unit), y = __ldg((const float4 *)own + 2 * unit + 1);
            packed = make_uint4(KeyProduct::pack(x.x * down, x.y * down), KeyProduct::pack(x.z * down, x.w * down),
                                KeyProduct::pack(y.x * down, y.y * down), KeyProduct::pack(y.z * down, y.w * down));
        }
        shared.queries[unit * VECTORS + vector] = packed;
    });
    share<VECTORS>([&](unsigned i) {
        const unsigned vector = chunk + i < count ? chunk + i : 0u;
        const float *own = of(vector) + K_DIM;
        shared.positions[i] = __ldg(tables + params.rows_at + (item.row_start + vector / GROUP) * 4);
        shared.biases[i] = __ldg(own);
        shared.scales[i] = __ldg(own + 2);
    });
}

extern "C" __global__ void __launch_bounds__(WORKGROUP, BLOCKS_AN_SM)
kvarto_kernel(const uint4 *__restrict__ k_slab, const uint4 *__restrict__ v_slab, const unsigned *__restrict__ descs,
              const unsigned *__restrict__ tables, const float *__restrict__ q, float4 *__restrict__ partials,
              const Params params) {
    extern __shared__ __align__(128) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    // Items of late rows, which see most, first.
    const unsigned *record = tables + params.items_at + 8 * (params.groups - 1 - blockIdx.x);
    const Item item = {__ldg(record), __ldg(record + 1), __ldg(record + 2),
                       __ldg(record + 3), __ldg(record + 4), __ldg(record + 5)};
    const unsigned count = item.rows * GROUP;
    const Block block = {params, shared, k_slab, v_slab};

#pragma unroll 1
    for (unsigned chunk = 0; chunk < count; chunk += VECTORS) {
        __syncthreads();
        load_queries(shared, tables, q, params, item, chunk);
        __syncthreads();
        unsigned first_query = ALL, last_query = 0u;
        for (unsigned v = threadIdx.x % 32; v < VECTORS; v += 32) {
            first_query = min(first_query, shared.positions[v]);
            last_query = max(last_query, shared.positions[v]);
        }
        first_query = __reduce_min_sync(ALL, first_query);
        last_query = __reduce_max_sync(ALL, last_query);
        Rows rows = {params, shared};
        rows.begin();
#pragma unroll 1
        for (unsigned first = 0; first < item.ids_count * SUBS; first += LOOK) {
            if (first > 0) __syncthreads();
            look_up(shared, descs, tables, params, item, first, first_query, last_query);
            walk(block, rows);
        }
        rows.write((float *)partials + (unsigned long long)(item.partial_start + chunk) * STRIDE, count - chunk);
    }
}
