// Panels: what prefill attention's products read from shared memory, whatever the format.
//
// A panel has the tokens of a step of one side in 16 bits, by units of eight channels of a token (16 bytes): unit
// (C/8)*PITCH + T. PITCH is one more than there are tokens, so that neighbouring channels stand in other banks.
//
// Beside what half.cuh tells, formats define for a piece of RUN tokens of a page that stand side by side in a step, of
// which BRINGERS threads take care, those of one threadIdx.x / BRINGERS:
// - Halves: how a panel's numbers are multiplied; SCALED: whether tokens have factors beside the panel; EXACT: whether
//   no number of a panel can be infinite or NaN;
// - RAW_OF<RUN>: units that a piece takes as it stands in the page; 0 where its units are a panel's;
// - bring<RUN, PITCH>(to, page, first, valid): asks for the piece that begins with the page's token `first`, of which
//   `valid` tokens exist, to the shared address of its first unit in the panel or of its raw units;
// - spread<RUN, PITCH>(raw, panel, scales, first, valid): from raw units to a panel and factors. In panels tokens that
//   do not exist are finite, where EXACT is false zeros; their factors are zeros.

KV_FN unsigned shared_address(const void *at) { return (unsigned)__cvta_generic_to_shared(at); }

// Asks for 16 bytes; zeros where they are not there.
KV_FN void copy16(unsigned to, const unsigned *from, bool there) {
    const unsigned bytes = there ? 16u : 0u;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

KV_FN void copy4(unsigned to, const unsigned *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

// What this thread asked for is there.
KV_FN void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Calls each(i) for every i below COUNT in one of THREADS threads, of which this is the `own`th.
template <unsigned COUNT, unsigned THREADS, class Each>
KV_FN void share(unsigned own, Each each) {
#pragma unroll
    for (unsigned at = 0; at < COUNT; at += THREADS) {
        const unsigned i = at + own;
        if (COUNT % THREADS == 0 || i < COUNT) each(i);
    }
}

// Where a format's words are read from.
struct FromMemory {
    KV_FN uint4 words4(const unsigned *from) { return load16(from); }
    KV_FN uint2 words2(const unsigned *from) { return load8(from); }
    KV_FN unsigned word(const unsigned *from) { return __ldg(from); }
};

struct FromShared {
    KV_FN uint4 words4(const unsigned *from) { return *(const uint4 *)from; }
    KV_FN uint2 words2(const unsigned *from) { return *(const uint2 *)from; }
    KV_FN unsigned word(const unsigned *from) { return *from; }
};

// Signed bytes, 128 added, in the lower halves of 1024 + x: two of them as f16.
KV_FN unsigned f16_of_bytes(unsigned biased, unsigned selector) {
    unsigned x;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(x) : "r"(bytes_of(biased, 0x64646464u, selector)), "r"(0x64806480u));
    return x;
}
