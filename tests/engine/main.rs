//! The engine through its public interface, on the CPU, against a host model that keeps exact rows.

mod budget;
mod failures;
mod figures;
mod footprint;
mod keys;
mod model;
mod random;
mod rounds;
mod rules;
mod window;
