// y = x / sqrt(mean(x^2) + eps) * w. A block makes a row, which it reads once: a thread has all its values in flight together.

constexpr unsigned VALUES = (WIDTH + WORKGROUP - 1) / WORKGROUP;
constexpr unsigned WARPS = WORKGROUP / 32;

KV_FN float warp_sum(float x) {
#pragma unroll
    for (unsigned other = 16; other > 0; other /= 2) x += __shfl_xor_sync(0xffffffffu, x, other);
    return x;
}

extern "C" __global__ void __launch_bounds__(WORKGROUP)
kvarto_kernel(const float *x, const float *__restrict__ w, float *__restrict__ y, const Params params) {
    __shared__ float sums[WARPS];
    float values[VALUES], weights[VALUES];
    // Weights never change: they may come before the kernel ahead has ended.
#pragma unroll
    for (unsigned i = 0; i < VALUES; ++i) {
        const unsigned at = threadIdx.x + i * WORKGROUP;
        weights[i] = at < WIDTH ? w[params.w_offset + at] : 0.0f;
    }
    const unsigned start = kv_wait_for_others();
    kv_let_others_begin();
    const float *from = x + start + params.x_offset + (size_t)blockIdx.x * params.x_stride;
    float *to = y + start + params.y_offset + (size_t)blockIdx.x * params.y_stride;
    float sum = 0.0f;
#pragma unroll
    for (unsigned i = 0; i < VALUES; ++i) {
        const unsigned at = threadIdx.x + i * WORKGROUP;
        values[i] = at < WIDTH ? from[at] : 0.0f;
    }
#pragma unroll
    for (unsigned i = 0; i < VALUES; ++i) sum = fmaf(values[i], values[i], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    const unsigned lane = threadIdx.x % 32;
    const float total = warp_sum(lane < WARPS ? sums[lane] : 0.0f);
    const float scale = rsqrtf(total / (float)WIDTH + params.eps);
#pragma unroll
    for (unsigned i = 0; i < VALUES; ++i) {
        const unsigned at = threadIdx.x + i * WORKGROUP;
        if (at < WIDTH) to[at] = values[i] * scale * weights[i];
    }
}
