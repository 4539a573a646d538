//! Random numbers that depend on a seed and the number of a request only, so that threads do not change them.

/// A number between 0 and 1, never 0; the same for the same arguments.
pub(super) fn uniform(seed: u64, number: u64, stream: u64) -> f64 {
    let mixed = mix(mix(mix(seed) ^ number) ^ stream);
    ((mixed >> 11) as f64 + 1.0) / (1u64 << 53) as f64
}

/// A lognormal number: `median`, and the standard deviation of the logarithm.
pub(super) fn lognormal(median: f64, sigma: f64, (one, other): (f64, f64)) -> f64 {
    let normal = (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos();
    median * (sigma * normal).exp()
}

fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
