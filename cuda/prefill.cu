// Attention of many query vectors over a list of pages, on tensor cores.
//
// A block takes an item, VECTORS query vectors at a time. Step by step it brings STEP tokens of keys and values to
// panels in shared memory, in 16 bits whatever the format (tiles/panels.cuh); each warp multiplies its vectors with all
// of them, logits and outputs in registers. prefill/warps.cuh and prefill/warpgroups.cuh are two ways to multiply.

extern "C" __global__ void __launch_bounds__(WORKGROUP, BLOCKS_AN_SM)
kvarto_kernel(const uint4 *__restrict__ k_slab, const uint4 *__restrict__ v_slab, const unsigned *__restrict__ descs,
              const unsigned *__restrict__ tables, const float *__restrict__ q, float4 *__restrict__ partials,
              const Params params) {
    extern __shared__ __align__(128) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    const Item item = item_of(tables, params);
    const unsigned count = item.rows * GROUP;
    const Block block = {params, shared, k_slab, v_slab};

#pragma unroll 1
    for (unsigned chunk = 0; chunk < count; chunk += VECTORS) {
        __syncthreads();
        load_queries(shared, tables, q, params, item, chunk);
        __syncthreads();
        const Span span = span_of(shared);
        Rows rows = {params, shared};
        rows.begin();
#pragma unroll 1
        for (unsigned first = 0; first < item.ids_count * SUBS; first += LOOK) {
            if (first > 0) __syncthreads();
            look_up(shared, descs, tables, params, item, first, span);
            walk(block, rows);
        }
        rows.write((float *)partials + (unsigned long long)(item.partial_start + chunk) * STRIDE, count - chunk);
    }
}
