// The sign (+1 or -1) of channel c ahead of the Hadamard transform: the CPU's num::hadamard_sign.
fn hadamard_sign(c: u32) -> f32 {
    var x = c + 0x9e3779b9u;
    x = (x ^ (x >> 16u)) * 0x7feb352du;
    x = (x ^ (x >> 15u)) * 0x846ca68bu;
    x = x ^ (x >> 16u);
    return select(1.0, -1.0, (x & 1u) == 1u);
}
