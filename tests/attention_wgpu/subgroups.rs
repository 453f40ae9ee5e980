//! Decode attention with subgroups of sizes that the adapter does not have.

use crate::support;
use kvarto::ErrorKind;
use kvarto::backend::Backend as _;
use kvarto::backend::wgpu::{OpenOptions, Without};
use kvarto::conformance::grid::mixed;
use kvarto::conformance::{Case, Formats, Kernel};

/// In f32, so that the limit is the tight one: a maximum taken over too few tokens, or a sum that lacks some, shows.
#[test]
fn subgroups_of_any_size_give_the_same() {
    for (size, workgroup) in [(4, 64), (16, 64), (32, 128), (64, 256), (128, 256)] {
        let without = Without { f16: true, ..Without::default() };
        let options = OpenOptions { play_subgroup: Some(size), without, ..OpenOptions::default() };
        let mut backend = match support::gpu::open("vulkan", &options) {
            Ok(backend) => backend,
            Err(error) => return support::require_or_skip("vulkan", &error.to_string()),
        };
        assert_eq!(backend.caps().played_subgroup, Some(size));
        let formats: Formats = |_, _| ("f32", "f32");
        let case = Case { formats, k_dim: 64, v_dim: 64, row_tile: 2, workgroup, ..mixed(Kernel::Decode) };
        let built = case.build().expect("a case");
        let tolerance = built.tolerance(backend.caps());
        assert!(tolerance < 1e-4);
        let outcome = built.run(&mut backend).expect("a run");
        let error = built.compare(&outcome, tolerance).unwrap_or_else(|e| panic!("size {size}: {e}"));
        println!("subgroups of {size} in {workgroup}: {error:.1e}");
    }
}

#[test]
fn sizes_that_are_none_are_refused() {
    for size in [0, 1, 2, 3, 12, 512] {
        let options = OpenOptions { play_subgroup: Some(size), ..OpenOptions::default() };
        match support::gpu::open("vulkan", &options) {
            Ok(_) => panic!("subgroups of {size}"),
            Err(error) if error.kind() == ErrorKind::Usage => assert!(error.to_string().contains(&size.to_string())),
            Err(error) => return support::require_or_skip("vulkan", &error.to_string()),
        }
    }
}
