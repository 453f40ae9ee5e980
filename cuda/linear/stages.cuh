// Weights on their way to shared memory: stages of whole lines of 16 bytes, as they are stored, by asynchronous copies.

constexpr unsigned BLOCKS = (COLUMNS + 31) / 32;
constexpr unsigned ROW_BYTES = COLUMNS / 8 * (Weight::BYTES / 2) / 2;
static_assert(COLUMNS / 8 * Weight::BYTES % 4 == 0, "rows are whole bytes");
// Whether every stretch that a stage brings begins at a line of 16 bytes, and at a whole word.
constexpr bool LINED = ROW_BYTES % 16 == 0 && STAGE * Weight::BYTES % 16 == 0 && (SPLIT == 1 || RANGE * Weight::BYTES % 16 == 0);
constexpr bool WORDED = ROW_BYTES % 4 == 0 && STAGE * Weight::BYTES % 4 == 0 && (SPLIT == 1 || RANGE * Weight::BYTES % 4 == 0);
constexpr unsigned LINES = (STAGE * Weight::BYTES + (LINED ? 0 : 14) + 15) / 16;
// An odd number of lines: eight rows then meet all banks.
constexpr unsigned PITCH = 16 * (LINES | 1);
// Whether every stage is whole.
constexpr bool WHOLE = LINED && COLUMNS % 32 == 0 && RANGE % STAGE == 0 && BLOCKS % RANGE == 0;

// Where in its first line a stretch of a row begins.
KV_FN unsigned shift_of(unsigned out, unsigned block) {
    return LINED ? 0u : (out * (ROW_BYTES % 16) + block * (Weight::BYTES % 16)) % 16;
}

KV_FN void copy_line(void *to, const unsigned char *from, unsigned count) {
    unsigned at;
    asm("{.reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a;}" : "=r"(at) : "l"(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(count) : "memory");
}
KV_FN void copies_asked() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <unsigned LEFT> KV_FN void copies_came() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

// What a thread asks for of each stage: a line of 16 bytes in every round.
template <unsigned ROWS, unsigned THREADS> struct Lines {
    static constexpr unsigned ALL = ROWS * LINES, ROUNDS = (ALL + THREADS - 1) / THREADS;
    // From a stage's first byte on, where every stage is whole.
    unsigned from[WHOLE ? ROUNDS : 1];

    __device__ __forceinline__ void prepare(unsigned thread) {
        if constexpr (WHOLE) {
#pragma unroll
            for (unsigned i = 0; i < ROUNDS; ++i) {
                const unsigned at = thread + i * THREADS;
                from[i] = at / LINES * ROW_BYTES + at % LINES * 16;
            }
        }
    }

    // Asks for blocks `block` to `block + STAGE` of ROWS rows from `out` on, as far as rows go; what is past a row's end
    // becomes zeros. Rows past the last one repeat it.
    __device__ __forceinline__ void ask(unsigned char *stage, const unsigned char *w, unsigned out, unsigned outs,
                                        unsigned block, unsigned thread) const {
        if (WHOLE && out + ROWS <= outs) {
            const unsigned char *start = w + (size_t)out * ROW_BYTES + block * Weight::BYTES;
#pragma unroll
            for (unsigned i = 0; i < ROUNDS; ++i) {
                const unsigned at = thread + i * THREADS;
                // Rows stand a line further apart than they are long where that is even.
                const unsigned to = LINES % 2 ? at : at + at / LINES;
                if (ALL % THREADS == 0 || at < ALL) copy_line(stage + 16 * to, start + from[i], 16);
            }
            return;
        }
#pragma unroll 1
        for (unsigned i = thread; i < ALL; i += THREADS) {
            const unsigned row = i / LINES, line = i % LINES, own = min(out + row, outs - 1);
            const unsigned shift = shift_of(own, block);
            const unsigned length = min(STAGE * Weight::BYTES, ROW_BYTES - min(ROW_BYTES, block * Weight::BYTES));
            const unsigned end = length > 0 ? shift + length : 0u;
            const unsigned count = end > 16 * line ? min(16u, end - 16 * line) : 0u;
            const unsigned char *start = w + (size_t)own * ROW_BYTES + block * Weight::BYTES - shift;
            copy_line(stage + row * PITCH + 16 * line, count > 0 ? start + 16 * line : w, count);
        }
    }
};
