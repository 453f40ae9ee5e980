// y[row][out] (+)= sum of w[out][column] * x[row][column], over weights as they are stored.

extern "C" __global__ void __launch_bounds__(WORKGROUP, BLOCKS_AN_SM)
kvarto_kernel(const float4 *x, const unsigned char *__restrict__ w, float *y, const Params params) {
    extern __shared__ uint4 room[];
    linear_rows(x, w, y, params, room);
}
