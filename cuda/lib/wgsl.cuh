// What translated WGSL is written in: vectors, arrays, and the built-in functions by WGSL's rules. Header-free, for NVRTC.

#define KV_INLINE __device__ __forceinline__

template <class T, int N> struct kv_vec;
template <class T> struct alignas(2 * sizeof(T)) kv_vec<T, 2> {
    T x, y;
    KV_INLINE T& operator[](unsigned i) { return (&x)[i]; }
    KV_INLINE const T& operator[](unsigned i) const { return (&x)[i]; }
};
template <class T> struct kv_vec<T, 3> {
    T x, y, z;
    KV_INLINE T& operator[](unsigned i) { return (&x)[i]; }
    KV_INLINE const T& operator[](unsigned i) const { return (&x)[i]; }
};
template <class T> struct alignas(4 * sizeof(T)) kv_vec<T, 4> {
    T x, y, z, w;
    KV_INLINE T& operator[](unsigned i) { return (&x)[i]; }
    KV_INLINE const T& operator[](unsigned i) const { return (&x)[i]; }
};
template <class T, unsigned N> struct kv_array {
    T items[N];
    KV_INLINE T& operator[](unsigned i) { return items[i]; }
    KV_INLINE const T& operator[](unsigned i) const { return items[i]; }
};

template <int N, class T> struct kv_splatter;
template <class T> struct kv_splatter<2, T> { static KV_INLINE kv_vec<T, 2> of(T v) { return {v, v}; } };
template <class T> struct kv_splatter<3, T> { static KV_INLINE kv_vec<T, 3> of(T v) { return {v, v, v}; } };
template <class T> struct kv_splatter<4, T> { static KV_INLINE kv_vec<T, 4> of(T v) { return {v, v, v, v}; } };
template <int N, class T> KV_INLINE kv_vec<T, N> kv_splat(T value) { return kv_splatter<N, T>::of(value); }

// Component by component, written out: loops over components make a large kernel slow to compile.
#define KV_EACH2(F) F(x), F(y)
#define KV_EACH3(F) F(x), F(y), F(z)
#define KV_EACH4(F) F(x), F(y), F(z), F(w)

#define KV_OPERATOR(RESULT, OP, N, VECTORS, LEFT, RIGHT)                                                                 \
    template <class T> KV_INLINE kv_vec<RESULT, N> operator OP(kv_vec<T, N> a, kv_vec<T, N> b) { return {VECTORS}; } \
    template <class T> KV_INLINE kv_vec<RESULT, N> operator OP(kv_vec<T, N> a, T b) { return {RIGHT}; }              \
    template <class T> KV_INLINE kv_vec<RESULT, N> operator OP(T a, kv_vec<T, N> b) { return {LEFT}; }
#define KV_OPERATORS(RESULT, OP)                                                                        \
    KV_OPERATOR(RESULT, OP, 2, KV_EACH2(KV_BOTH), KV_EACH2(KV_LEFT), KV_EACH2(KV_RIGHT))                \
    KV_OPERATOR(RESULT, OP, 3, KV_EACH3(KV_BOTH), KV_EACH3(KV_LEFT), KV_EACH3(KV_RIGHT))                \
    KV_OPERATOR(RESULT, OP, 4, KV_EACH4(KV_BOTH), KV_EACH4(KV_LEFT), KV_EACH4(KV_RIGHT))
#define KV_BOTH(C) (T)(a.C + b.C)
#define KV_LEFT(C) (T)(a + b.C)
#define KV_RIGHT(C) (T)(a.C + b)
KV_OPERATORS(T, +)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT
#define KV_BOTH(C) (T)(a.C - b.C)
#define KV_LEFT(C) (T)(a - b.C)
#define KV_RIGHT(C) (T)(a.C - b)
KV_OPERATORS(T, -)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT
#define KV_BOTH(C) (T)(a.C * b.C)
#define KV_LEFT(C) (T)(a * b.C)
#define KV_RIGHT(C) (T)(a.C * b)
KV_OPERATORS(T, *)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT
#define KV_BOTH(C) (T)(a.C / b.C)
#define KV_LEFT(C) (T)(a / b.C)
#define KV_RIGHT(C) (T)(a.C / b)
KV_OPERATORS(T, /)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT
#define KV_BOTH(C) (T)(a.C % b.C)
#define KV_LEFT(C) (T)(a % b.C)
#define KV_RIGHT(C) (T)(a.C % b)
KV_OPERATORS(T, %)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT
#define KV_BOTH(C) (T)(a.C & b.C)
#define KV_LEFT(C) (T)(a & b.C)
#define KV_RIGHT(C) (T)(a.C & b)
KV_OPERATORS(T, &)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT
#define KV_BOTH(C) (T)(a.C | b.C)
#define KV_LEFT(C) (T)(a | b.C)
#define KV_RIGHT(C) (T)(a.C | b)
KV_OPERATORS(T, |)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT
#define KV_BOTH(C) (T)(a.C ^ b.C)
#define KV_LEFT(C) (T)(a ^ b.C)
#define KV_RIGHT(C) (T)(a.C ^ b)
KV_OPERATORS(T, ^)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT
#define KV_BOTH(C) (bool)(a.C == b.C)
#define KV_LEFT(C) (bool)(a == b.C)
#define KV_RIGHT(C) (bool)(a.C == b)
KV_OPERATORS(bool, ==)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT
#define KV_BOTH(C) (bool)(a.C != b.C)
#define KV_LEFT(C) (bool)(a != b.C)
#define KV_RIGHT(C) (bool)(a.C != b)
KV_OPERATORS(bool, !=)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT
#define KV_BOTH(C) (bool)(a.C < b.C)
#define KV_LEFT(C) (bool)(a < b.C)
#define KV_RIGHT(C) (bool)(a.C < b)
KV_OPERATORS(bool, <)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT
#define KV_BOTH(C) (bool)(a.C <= b.C)
#define KV_LEFT(C) (bool)(a <= b.C)
#define KV_RIGHT(C) (bool)(a.C <= b)
KV_OPERATORS(bool, <=)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT
#define KV_BOTH(C) (bool)(a.C > b.C)
#define KV_LEFT(C) (bool)(a > b.C)
#define KV_RIGHT(C) (bool)(a.C > b)
KV_OPERATORS(bool, >)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT
#define KV_BOTH(C) (bool)(a.C >= b.C)
#define KV_LEFT(C) (bool)(a >= b.C)
#define KV_RIGHT(C) (bool)(a.C >= b)
KV_OPERATORS(bool, >=)
#undef KV_BOTH
#undef KV_LEFT
#undef KV_RIGHT

// Functions of scalars first, then the same of vectors.
#define KV_UNARY(NAME, EXPRESSION)                                                                 \
    template <class T> KV_INLINE T NAME(T a) { return EXPRESSION; }                                \
    template <class T> KV_INLINE kv_vec<T, 2> NAME(kv_vec<T, 2> a) { return {NAME(a.x), NAME(a.y)}; } \
    template <class T> KV_INLINE kv_vec<T, 3> NAME(kv_vec<T, 3> a) { return {NAME(a.x), NAME(a.y), NAME(a.z)}; } \
    template <class T> KV_INLINE kv_vec<T, 4> NAME(kv_vec<T, 4> a) { return {NAME(a.x), NAME(a.y), NAME(a.z), NAME(a.w)}; }
#define KV_PAIRWISE(NAME, U, EXPRESSION)                                                           \
    template <class T> KV_INLINE T NAME(T a, U b) { return EXPRESSION; }                           \
    template <class T> KV_INLINE kv_vec<T, 2> NAME(kv_vec<T, 2> a, kv_vec<U, 2> b) { return {NAME(a.x, b.x), NAME(a.y, b.y)}; } \
    template <class T> KV_INLINE kv_vec<T, 3> NAME(kv_vec<T, 3> a, kv_vec<U, 3> b) { return {NAME(a.x, b.x), NAME(a.y, b.y), NAME(a.z, b.z)}; } \
    template <class T> KV_INLINE kv_vec<T, 4> NAME(kv_vec<T, 4> a, kv_vec<U, 4> b) { return {NAME(a.x, b.x), NAME(a.y, b.y), NAME(a.z, b.z), NAME(a.w, b.w)}; }

KV_INLINE float kv_min_of(float a, float b) { return fminf(a, b); }
KV_INLINE float kv_max_of(float a, float b) { return fmaxf(a, b); }
KV_INLINE unsigned kv_min_of(unsigned a, unsigned b) { return umin(a, b); }
KV_INLINE unsigned kv_max_of(unsigned a, unsigned b) { return umax(a, b); }
KV_INLINE int kv_min_of(int a, int b) { return min(a, b); }
KV_INLINE int kv_max_of(int a, int b) { return max(a, b); }
KV_INLINE float kv_abs_of(float a) { return fabsf(a); }
KV_INLINE int kv_abs_of(int a) { return abs(a); }
KV_INLINE unsigned kv_abs_of(unsigned a) { return a; }
KV_UNARY(kv_neg, (T)(-a))
KV_UNARY(kv_not, !a)
KV_UNARY(kv_complement, (T)(~a))
KV_UNARY(kv_abs, kv_abs_of(a))
KV_UNARY(kv_sign, (T)(a > (T)0 ? 1 : a < (T)0 ? -1 : 0))
KV_UNARY(kv_exp, expf(a))
KV_UNARY(kv_exp2, exp2f(a))
KV_UNARY(kv_log, logf(a))
KV_UNARY(kv_log2, log2f(a))
KV_UNARY(kv_sqrt, sqrtf(a))
KV_UNARY(kv_inverse_sqrt, 1.0f / sqrtf(a))
KV_UNARY(kv_tanh, tanhf(a))
KV_UNARY(kv_sin, sinf(a))
KV_UNARY(kv_cos, cosf(a))
KV_UNARY(kv_floor, floorf(a))
KV_UNARY(kv_ceil, ceilf(a))
KV_UNARY(kv_round, rintf(a))
KV_UNARY(kv_trunc, truncf(a))
KV_UNARY(kv_count_one_bits, (T)__popc((unsigned)a))
KV_UNARY(kv_count_leading_zeros, (T)__clz((int)a))
KV_UNARY(kv_first_trailing_bit, (T)(__ffs((int)a) - 1))
KV_UNARY(kv_reverse_bits, (T)__brev((unsigned)a))
KV_PAIRWISE(kv_min, T, kv_min_of(a, b))
KV_PAIRWISE(kv_max, T, kv_max_of(a, b))
KV_PAIRWISE(kv_pow, T, powf(a, b))
// Shifts count modulo 32.
KV_PAIRWISE(kv_shl, unsigned, (T)((unsigned)a << (b & 31u)))
KV_PAIRWISE(kv_shr, unsigned, (T)(a >> (b & 31u)))
#undef KV_UNARY
#undef KV_PAIRWISE

template <class T> KV_INLINE T kv_select(bool which, T yes, T no) { return which ? yes : no; }
#define KV_CHOICE(C) which.C ? yes.C : no.C
template <class T> KV_INLINE kv_vec<T, 2> kv_select(kv_vec<bool, 2> which, kv_vec<T, 2> yes, kv_vec<T, 2> no) { return {KV_EACH2(KV_CHOICE)}; }
template <class T> KV_INLINE kv_vec<T, 3> kv_select(kv_vec<bool, 3> which, kv_vec<T, 3> yes, kv_vec<T, 3> no) { return {KV_EACH3(KV_CHOICE)}; }
template <class T> KV_INLINE kv_vec<T, 4> kv_select(kv_vec<bool, 4> which, kv_vec<T, 4> yes, kv_vec<T, 4> no) { return {KV_EACH4(KV_CHOICE)}; }
#undef KV_CHOICE

template <class T> KV_INLINE T kv_clamp(T a, T low, T high) { return kv_min(kv_max(a, low), high); }
KV_INLINE float kv_fma(float a, float b, float c) { return fmaf(a, b, c); }
#define KV_FMA(C) fmaf(a.C, b.C, c.C)
template <class T> KV_INLINE kv_vec<T, 2> kv_fma(kv_vec<T, 2> a, kv_vec<T, 2> b, kv_vec<T, 2> c) { return {KV_EACH2(KV_FMA)}; }
template <class T> KV_INLINE kv_vec<T, 4> kv_fma(kv_vec<T, 4> a, kv_vec<T, 4> b, kv_vec<T, 4> c) { return {KV_EACH4(KV_FMA)}; }
#undef KV_FMA
template <class T> KV_INLINE T kv_dot(kv_vec<T, 2> a, kv_vec<T, 2> b) { return a.x * b.x + a.y * b.y; }
template <class T> KV_INLINE T kv_dot(kv_vec<T, 3> a, kv_vec<T, 3> b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
template <class T> KV_INLINE T kv_dot(kv_vec<T, 4> a, kv_vec<T, 4> b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
KV_INLINE bool kv_all(kv_vec<bool, 2> a) { return a.x && a.y; }
KV_INLINE bool kv_all(kv_vec<bool, 3> a) { return a.x && a.y && a.z; }
KV_INLINE bool kv_all(kv_vec<bool, 4> a) { return a.x && a.y && a.z && a.w; }
KV_INLINE bool kv_any(kv_vec<bool, 2> a) { return a.x || a.y; }
KV_INLINE bool kv_any(kv_vec<bool, 3> a) { return a.x || a.y || a.z; }
KV_INLINE bool kv_any(kv_vec<bool, 4> a) { return a.x || a.y || a.z || a.w; }

KV_INLINE float kv_half_value(unsigned bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
    return x;
}
KV_INLINE kv_vec<float, 2> kv_unpack2x16float(unsigned word) {
    return {kv_half_value(word & 0xffffu), kv_half_value(word >> 16)};
}

// Conversions saturate and turn NaN into 0.
template <class To> struct kv_to;
template <> struct kv_to<float> {
    template <class T> static KV_INLINE float of(T a) { return (float)a; }
};
template <> struct kv_to<unsigned> {
    static KV_INLINE unsigned of(float a) { return __float2uint_rz(a); }
    template <class T> static KV_INLINE unsigned of(T a) { return (unsigned)a; }
};
template <> struct kv_to<int> {
    static KV_INLINE int of(float a) { return __float2int_rz(a); }
    template <class T> static KV_INLINE int of(T a) { return (int)a; }
};
template <> struct kv_to<bool> {
    template <class T> static KV_INLINE bool of(T a) { return a != (T)0; }
};
template <class To> struct kv_bits;
template <> struct kv_bits<float> {
    static KV_INLINE float of(unsigned a) { return __uint_as_float(a); }
    static KV_INLINE float of(int a) { return __int_as_float(a); }
    static KV_INLINE float of(float a) { return a; }
};
template <> struct kv_bits<unsigned> {
    static KV_INLINE unsigned of(float a) { return __float_as_uint(a); }
    static KV_INLINE unsigned of(int a) { return (unsigned)a; }
    static KV_INLINE unsigned of(unsigned a) { return a; }
};
template <> struct kv_bits<int> {
    static KV_INLINE int of(float a) { return __float_as_int(a); }
    static KV_INLINE int of(unsigned a) { return (int)a; }
    static KV_INLINE int of(int a) { return a; }
};
template <class To, class T> KV_INLINE To kv_convert(T a) { return kv_to<To>::of(a); }
template <class To, class T> KV_INLINE To kv_bitcast(T a) { return kv_bits<To>::of(a); }
#define KV_TO(C) kv_to<To>::of(a.C)
template <class To, class T> KV_INLINE kv_vec<To, 2> kv_convert(kv_vec<T, 2> a) { return {KV_EACH2(KV_TO)}; }
template <class To, class T> KV_INLINE kv_vec<To, 3> kv_convert(kv_vec<T, 3> a) { return {KV_EACH3(KV_TO)}; }
template <class To, class T> KV_INLINE kv_vec<To, 4> kv_convert(kv_vec<T, 4> a) { return {KV_EACH4(KV_TO)}; }
#undef KV_TO
#define KV_BITS(C) kv_bits<To>::of(a.C)
template <class To, class T> KV_INLINE kv_vec<To, 2> kv_bitcast(kv_vec<T, 2> a) { return {KV_EACH2(KV_BITS)}; }
template <class To, class T> KV_INLINE kv_vec<To, 3> kv_bitcast(kv_vec<T, 3> a) { return {KV_EACH3(KV_BITS)}; }
template <class To, class T> KV_INLINE kv_vec<To, 4> kv_bitcast(kv_vec<T, 4> a) { return {KV_EACH4(KV_BITS)}; }
#undef KV_BITS

// Buffers that a kernel only reads go past the L1's coherence.
KV_INLINE unsigned kv_read(const unsigned& at) { return __ldg(&at); }
KV_INLINE float kv_read(const float& at) { return __ldg(&at); }
KV_INLINE kv_vec<unsigned, 2> kv_read(const kv_vec<unsigned, 2>& at) {
    const uint2 v = __ldg((const uint2*)&at);
    return {v.x, v.y};
}
KV_INLINE kv_vec<unsigned, 4> kv_read(const kv_vec<unsigned, 4>& at) {
    const uint4 v = __ldg((const uint4*)&at);
    return {v.x, v.y, v.z, v.w};
}
KV_INLINE kv_vec<float, 4> kv_read(const kv_vec<float, 4>& at) {
    const float4 v = __ldg((const float4*)&at);
    return {v.x, v.y, v.z, v.w};
}

// Workgroup memory at entry, where the text does not claim to write it first.
template <class T> KV_INLINE void kv_clear(T& variable) {
    unsigned* words = (unsigned*)&variable;
    for (unsigned i = threadIdx.x; i < sizeof(T) / 4u; i += blockDim.x) words[i] = 0u;
}
