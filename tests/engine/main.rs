//! The engine through its public interface, on the CPU, against a host model that keeps exact rows.

mod failures;
mod figures;
mod footprint;
mod model;
mod random;
mod rules;
