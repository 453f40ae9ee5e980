// One softmax over an entry's partial states: their maximum, their weighted sum, the sink's logit, then out of the
// basis of V, mean back. A block takes one query head of one row.
//
// Every warp looks at all states' maxima and sums, a lane each, and adds up every WARPSth state's outputs. What bounds
// it is the chain of loads from a row to its list, its states and their outputs: outputs are asked for before weights
// are known.

constexpr unsigned WARPS = WORKGROUP / 32;
constexpr unsigned STRIDE4 = V_DIM / 4 + 1;
// Groups of four channels of a lane.
constexpr unsigned OWN = (V_DIM + 127) / 128;
// States whose outputs are asked for ahead.
constexpr unsigned FLIGHT = 4;
constexpr float EMPTY = -3.4028234663852886e38f;
constexpr unsigned ALL = 0xffffffffu;
// The largest power of two that divides the head size: the length of a Hadamard transform.
constexpr unsigned BLOCK = V_DIM & (~V_DIM + 1u);

static_assert(WORKGROUP % 32 == 0 && V_DIM % 4 == 0, "whole warps, groups of four channels");

KV_FN float exp_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
}

// The sign of channel c ahead of the Hadamard transform: the CPU's num::hadamard_sign.
KV_FN float hadamard_sign(unsigned c) {
    unsigned x = c + 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    x ^= x >> 16;
    return x & 1u ? -1.0f : 1.0f;
}

// 1/sqrt(BLOCK): an exact power of two, times one rounded constant for odd exponents.
__device__ constexpr float hadamard_norm() {
    float norm = 1.0f;
    unsigned block = BLOCK;
    for (; block >= 4; block /= 4) norm *= 0.5f;
    return block == 2 ? norm * 0.70710677f : norm;
}

// The outputs of a lane's channels.
KV_FN void load_outputs(const float4 *state, unsigned lane, float4 (&x)[OWN]) {
#pragma unroll
    for (unsigned i = 0; i < OWN; ++i) {
        const unsigned c4 = lane + 32 * i;
        x[i] = c4 < V_DIM / 4 ? state[1 + c4] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
}

KV_FN void add_outputs(float4 (&sum)[OWN], float weight, const float4 (&x)[OWN]) {
#pragma unroll
    for (unsigned i = 0; i < OWN; ++i) {
        sum[i].x = fmaf(weight, x[i].x, sum[i].x);
        sum[i].y = fmaf(weight, x[i].y, sum[i].y);
        sum[i].z = fmaf(weight, x[i].z, sum[i].z);
        sum[i].w = fmaf(weight, x[i].w, sum[i].w);
    }
}

// States are written while launches overlap: without __restrict__ no load of them is taken for one that may come early.
extern "C" __global__ void __launch_bounds__(WORKGROUP)
kvarto_kernel(const float *partials, const unsigned *__restrict__ tables, const float *__restrict__ means,
              const float *__restrict__ maps, const float *__restrict__ sinks, float *__restrict__ out,
              const Params params) {
    __shared__ float4 sums[WARPS][V_DIM / 4];
    __shared__ float channels[V_DIM];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned row = blockIdx.x / Q_HEADS, head = blockIdx.x % Q_HEADS;
    const unsigned *record = tables + params.rows_at + row * 4;
    const unsigned entry = record[1], row_in_entry = record[2], mean_slot = record[3];
    const unsigned *list_record = tables + params.lists_at + (entry * KV_HEADS + head / GROUP) * 2;
    const unsigned list = list_record[0], count = list_record[1];
    const unsigned vector = row_in_entry * GROUP + head % GROUP;
    // The first states' numbers, too, are known before the states are.
    unsigned number = lane < count ? __ldg(tables + list + lane) : 0u;
    // States are there from here on.
    const float4 *states = (const float4 *)partials + kv_wait_for_others();
    kv_let_others_begin();

    float4 sum[OWN] = {};
    float most = EMPTY, keys = 0.0f;
    for (unsigned first = 0; first < count; first += 32) {
        const unsigned here = min(32u, count - first);
        if (first > 0) number = lane < here ? __ldg(tables + list + first + lane) : 0u;
        const unsigned state = (number + vector) * STRIDE4;
        float4 ahead[FLIGHT][OWN];
#pragma unroll
        for (unsigned i = 0; i < FLIGHT; ++i) {
            const unsigned from = __shfl_sync(ALL, state, min(warp + i * WARPS, here - 1));
            if (warp + i * WARPS < here) load_outputs(states + from, lane, ahead[i]);
        }
        const float2 head_of_state = lane < here ? *(const float2 *)(states + state) : make_float2(EMPTY, 0.0f);
        // A NaN sum is not zero: it takes part, and reaches the output.
        const bool seen = (__float_as_uint(head_of_state.y) & 0x7fffffffu) != 0u;
        float next = seen ? fmaxf(most, head_of_state.x) : most;
#pragma unroll
        for (unsigned other = 1; other < 32; other *= 2) next = fmaxf(next, __shfl_xor_sync(ALL, next, other));
        const float shrink = exp_of(most - next);
        most = next;
        const float weight = seen ? exp_of(head_of_state.x - next) : 0.0f;
        float part = seen ? weight * head_of_state.y : 0.0f;
#pragma unroll
        for (unsigned other = 1; other < 32; other *= 2) part += __shfl_xor_sync(ALL, part, other);
        keys = fmaf(keys, shrink, part);
#pragma unroll
        for (unsigned i = 0; i < OWN; ++i) {
            sum[i] = make_float4(sum[i].x * shrink, sum[i].y * shrink, sum[i].z * shrink, sum[i].w * shrink);
        }
        // States that saw nothing are left out: their outputs may be anything.
        const unsigned all_seen = __ballot_sync(ALL, seen);
#pragma unroll
        for (unsigned i = 0; i < FLIGHT; ++i) {
            const unsigned at = warp + i * WARPS;
            const float own = __shfl_sync(ALL, weight, min(at, 31u));
            if (at < here && all_seen >> at & 1u) add_outputs(sum, own, ahead[i]);
        }
        for (unsigned at = warp + FLIGHT * WARPS; at < here; at += WARPS) {
            float4 x[OWN];
            load_outputs(states + __shfl_sync(ALL, state, at), lane, x);
            const float own = __shfl_sync(ALL, weight, at);
            if (all_seen >> at & 1u) add_outputs(sum, own, x);
        }
    }
#pragma unroll
    for (unsigned i = 0; i < OWN; ++i) {
        if (lane + 32 * i < V_DIM / 4) sums[warp][lane + 32 * i] = sum[i];
    }
    __syncthreads();
    for (unsigned c = threadIdx.x; c < V_DIM; c += WORKGROUP) {
        float x = 0.0f;
#pragma unroll
        for (unsigned w = 0; w < WARPS; ++w) x += ((const float *)sums[w])[c];
        channels[c] = x;
    }

    // Weights of keys add up to `share` of the whole: less than 1 beside a sink.
    const bool some = (__float_as_uint(keys) & 0x7fffffffu) != 0u;
    float factor = 1.0f / (some ? keys : 1.0f), share = 1.0f;
    if constexpr (SINK) {
        const float sink = sinks[head], top = fmaxf(most, sink);
        const float shrink = exp_of(most - top);
        factor = shrink / (keys * shrink + exp_of(sink - top));
        share = keys * factor;
    }
    if constexpr (ROTATE) {
        for (unsigned half = 1; half < BLOCK; half *= 2) {
            __syncthreads();
            for (unsigned i = threadIdx.x; i < V_DIM / 2; i += WORKGROUP) {
                const unsigned low = i / half * half * 2 + i % half;
                const float a = channels[low], b = channels[low + half];
                channels[low] = a + b;
                channels[low + half] = a - b;
            }
        }
    }
    __syncthreads();
    float *to = out + params.out_offset + row * params.out_stride + head * V_DIM;
    for (unsigned c = threadIdx.x; c < V_DIM; c += WORKGROUP) {
        float x = channels[c];
        if constexpr (ROTATE) x *= hadamard_norm();
        x *= factor;
        if constexpr (ROTATE) x *= hadamard_sign(c);
        if constexpr (MEAN) {
            const unsigned mean = mean_slot * params.mean_stride + params.mean_layer_at;
            x += share * means[mean + head / GROUP * (K_DIM + V_DIM) + K_DIM + c];
        } else if constexpr (FIXED) {
            x += share * maps[head / GROUP * V_DIM + c];
        }
        to[c] = some ? x : 0.0f;
    }
}
