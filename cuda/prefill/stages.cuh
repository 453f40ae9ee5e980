// The way from the warpgroups that bring panels, one those of keys and one those of values, to those that multiply:
// stages of panels, each with a barrier that says it is full and one that says it is empty. Warpgroups that multiply
// wait for nothing else, and so come apart: one softens while the other multiplies.

struct Stages {
    unsigned long long full_keys[K_STAGES], full_values[V_STAGES], empty_keys[K_STAGES], empty_values[V_STAGES];
};

KV_FN void begin_barrier(unsigned long long &barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count) : "memory");
}

KV_FN void arrive(unsigned long long &barrier) {
    const unsigned at = shared_address(&barrier);
    asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared::cta.b64 state, [%0];\n\t}" ::"r"(at) : "memory");
}

// Waits for the end of the barrier's phase of this parity.
KV_FN void await(unsigned long long &barrier, unsigned parity) {
    asm volatile("{\n\t.reg .pred done;\n\tAGAIN_%=:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t@!done bra AGAIN_%=;\n\t}" ::"r"(
                     shared_address(&barrier)),
                 "r"(parity)
                 : "memory");
}

KV_FN void begin_stages(Stages &stages) {
    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < K_STAGES; ++i) {
            begin_barrier(stages.full_keys[i], BRINGERS);
            begin_barrier(stages.empty_keys[i], MULTIPLIERS / 32);
        }
        for (unsigned i = 0; i < V_STAGES; ++i) {
            begin_barrier(stages.full_values[i], BRINGERS);
            begin_barrier(stages.empty_values[i], MULTIPLIERS / 32);
        }
    }
}

// A step's place: the `n`th of all that the block takes.
template <unsigned STAGES>
struct Place {
    unsigned stage, parity;

    KV_METHOD explicit Place(unsigned n) : stage(n % STAGES), parity(n / STAGES % 2) {}
};

using KeyPlace = Place<K_STAGES>;
using ValuePlace = Place<V_STAGES>;

template <unsigned COUNT>
KV_FN void await_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
}

KV_FN void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Barriers of the warpgroup that brings a side.
template <unsigned ID>
KV_FN void sync_bringers() {
    asm volatile("barrier.sync %0, %1;" ::"n"(ID), "n"(BRINGERS) : "memory");
}

// A side as the warpgroup that brings it sees it.
struct KeySide {
    using At = KeyPlace;
    static constexpr unsigned STAGES = K_STAGES, RAW_UNITS = K_RAW, BARRIER = 2;
    KV_FN unsigned long long &full(Stages &stages, unsigned stage) { return stages.full_keys[stage]; }
    KV_FN unsigned long long &empty(Stages &stages, unsigned stage) { return stages.empty_keys[stage]; }
    KV_FN void bring(const Block &block, unsigned step, unsigned stage) { block.bring_keys(step, stage); }
    KV_FN void spread(const Block &block, unsigned step, unsigned stage, unsigned from) {
        block.spread_keys(step, stage, from);
    }
};

struct ValueSide {
    using At = ValuePlace;
    static constexpr unsigned STAGES = V_STAGES, RAW_UNITS = V_RAW, BARRIER = 3;
    KV_FN unsigned long long &full(Stages &stages, unsigned stage) { return stages.full_values[stage]; }
    KV_FN unsigned long long &empty(Stages &stages, unsigned stage) { return stages.empty_values[stage]; }
    KV_FN void bring(const Block &block, unsigned step, unsigned stage) { block.bring_values(step, stage); }
    KV_FN void spread(const Block &block, unsigned step, unsigned stage, unsigned from) {
        block.spread_values(step, stage, from);
    }
};

// Brings a side's panels of the steps looked up; `n` were brought before. Straight from pages, copies of several are on
// their way, fewer than there are stages: a panel is shown once its own are done, and that must not wait for the one
// before to be used.
template <class Side>
KV_FN void bring_panels(const Block &block, Stages &stages, unsigned n) {
    using At = typename Side::At;
    constexpr unsigned AHEAD = Side::STAGES > 2 ? Side::STAGES - 2 : 0;
    Shared &shared = block.shared;
    const unsigned steps = shared.steps;
    for (unsigned i = 0; i < steps + AHEAD; ++i) {
        if (i < steps) {
            const At at(n + i);
            await(Side::empty(stages, at.stage), at.parity ^ 1u);
            Side::bring(block, shared.order[i], at.stage);
        }
        close_copies();
        await_copies<AHEAD>();
        if (i >= AHEAD) {
            show_panels();
            arrive(Side::full(stages, At(n + i - AHEAD).stage));
        }
    }
}

// The same where the side comes raw: the next step's is on its way while one is spread.
template <class Side>
KV_FN void spread_panels(const Block &block, Stages &stages, unsigned n) {
    static_assert(RAW_STAGES == 2, "one comes, one is spread");
    Shared &shared = block.shared;
    const unsigned steps = shared.steps;
    if (steps > 0) Side::bring(block, shared.order[0], 0);
    for (unsigned i = 0; i < steps; ++i) {
        const typename Side::At at(n + i);
        copies_done();
        // Everybody's copies are there, and what was spread before is not read any more.
        sync_bringers<Side::BARRIER>();
        if (i + 1 < steps) Side::bring(block, shared.order[i + 1], (i + 1) % 2);
        await(Side::empty(stages, at.stage), at.parity ^ 1u);
        Side::spread(block, shared.order[i], at.stage, i % 2);
        show_panels();
        arrive(Side::full(stages, at.stage));
    }
}

template <class Side>
KV_FN void bring_side(const Block &block, Stages &stages, unsigned n) {
    if constexpr (Side::RAW_UNITS > 0) {
        spread_panels<Side>(block, stages, n);
    } else {
        bring_panels<Side>(block, stages, n);
    }
}

// This warp has done with a stage.
KV_FN void release(unsigned long long &empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty);
}

// Values of which some row does not see some token, before they are multiplied.
KV_FN void settle(const Block &block, Stages &stages, Rows &rows, unsigned i, unsigned n) {
    const ValuePlace place(n + i);
    await(stages.full_values[place.stage], place.parity);
    block.settle_unfit(rows, block.shared.order[i], place.stage);
    show_panels();
    sync_multipliers();
}

// From a step's products with keys to weights; `shrink` is what outputs so far are to be multiplied by, if that is
// anything but 1.
template <bool MASKED>
KV_FN bool soften(const Block &block, Rows &rows, unsigned i, unsigned n, Scores &s, Factors &shrink) {
    const Shared &shared = block.shared;
    Bits seen = {};
    if constexpr (MASKED) rows.see(shared.pieces + shared.order[i] * PIECES, seen);
    bool changed = rows.soften<MASKED>(s, seen, shrink);
    if constexpr (ValueTiles::SCALED) {
        changed |= rows.weigh<MASKED>(s, seen, shared.value_scales[ValuePlace(n + i).stage], shrink);
    }
    return changed;
}

KV_FN bool soften(const Block &block, Rows &rows, Stages &stages, unsigned i, unsigned n, Scores &s, Factors &shrink) {
    rows.finish_logits(s, block.shared.key_scales[KeyPlace(n + i).stage]);
    if constexpr (KeyTiles::SCALED) release(stages.empty_keys[KeyPlace(n + i).stage]);
    if constexpr (ValueTiles::SCALED) {
        const ValuePlace place(n + i);
        await(stages.full_values[place.stage], place.parity);
    }
    if (i < block.shared.whole) return soften<false>(block, rows, i, n, s, shrink);
    return soften<true>(block, rows, i, n, s, shrink);
}

// Multiplies what the steps looked up bring; `n` were taken before.
KV_FN void take_panels(const Block &block, Stages &stages, Rows &rows, const Queries &queries, unsigned n) {
    Shared &shared = block.shared;
    const unsigned steps = shared.steps;
    if (steps == 0) return;
    Scores s = {};
    Weights a;
    const auto begin_keys = [&](unsigned i) {
        const KeyPlace place(n + i);
        await(stages.full_keys[place.stage], place.parity);
        multiply_keys(shared.keys[place.stage], queries, s);
    };
    const auto begin_values = [&](unsigned i) {
        const ValuePlace place(n + i);
        await(stages.full_values[place.stage], place.parity);
        multiply_values(shared.values[place.stage], a, rows);
    };
    Factors shrink;
    begin_keys(0);
    await_products<0>();
    if constexpr (!KeyTiles::SCALED) release(stages.empty_keys[KeyPlace(n).stage]);
    if (soften(block, rows, stages, 0, n, s, shrink)) rows.shrink_outputs(shrink);
    pack(s, a);
#pragma unroll 1
    for (unsigned i = 0; i + 1 < steps; ++i) {
        if (!ValueTiles::EXACT && i >= shared.whole) settle(block, stages, rows, i, n);
        begin_keys(i + 1);
        begin_values(i);
        await_products<1>();
        if constexpr (!KeyTiles::SCALED) release(stages.empty_keys[KeyPlace(n + i + 1).stage]);
        const bool changed = soften(block, rows, stages, i + 1, n, s, shrink);
        await_products<0>();
        release(stages.empty_values[ValuePlace(n + i).stage]);
        if (changed) rows.shrink_outputs(shrink);
        pack(s, a);
    }
    if (!ValueTiles::EXACT && steps > shared.whole) settle(block, stages, rows, steps - 1, n);
    begin_values(steps - 1);
    await_products<0>();
    release(stages.empty_values[ValuePlace(n + steps - 1).stage]);
}
