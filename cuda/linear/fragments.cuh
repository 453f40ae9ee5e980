// Products of stored blocks with activations, and activations as fragments.

// The products of a block's fragments of 16 outputs (rows g and g + 8 of a lane) with a fragment of activations. Two sums
// where halves have scales of their own.
KV_FN void multiply(float (&c)[2][4], const WeightLane &low, const WeightLane &high, uint4 b, bool begins) {
    if (begins) {
        Product::begin(c[0], low.a[0], high.a[0], low.a[1], high.a[1], b.x, b.y);
        if constexpr (Weight::SCALES == 2) Product::begin(c[1], low.a[2], high.a[2], low.a[3], high.a[3], b.z, b.w);
    } else {
        Product::add(c[0], low.a[0], high.a[0], low.a[1], high.a[1], b.x, b.y);
        if constexpr (Weight::SCALES == 2) Product::add(c[1], low.a[2], high.a[2], low.a[3], high.a[3], b.z, b.w);
    }
    if constexpr (Weight::SCALES < 2) Product::add(c[0], low.a[2], high.a[2], low.a[3], high.a[3], b.z, b.w);
    if constexpr (Weight::PARTS == 2) {
        Product::add(c[0], low.a[4], high.a[4], low.a[5], high.a[5], b.x, b.y);
        Product::add(c[0], low.a[6], high.a[6], low.a[7], high.a[7], b.z, b.w);
    }
}

// A sum of products with what belongs to its block.
KV_FN float scaled(float sum, float first, float second, const WeightLane &lane) {
    if constexpr (Weight::SCALES == 0) return sum + first;
    sum = fmaf(lane.scale[0], first, sum);
    if constexpr (Weight::SCALES == 2) sum = fmaf(lane.scale[1], second, sum);
    return sum;
}

// Fragments of a lane's eight activations of a block: rounded, and the rest.
KV_FN void fragments(const float (&x)[8], uint4 &whole, uint4 &rest) {
    constexpr unsigned SECOND = Weight::APART ? 2 : 1, THIRD = Weight::APART ? 1 : 2;
    Product::parts(x[0], x[SECOND], whole.x, rest.x);
    Product::parts(x[THIRD], x[3], whole.y, rest.y);
    Product::parts(x[4], x[4 + SECOND], whole.z, rest.z);
    Product::parts(x[4 + THIRD], x[7], whole.w, rest.w);
}

// A lane's eight activations of a block, made smaller; zeros past the end.
KV_FN void activations(const float4 *x, unsigned block, unsigned t, float (&to)[8]) {
    float4 first = make_float4(0.0f, 0.0f, 0.0f, 0.0f), second = first;
    if (COLUMNS % 32 == 0 || 32 * block + 4 * t < COLUMNS) first = x[8 * block + t];
    if (COLUMNS % 32 == 0 || 32 * block + 16 + 4 * t < COLUMNS) second = x[8 * block + 4 + t];
    constexpr float S = Product::SHRINK;
    to[0] = S * first.x, to[1] = S * first.y, to[2] = S * first.z, to[3] = S * first.w;
    to[4] = S * second.x, to[5] = S * second.y, to[6] = S * second.z, to[7] = S * second.w;
}

// Their sum over a block, in all four lanes of a row.
KV_FN float block_sum(const float (&x)[8]) {
    float sum = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

// The first four-column vector of a row of activations.
KV_FN const float4 *row_of(const float4 *x, const Params &params, unsigned row) {
    return x + (params.x_offset + (size_t)min(row, params.rows - 1) * params.x_stride) / 4;
}
