// Attention of many query vectors over a list of pages, on Hopper's tensor cores.
//
// A block takes an item, VECTORS query vectors at a time. Its first two warpgroups bring steps of keys and of values to
// panels in shared memory, in 16 bits whatever the format (tiles/panels.cuh); each of the others multiplies 64 vectors
// with all of them, logits and outputs in registers.

// What a block's threads do alike; `walk` is what they do apart, told the number of steps done so far.
template <class Begin, class Walk, class End>
KV_FN void go_through(Shared &shared, const unsigned *descs, const unsigned *tables, const float *q,
                      const Params &params, const Item &item, Begin begin, Walk walk, End end) {
    unsigned n = 0;
#pragma unroll 1
    for (unsigned chunk = 0; chunk < item.rows * GROUP; chunk += VECTORS) {
        __syncthreads();
        load_queries(shared, tables, q, params, item, chunk);
        __syncthreads();
        const Span span = span_of(shared);
        begin();
#pragma unroll 1
        for (unsigned first = 0; first < item.ids_count * SUBS; first += LOOK) {
            if (first > 0) __syncthreads();
            look_up(shared, descs, tables, params, item, first, span);
            walk(n);
            n += shared.steps;
        }
        end(chunk);
    }
}

extern "C" __global__ void __launch_bounds__(WORKGROUP, BLOCKS_AN_SM)
kvarto_kernel(const uint4 *__restrict__ k_slab, const uint4 *__restrict__ v_slab, const unsigned *__restrict__ descs,
              const unsigned *__restrict__ tables, const float *__restrict__ q, float4 *__restrict__ partials,
              const Params params) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Stages stages;
    Shared &shared = *(Shared *)memory;
    const Item item = item_of(tables, params);
    const Block block = {params, shared, k_slab, v_slab};
    begin_stages(stages);
    // Registers go from the warpgroups that bring to those that multiply.
    if (threadIdx.x < FIRST_THREAD) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(BRINGERS_REGISTERS));
        go_through(
            shared, descs, tables, q, params, item, [&]() {},
            [&](unsigned n) {
                if (threadIdx.x < BRINGERS) {
                    bring_side<KeySide>(block, stages, n);
                } else {
                    bring_side<ValueSide>(block, stages, n);
                }
            },
            [&](unsigned) {});
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MULTIPLIERS_REGISTERS));
        Rows rows = {params, shared};
        Queries queries;
        go_through(
            shared, descs, tables, q, params, item,
            [&]() {
                rows.begin();
                load_fragments(shared, queries);
            },
            [&](unsigned n) { take_panels(block, stages, rows, queries, n); },
            [&](unsigned chunk) {
                rows.write((float *)partials + (unsigned long long)(item.partial_start + chunk) * STRIDE,
                           item.rows * GROUP - chunk);
            });
    }
}
