//! Masks: an adapter that plays a poorer one says so in its record, is held to it, and computes the same.
#![cfg(feature = "wgpu")]

#[cfg(feature = "cli")]
mod program;
#[path = "../support/mod.rs"]
mod support;

use kvarto::ErrorKind;
use kvarto::backend::wgpu::{Limit, LimitBase, LimitMask, OpenOptions, WgpuBackend, Without, adapters};
use kvarto::backend::{Backend, Caps};
use support::gpu::{APIS, on_new, open};

/// The record's value of a limit.
fn value(caps: &Caps, limit: Limit) -> u64 {
    match limit {
        Limit::BindingBytes => caps.max_binding_bytes,
        Limit::BufferBytes => caps.max_buffer_bytes,
        Limit::WorkgroupBytes => caps.max_workgroup_bytes.into(),
        Limit::Invocations => caps.max_invocations.into(),
        Limit::WorkgroupsPerDimension => caps.max_workgroups_per_dimension.into(),
        Limit::StorageBuffers => caps.max_storage_buffers.into(),
    }
}

fn masked(limits: LimitMask, without: Without) -> OpenOptions {
    OpenOptions { limits, without, ..OpenOptions::default() }
}

const ALL: Without = Without { f16: true, subgroups: true, timestamps: true };

#[test]
fn webgpu_defaults_are_what_the_record_says_and_what_the_device_has() {
    let options = masked(LimitMask::new(LimitBase::WebgpuDefault), ALL);
    for api in APIS {
        on_new(api, &options, |mut backend| {
            let caps = backend.caps().clone();
            for limit in Limit::ALL {
                let default = limit.of(&kvarto::wgpu::Limits::defaults());
                assert_eq!(
                    (value(&caps, limit), limit.of(&backend.device().limits())),
                    (default, default),
                    "{limit:?}"
                );
            }
            assert_eq!(caps.offset_alignment, 256);
            assert_eq!((caps.tier.as_str(), caps.f16, caps.subgroups, caps.timestamps), ("floor", false, None, false));
            assert!(caps.features.is_empty() && backend.device().features().is_empty(), "{:?}", caps.features);
            assert_eq!(caps.masked[0], "limits=webgpu-default");
            assert_eq!(caps.masked[1..], ["without f16", "without subgroups", "without timestamps"]);
            let error = backend.alloc("more", (256 << 20) + 16).unwrap_err();
            assert!(error.message().contains("allows 268435456"), "{error}");
        });
    }
}

#[test]
fn unmasked_the_record_is_the_adapters() {
    for api in APIS {
        on_new(api, &OpenOptions::default(), |backend| {
            let caps = backend.caps();
            let report = adapters().into_iter().find(|r| r.api == api && r.index == 0).expect("the adapter's report");
            for limit in Limit::ALL {
                let has = limit.of(&report.limits);
                let has = if limit == Limit::BindingBytes { has.min(report.limits.max_buffer_size) } else { has };
                // Sizes of buffers are cut to whole 16 bytes.
                assert!(value(caps, limit) <= has && value(caps, limit) + 15 >= has, "{limit:?}: {has}");
            }
            let offered = |name: &str| report.features.iter().any(|f| f == name);
            assert_eq!((caps.f16, caps.timestamps), (offered("shader_f16"), offered("timestamp_query")));
            assert_eq!(caps.subgroups.is_some(), offered("subgroup"));
            assert!(caps.subgroups.is_none_or(|(least, most)| (1..=most).contains(&least) && most <= 128), "{caps:?}");
            let native = caps.f16 || caps.subgroups.is_some();
            assert_eq!(caps.tier, if native { "native" } else { "floor" });
            assert_eq!(
                caps.features.len(),
                [caps.f16, caps.subgroups.is_some(), caps.timestamps].iter().filter(|x| **x).count()
            );
            assert!(caps.masked.is_empty());
        });
    }
}

#[test]
fn each_feature_can_be_left_out_alone() {
    for (at, word) in Without::WORDS.into_iter().enumerate() {
        let without = Without::parse(word).expect("a word");
        on_new("vulkan", &masked(LimitMask::default(), without), |backend| {
            let caps = backend.caps();
            let left = [!caps.f16, caps.subgroups.is_none(), !caps.timestamps];
            assert!(left[at], "{word}: {:?}", caps.features);
            let name = ["shader_f16", "subgroup", "timestamp_query"][at];
            assert!(!caps.features.iter().any(|f| f == name), "{word}: {:?}", caps.features);
            let feature = [
                kvarto::wgpu::Features::SHADER_F16,
                kvarto::wgpu::Features::SUBGROUP,
                kvarto::wgpu::Features::TIMESTAMP_QUERY,
            ][at];
            assert!(!backend.device().features().contains(feature), "the device has what was masked");
            assert_eq!(caps.masked, [format!("without {word}")]);
        });
    }
}

#[test]
fn what_cannot_be_had_is_refused_with_limit_and_value() {
    for api in APIS {
        on_new(api, &OpenOptions::default(), |backend| {
            let most = backend.caps().max_workgroup_bytes;
            let refused = |mask: LimitMask| open(api, &masked(mask, Without::default())).err().expect("a refusal");
            let error = refused(LimitMask::default().with(Limit::WorkgroupBytes, u64::from(most) + 1));
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let said = error.to_string();
            for word in [format!("max_workgroup_bytes={}", most + 1), format!("has {most}")] {
                assert!(said.contains(&word), "{said}");
            }
            assert_eq!(refused(LimitMask::default().with(Limit::StorageBuffers, 7)).kind(), ErrorKind::Usage);
            // A caller's own device is held to masks as well, and to what it has.
            let (device, queue) = (backend.device().clone(), backend.queue().clone());
            let own = |mask: LimitMask, without: Without| {
                let options = OpenOptions { take_callbacks: false, ..masked(mask, without) };
                WgpuBackend::from_device(device.clone(), queue.clone(), &options)
            };
            let poorer = own(LimitMask::new(LimitBase::WebgpuDefault).with(Limit::BindingBytes, 1 << 20), ALL);
            let caps = poorer.expect("a backend").caps().clone();
            assert_eq!(
                (caps.max_binding_bytes, caps.max_workgroup_bytes, caps.tier.as_str()),
                (1 << 20, 16384, "floor")
            );
            assert!(!caps.f16 && caps.subgroups.is_none() && caps.features.is_empty());
            let error = own(LimitMask::default().with(Limit::Invocations, 1 << 20), Without::default()).err();
            assert_eq!(error.map(|e| e.kind()), Some(ErrorKind::Unsupported));
        });
    }
}
