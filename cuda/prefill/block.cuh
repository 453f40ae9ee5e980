// A block's way through an item: pieces of pages to shared memory, and from there to panels.

struct Block {
    const Params &params;
    Shared &shared;
    const uint4 *k_slab, *v_slab;

    // To a stage of panels, or of what comes raw.
    KV_METHOD void bring_keys(unsigned step, unsigned stage) const {
#pragma unroll
        for (unsigned i = 0; i < PIECES; ++i) {
            const Piece piece = shared.pieces[step * PIECES + i];
            const unsigned *page = (const unsigned *)(k_slab + (unsigned long long)piece.k_slot * (K_WORDS / 4));
            const uint4 *to = K_RAW ? shared.raw_keys[stage] + i * K_RAW : shared.keys[stage] + i * RUN;
            KeyTiles::template bring<RUN, PITCH>(shared_address(to), page, piece.token, piece.valid);
        }
    }

    KV_METHOD void bring_values(unsigned step, unsigned stage) const {
#pragma unroll
        for (unsigned i = 0; i < PIECES; ++i) {
            const Piece piece = shared.pieces[step * PIECES + i];
            const unsigned *page = (const unsigned *)(v_slab + (unsigned long long)piece.v_slot * (V_WORDS / 4));
            const uint4 *to = V_RAW ? shared.raw_values[stage] + i * V_RAW : shared.values[stage] + i * RUN;
            ValueTiles::template bring<RUN, PITCH>(shared_address(to), page, piece.token, piece.valid);
        }
    }

    KV_METHOD void spread_keys(unsigned step, unsigned stage, unsigned from) const {
        spread<KeyTiles>(step, shared.raw_keys[from], shared.keys[stage], shared.key_scales[stage]);
    }

    KV_METHOD void spread_values(unsigned step, unsigned stage, unsigned from) const {
        spread<ValueTiles>(step, shared.raw_values[from], shared.values[stage], shared.value_scales[stage]);
    }

    // Takes what is no number out of values of which some row does not see some token, once it is added to those that
    // see it.
    KV_METHOD void settle_unfit(Rows &rows, unsigned step, unsigned stage) const {
        uint4 *values = shared.values[stage];
        if (!unfit(values, false)) return;
        rows.add_unfit(shared.pieces + step * PIECES, values);
        sync_multipliers();
        unfit(values, true);
    }

private:
    template <class Tiles>
    KV_METHOD void spread(unsigned step, const uint4 *raw, uint4 *panel, float *scales) const {
        constexpr unsigned UNITS = Tiles::template RAW_OF<RUN>;
        if constexpr (UNITS > 0) {
#pragma unroll
            for (unsigned i = 0; i < PIECES; ++i) {
                const Piece piece = shared.pieces[step * PIECES + i];
                Tiles::template spread<RUN, PITCH>(raw + i * UNITS, panel + i * RUN, scales + i * RUN, piece.token,
                                                   piece.valid);
            }
        }
    }

    // Whether the values hold what is no number, for all that multiply alike.
    KV_METHOD bool unfit(uint4 *values, bool clear) const {
        bool found = false;
        share<V_DIM / 8 * STEP, MULTIPLIERS>(threadIdx.x - FIRST_THREAD, [&](unsigned i) {
            uint4 &unit = values[i / STEP * PITCH + i % STEP];
            unsigned x[4] = {unit.x, unit.y, unit.z, unit.w};
            bool own = false;
#pragma unroll
            for (unsigned word = 0; word < 4; ++word) {
                constexpr unsigned EXPONENT = ValueProduct::EXPONENT;
                const bool low = (x[word] & EXPONENT) == EXPONENT, high = (x[word] >> 16 & EXPONENT) == EXPONENT;
                own = own || low || high;
                x[word] &= (low ? 0u : 0xffffu) | (high ? 0u : 0xffff0000u);
            }
            found = found || own;
            if (clear && own) unit = make_uint4(x[0], x[1], x[2], x[3]);
        });
        return any_multiplier(found);
    }
};
