//! Every specialisation as SPIR-V, MSL and HLSL, within WebGPU's default limits; no adapter needed.

use kvarto::backend::Specialisation;
use kvarto::backend::assemble::{AssembleOptions, Module, assemble};
use kvarto::kernel::gated_mul::Activation;
use kvarto::kernel::linear::{self, LinearPath};
use kvarto::kernel::{add, argmax, embed, gated_mul, gather, head_norm, rms_norm, rope};
use kvarto::num::rope::Pairing;
use kvarto::num::weights::WeightType;

fn every_specialisation() -> Vec<Specialisation> {
    let mut all = vec![
        add::specialise(),
        argmax::specialise(),
        gather::specialise(),
        gated_mul::specialise(Activation::Silu),
        gated_mul::specialise(Activation::GeluTanh),
        head_norm::specialise(64),
        head_norm::specialise(256),
        rms_norm::specialise(64),
        rms_norm::specialise(4096),
        rope::specialise(64, 64, Pairing::Adjacent),
        rope::specialise(80, 32, Pairing::HalfSplit),
    ];
    for weight in WeightType::ALL {
        all.push(embed::specialise(weight, 576));
        for path in LinearPath::ALL {
            for columns in [576, 4096] {
                all.extend([false, true].map(|accumulate| linear::specialise(weight, columns, accumulate, path)));
            }
        }
    }
    all.into_iter().map(Result::unwrap).collect()
}

#[test]
fn every_shader_is_valid_for_every_api() {
    for spec in every_specialisation() {
        let key = spec.key();
        let Module { text, unzeroed, .. } = assemble(&spec, &AssembleOptions::default()).unwrap();
        assert!(unzeroed, "{key}: clearing its workgroup memory would make it slow to compile");
        let module =
            naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{key}: {}", e.emit_to_string(&text)));
        // What the floor tier may use: WebGPU's own functions and no optional feature.
        let info = naga::valid::Validator::new(
            naga::valid::ValidationFlags::all(),
            naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32,
        )
        .validate(&module)
        .unwrap_or_else(|e| panic!("{key}: {}", e.emit_to_string(&text)));
        let entry = &module.entry_points[0];
        assert!(entry.workgroup_size.iter().product::<u32>() <= 256, "{key}");
        let layout = {
            let mut layouter = naga::proc::Layouter::default();
            layouter.update(module.to_ctx()).unwrap();
            layouter
        };
        let shared: u32 = module
            .global_variables
            .iter()
            .filter(|(_, v)| v.space == naga::AddressSpace::WorkGroup)
            .map(|(_, v)| layout[v.ty].size)
            .sum();
        assert!(shared <= 16 << 10, "{key}: {shared} bytes of workgroup memory");

        naga::back::spv::write_vec(&module, &info, &naga::back::spv::Options::default(), None)
            .unwrap_or_else(|e| panic!("{key}: {e}"));
        naga::back::msl::write_string(&module, &info, &Default::default(), &Default::default())
            .unwrap_or_else(|e| panic!("{key}: {e}"));
        let (options, pipeline) = Default::default();
        let mut hlsl = String::new();
        naga::back::hlsl::Writer::new(&mut hlsl, &options, &pipeline)
            .write(&module, &info, None)
            .unwrap_or_else(|e| panic!("{key}: {e}"));
        assert!(hlsl.contains("numthreads"), "{key}");
    }
}

#[test]
fn dawn_compiles_every_dense_kernel() {
    match crate::support::dawn::compile_all(&every_specialisation()) {
        Ok([floor, native]) => println!("{floor} modules without extensions, {native} with"),
        Err(reason) => crate::support::require_or_skip("dawn", &reason),
    }
}
