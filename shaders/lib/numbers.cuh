/* Helpers of the formats' CUDA text. Also plain C, so that a test can compile and run it. */
#ifndef __CUDACC__
#include <string.h>
#define __device__
#define __forceinline__ inline
#endif
#define KV_FN static __device__ __forceinline__

KV_FN float kv_f32(unsigned bits) {
#ifdef __CUDACC__
    return __uint_as_float(bits);
#else
    float x;
    memcpy(&x, &bits, 4);
    return x;
#endif
}

/* f16 bits to f32, exact. */
KV_FN float kv_f16(unsigned bits) {
#ifdef __CUDACC__
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
    return x;
#else
    unsigned sign = (bits & 0x8000u) << 16, a = bits & 0x7fffu;
    if (a >= 0x7c00u) return kv_f32(sign | 0x7f800000u | ((a & 0x3ffu) << 13));
    if (a < 0x400u) return (sign ? -1.0f : 1.0f) * ((float)a * 5.9604644775390625e-8f);
    return kv_f32(sign | ((a << 13) + 0x38000000u));
#endif
}

/* An e4m3 code; 0x7f and 0xff, which pages never hold, read as +-480. */
KV_FN float kv_e4m3(unsigned code) {
    unsigned m = code & 0x7fu;
    float x = m < 8u ? (float)m * 0.001953125f : kv_f32((m << 20) + 0x3c000000u);
    return (code & 0x80u) ? -x : x;
}
