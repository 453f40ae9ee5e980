//! Chromium's WebGPU (Dawn, under Node) as a second implementation beside wgpu: it runs the conformance suite on OpenGL,
//! and is seen to refuse what browsers refuse. That it compiles every module is checked where the modules are listed, in
//! `shaders` and `dense_kernels`.

mod support;

use kvarto::backend::{
    Backend, BindingDecl, BufferId, BufferSlice, CpuCall, Dispatch, Element, KernelDecl, Recording, Specialisation,
};
use kvarto::conformance::{Options, run};
use support::dawn::backend::DawnBackend;
use support::dawn::{Dawn, Lane, enabled, needs};
use support::require_or_skip;

fn opengl() -> Option<DawnBackend> {
    DawnBackend::open().inspect_err(|reason| require_or_skip("dawn", reason)).ok()
}

#[test]
fn the_suite_passes_on_opengl() {
    let Some(mut backend) = opengl() else { return };
    let caps = backend.caps().clone();
    // What the floor tier may take for granted, and no more.
    let limits = (caps.max_workgroup_bytes, caps.max_invocations, caps.max_storage_buffers, caps.max_binding_bytes);
    assert_eq!(limits, (16384, 256, 8, 128 << 20));
    let report = run(&mut backend, &Options { quick: true, ..Options::default() }, &mut |_| ());
    let summary = report.summary();
    println!("{}, {}: {summary:?} in {:.1?}", caps.title(), caps.driver, report.time);
    assert!(report.passed(), "{:#?}", report.failures().collect::<Vec<_>>());
    assert_eq!((summary.skipped, summary.expected_failures), (0, 0));
    let of = |kernel: &str| report.results.iter().filter(|r| r.kernel == kernel).count();
    assert!(of("decode") >= 10 && of("prefill") >= 8 && of("pack") == 22 && of("unpack") == 22, "{summary:?}");
    assert_eq!(backend.allocated_bytes(), 0);
}

static PLAIN: KernelDecl = KernelDecl {
    name: "plain",
    bindings: &[BindingDecl::write("out", Element::U32)],
    params: &[],
    constants: &[],
    codecs: &[],
    cpu: |_: &mut CpuCall<'_>| Ok(()),
    wgsl: "
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x] = id.x + 7u * params.groups; }
",
    cuda: None,
};

fn plain() -> Specialisation {
    Specialisation::new(&PLAIN, &[], vec![]).expect("a kernel")
}

/// A module with `body` in its entry point.
fn module(outside: &str, body: &str) -> String {
    format!(
        "struct Params {{ groups: u32, pad_1: u32, pad_2: u32, pad_3: u32 }}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
{outside}
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32) {{
    out[lid] = params.groups;
    {body}
}}
"
    )
}

#[test]
fn what_browsers_refuse_is_refused() {
    let [mut floor, mut native] = match [Dawn::start(Lane::NullFloor), Dawn::start(Lane::NullNative)] {
        [Ok(floor), Ok(native)] => [floor, native],
        [Err(reason), _] | [_, Err(reason)] => return require_or_skip("dawn", &reason),
    };
    let spec = plain();
    let shared = "var<workgroup> shared_words: array<u32, 64>;";
    let f16 = module("", "out[lid] = u32(f16(params.groups));");
    let subgroup = module("", "out[lid] = subgroupAdd(lid);");
    assert_eq!((needs(&f16), needs(&subgroup)), (vec!["f16"], vec!["subgroups"]));
    for (text, said) in [
        (module(shared, "shared_words[lid] = lid; if (lid < 7u) { workgroupBarrier(); }"), "uniform"),
        (module("var<workgroup> much: array<vec4<u32>, 1025>;", "much[lid].x = lid;"), "16384"),
        (module("", "out[lid] = undeclared;"), "unresolved value 'undeclared'"),
        // A warning, no error: refused as well.
        (module("", "return; out[lid] = 1u;"), "warning at line 8, `return; out[lid] = 1u;`"),
        (module("@group(0) @binding(2) var<storage, read> other: array<u32>;", "out[lid] = other[lid];"), "binding"),
        (f16.clone(), "f16"),
        (subgroup.clone(), "subgroup"),
        (enabled(&f16), "f16"),
        (enabled(&subgroup), "subgroup"),
    ] {
        let message = floor.prepare_text(0, &spec, &text).expect_err(&text);
        assert!(message.to_lowercase().contains(said), "{said}: {message}");
    }
    for text in [&f16, &subgroup] {
        assert!(native.prepare_text(0, &spec, text).is_err(), "without its line: {text}");
        native.prepare_text(0, &spec, &enabled(text)).unwrap_or_else(|e| panic!("{e}"));
    }
    // After so many refusals it still takes what is right; words of comments ask for nothing.
    let right = module("// f16 and subgroupAdd", "let f16_scale = 1u; out[lid] = f16_scale;");
    assert!(needs(&right).is_empty());
    floor.prepare_text(0, &spec, &enabled(&right)).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn what_is_asked_is_done_and_faults_are_told() {
    let Some(mut backend) = opengl() else { return };
    // More groups than a dimension holds: folded, and those beyond the last write outside the buffer, to nothing.
    let groups = 70_000u32;
    let bytes = u64::from(groups) * 64 * 4;
    let pipeline = backend.prepare(&plain()).unwrap_or_else(|e| panic!("{e}"));
    let out = BufferSlice::whole(backend.alloc("out", bytes).expect("a buffer"), bytes);
    let mut recording = Recording::new();
    recording.dispatch(Dispatch { pipeline, groups, params: vec![], bindings: vec![out] });
    backend.submit(recording).expect("a submission");
    let read = |backend: &mut DawnBackend, offset| {
        let bytes = kvarto::backend::read_blocking(backend, out.buffer, offset, 8).expect("a read");
        bytemuck::pod_collect_to_vec::<u8, u32>(&bytes)
    };
    // `plain` does not unfold: the second row of groups writes what the first does, and 35000 groups a row remain.
    assert_eq!(read(&mut backend, 4), [1 + 7 * groups, 2 + 7 * groups]);
    assert_eq!(read(&mut backend, 35_000 * 64 * 4 - 4), [35_000 * 64 - 1 + 7 * groups, 0]);
    backend.write(out.buffer, 8, &[1, 0, 0, 0, 2, 0, 0, 0]).expect("a write");
    assert_eq!(read(&mut backend, 8), [1, 2]);

    let mut beyond = Recording::new();
    let slice = BufferSlice { offset: bytes, ..out };
    beyond.dispatch(Dispatch { pipeline, groups: 1, params: vec![], bindings: vec![slice] });
    assert!(backend.submit(beyond).is_err());
    let error = backend.write(BufferId(99), 0, &[0; 4]).expect_err("no such buffer");
    assert!(error.message().contains("buffer 99"), "{error}");
    assert_eq!(read(&mut backend, 8), [1, 2]);
    backend.free(out.buffer);
    assert!(kvarto::backend::read_blocking(&mut backend, out.buffer, 0, 8).is_err());
    assert_eq!((backend.allocated_bytes(), backend.peak_bytes()), (0, bytes));
}
