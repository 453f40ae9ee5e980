use super::*;
use crate::backend::{BindingDecl, CodecUse, CpuCall, Element, KernelDecl, ParamDecl};
use crate::format::FormatRegistry;
use crate::shape::{PageGeometry, Side};

fn no_code(_: &mut CpuCall<'_>) -> Result<()> {
    Ok(())
}

fn spec_of(wgsl: &'static str) -> Specialisation {
    let decl: &'static KernelDecl = Box::leak(Box::new(KernelDecl {
        name: "sample",
        bindings: const { &[BindingDecl::read("a", Element::F32x4), BindingDecl::write("b", Element::U32)] },
        params: const { &[ParamDecl::u32("rows"), ParamDecl::f32("scale")] },
        constants: &["N", "LOG", "FAST"],
        codecs: &[],
        cpu: no_code,
        wgsl,
        cuda: None,
    }));
    let constants = [("N", Constant::U32(5)), ("LOG", Constant::F32(0.1)), ("FAST", Constant::Bool(false))];
    Specialisation::new(decl, &constants, Vec::<CodecUse>::new()).unwrap()
}

fn text_of(wgsl: &'static str) -> String {
    assemble(&spec_of(wgsl), &AssembleOptions::default()).unwrap().text
}

fn fault_of(wgsl: &'static str) -> String {
    assemble(&spec_of(wgsl), &AssembleOptions::default()).unwrap_err().to_string()
}

const KERNEL: &str = "
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>) {
    let group = group_index(id, count);
    if group >= params.groups { return; }
    var local = array<f32, #{N}>();
#if FAST
    this is not WGSL
#elif N == 4
    nor is this
#elif N == 5
    local[0] = LOG * params.scale * a[0].x;
#else
    nor this
#endif
    b[group] = u32(local[0]) + N + params.rows;
}
";

#[test]
fn a_module_is_whole_and_valid() {
    let options = AssembleOptions { enables: vec!["f16".into()], ..AssembleOptions::default() };
    let text = assemble(&spec_of(KERNEL), &options).unwrap().text;
    assert!(text.starts_with("enable f16;\nconst N: u32 = 5u;\n"), "{text}");
    assert!(text.contains("array<f32, 5>"), "{text}");
    assert!(text.contains("@group(0) @binding(1) var<storage, read> a: array<vec4<f32>>;"), "{text}");
    assert!(text.contains("@group(0) @binding(2) var<storage, read_write> b: array<u32>;"), "{text}");
    let module = naga::front::wgsl::parse_str(&text).unwrap();
    let (_, params) = module.types.iter().find(|(_, t)| t.name.as_deref() == Some("Params")).unwrap();
    match &params.inner {
        naga::TypeInner::Struct { span, .. } => assert_eq!(u64::from(*span), params_bytes(2)),
        other => panic!("{other:?}"),
    }
    validate(&module);
}

fn validate(module: &naga::Module) {
    naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::all())
        .validate(module)
        .unwrap();
}

fn codec_spec(wgsl: &'static str, format: &str) -> Specialisation {
    let decl: &'static KernelDecl = Box::leak(Box::new(KernelDecl {
        name: "recode",
        bindings: const { &[BindingDecl::read("src_slab", Element::U32), BindingDecl::write("dst_slab", Element::U32)] },
        params: &[],
        constants: &["WORKGROUP"],
        codecs: &["src", "dst"],
        cpu: no_code,
        wgsl,
        cuda: None,
    }));
    let registry = FormatRegistry::builtin();
    let codec_of = |name: &str| {
        let geometry = PageGeometry { tokens: 64, head_dim: 64 };
        let codec = registry.by_name(name).unwrap().1.codec(Side::V, geometry).unwrap();
        CodecUse { format: name.into(), codec }
    };
    let constants = [("WORKGROUP", Constant::U32(64))];
    Specialisation::new(decl, &constants, vec![codec_of("f16"), codec_of(format)]).unwrap()
}

#[test]
fn codec_functions_are_there_once_where_asked_for() {
    const ENCODE: &str = "
#codec_encode dst
#codec_encode dst
fn source4(token: u32, c4: u32) -> vec4<f32> {
    return src_load4(0u, token, c4) * src_scale(0u, token);
}
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) lid: u32) {
    dst_encode_page(0u, lid);
}
";
    const STORE: &str = "
#codec_store dst
#codec_store dst
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) lid: u32) {
    dst_store4(0u, lid, 0u, src_load4(0u, lid, 0u) * src_scale(0u, lid));
}
";
    for (_, format) in FormatRegistry::builtin().iter() {
        let name = format.name();
        let options = AssembleOptions::default();
        let Module { text, unzeroed, .. } = assemble(&codec_spec(ENCODE, name), &options).unwrap();
        assert!(unzeroed, "{name}");
        validate(&naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{name}: {e}")));

        let spec = codec_spec(STORE, name);
        let writable = spec.codec("dst").token_writable();
        match assemble(&spec, &options) {
            Ok(Module { text, .. }) => {
                assert!(writable && !text.contains("dst_encode_page"), "{name}");
                validate(&naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{name}: {e}")));
            }
            Err(error) => {
                assert!(!writable, "{name}: {error}");
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.message().contains("recode.wgsl line 2: `#codec_store dst`"), "{error}");
            }
        }
    }
    assert!(!codec_spec(STORE, "tq3").codec("dst").token_writable(), "no format tries the refusal");
}

#[test]
fn blocks_are_multiples_of_sixteen() {
    assert_eq!((params_bytes(0), params_bytes(3), params_bytes(4), params_bytes(31)), (16, 16, 32, 128));
}

#[test]
fn floats_come_back_bit_for_bit() {
    let mut bits = 1u32;
    let mut values = vec![0.0, -0.0, 0.1, 1e30, f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1), -1.5, 16777216.0];
    for _ in 0..20_000 {
        bits = bits.wrapping_mul(1664525).wrapping_add(1013904223);
        values.push(f32::from_bits(bits));
    }
    for value in values.into_iter().filter(|v| v.is_finite()) {
        let text = f32_text("k", "C", value).unwrap();
        // As a compiler does: to f64 first, to f32 after.
        let back = text.parse::<f64>().unwrap() as f32;
        assert_eq!(back.to_bits(), value.to_bits(), "{value:?} as {text}");
        assert!(text.contains(['.', 'e']), "{text} would be an integer literal");
    }
}

#[test]
fn naga_reads_floats_bit_for_bit() {
    for value in [0.1f32, f32::MAX, f32::MIN_POSITIVE, -1.0 / 3.0, 1e-20, 7.0, f32::from_bits(0x007f_ffff)] {
        let text = format!("const C: f32 = {};", f32_text("k", "C", value).unwrap());
        let module = naga::front::wgsl::parse_str(&text).unwrap();
        let (_, constant) = module.constants.iter().next().unwrap();
        match module.global_expressions[constant.init] {
            naga::Expression::Literal(naga::Literal::F32(v)) => assert_eq!(v.to_bits(), value.to_bits(), "{text}"),
            ref other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn infinities_are_refused() {
    for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        assert!(f32_text("k", "C", value).unwrap_err().message().contains("no literal"));
    }
}

#[test]
fn conditions_nest_and_names_in_dead_branches_are_not_looked_up() {
    let text =
        text_of("#if FAST\n#if NOT_THERE\nx\n#else\ny\n#endif\n#include \"nowhere\"\n#else\nz #{N}#{FAST}\n#endif\n");
    assert!(text.ends_with("z 5false\n"), "{text}");
    assert!(!text.contains("\nx\n") && !text.contains("\ny\n"), "{text}");
}

#[test]
fn comparisons() {
    for (condition, holds) in [
        ("N", true),
        ("!N", false),
        ("!FAST", true),
        ("N == 5", true),
        ("N != 5", false),
        ("N < 6", true),
        ("N <= 4", false),
        ("N > 5", false),
        ("N >= 5", true),
    ] {
        let wgsl: &'static str = Box::leak(format!("#if {condition}\nyes\n#else\nno\n#endif\n").into_boxed_str());
        assert_eq!(text_of(wgsl).ends_with("yes\n"), holds, "{condition}");
    }
}

#[test]
fn loops_repeat_their_text() {
    let text =
        text_of("#for i < 2\n#for j < N-3\na_#{i}_#{2*j+1}\n#if i%2 == 1\nodd\n#endif\n#endfor\n#endfor\nend #{N}\n");
    assert!(text.ends_with("a_0_1\na_0_3\na_1_1\nodd\na_1_3\nodd\nend 5\n"), "{text}");
    let text = text_of("#if FAST\n#for i < WHAT\n#endfor\n#endif\n#for i < 0\nnothing of this\n#endfor\nend\n");
    assert!(text.ends_with("end\n") && !text.contains("nothing of this"), "{text}");
}

#[test]
fn extensions_are_enabled_where_they_are_asked_for() {
    let wgsl = "#for i < 2\n#enable f16\n#endfor\n#if FAST\n#enable subgroups\n#endif\n";
    let module = assemble(&spec_of(wgsl), &AssembleOptions::default()).unwrap();
    assert_eq!(module.enables, ["f16"]);
    assert!(module.text.starts_with("enable f16;\nconst "), "{}", module.text);
    let module = assemble(&spec_of("#enable subgroups\n"), &AssembleOptions::default()).unwrap();
    assert!(module.enables == ["subgroups"] && !module.text.contains("enable"), "{}", module.text);
}

#[test]
fn includes_come_once() {
    let text = text_of("#include \"lib/preamble.wgsl\"\n");
    assert_eq!(text.matches("fn group_index").count(), 1);
    let text =
        text_of("#include \"lib/hadamard.wgsl\"\n#include \"lib/hadamard.wgsl\"\n#include \"lib/numbers.wgsl\"\n");
    assert_eq!((text.matches("fn hadamard_sign").count(), text.matches("fn is_nan_bits").count()), (1, 1));
}

#[test]
fn malformed_directives_name_kernel_line_and_directive() {
    for (wgsl, wants) in [
        ("\n#if FAST\n", "line 2: `#if` is never closed"),
        ("#endif\n", "line 1: `#endif` has no #if before it"),
        ("#else\n", "line 1: `#else` has no #if before it"),
        ("#if FAST\n#else\n#elif N\n#endif\n", "line 3: `#elif N` comes after #else"),
        ("#if FAST\n#else\n#else\n#endif\n", "line 3: `#else` comes after #else"),
        ("#if FAST\n#else N\n#endif\n", "line 2: `#else N` takes no condition"),
        ("#if\n#endif\n", "line 1: `#if` has no condition"),
        ("#if N ==\n#endif\n", "line 1: `#if N ==` has no condition"),
        ("#if N = 3\n#endif\n", "unknown comparison"),
        ("#if N == x\n#endif\n", "no constant"),
        ("#if FAST == 1\n#endif\n", "not u32"),
        ("#if LOG\n#endif\n", "tests a float"),
        ("#if WHAT\n#endif\n", "names \"WHAT\""),
        ("a\nb #{WHAT}\n", "line 2: `b #{WHAT}` names \"WHAT\""),
        ("b #{N\n", "has #{ without }"),
        ("#define N 3\n", "`#define N 3` is not a directive"),
        ("#include lib/preamble.wgsl\n", "does not name a file in quotes"),
        ("#include \"lib/none.wgsl\"\n", "names no shared file"),
        ("#codec_store k\n", "names no codec role"),
        ("#codec_encode\n", "names no codec role"),
        ("#endif x\n", "takes nothing after it"),
        ("#unzeroed x\n", "takes nothing after it"),
        ("\n#for i < N\n", "line 2: `#for i < N` is never closed"),
        ("#for i < 2\n#for j < 2\n#endfor\n", "line 1: `#for i < 2` is never closed"),
        ("#endfor\n", "line 1: `#endfor` has no #for before it"),
        ("#for i\n#endfor\n", "has no loop that can be read"),
        ("#for N < 3\n#endfor\n", "stands for something already"),
        ("#for i < 2\n#for i < 2\n#endfor\n#endfor\n", "line 2: `#for i < 2` takes a name"),
        ("#for i < LOG\n#endfor\n", "is a u32"),
        ("#for i < 1\n#if N\n#endfor\n#endif\n", "line 2: `#if` is never closed"),
        ("#{N-6}\n", "without a value"),
        ("#{i+1}\n", "names \"i\""),
        ("#enable f64\n", "names no extension"),
        ("#codec_units k\n", "names no codec role"),
    ] {
        let message = fault_of(wgsl);
        assert!(message.starts_with("kernel sample, sample.wgsl line "), "{message}");
        assert!(message.contains(wants), "{wgsl:?}: {message}");
    }
}

#[test]
fn memory_is_left_uncleared_where_every_part_that_declares_some_claims_it() {
    const VARIABLE: &str = "var<workgroup> a: array<f32, 4>;\n";
    for (wgsl, unzeroed) in [
        (String::new(), true),
        ("// var<workgroup> in a comment\n".into(), true),
        (VARIABLE.into(), false),
        (format!("#unzeroed\n{VARIABLE}"), true),
        (format!("{VARIABLE}#unzeroed\n"), true),
        (format!("#if FAST\n#unzeroed\n#endif\n{VARIABLE}"), false),
        (format!("#if FAST\n{VARIABLE}#endif\n"), true),
        // The shared file's claim is its own, and says nothing of the kernel's variables.
        ("#include \"lib/hadamard_block.wgsl\"\n".into(), true),
        (format!("#include \"lib/hadamard_block.wgsl\"\n{VARIABLE}"), false),
        (format!("#include \"lib/hadamard_block.wgsl\"\n#unzeroed\n{VARIABLE}"), true),
    ] {
        let module = assemble(&spec_of(wgsl.clone().leak()), &AssembleOptions::default()).unwrap();
        assert_eq!(module.unzeroed, unzeroed, "{wgsl}");
        assert!(!module.text.contains("#unzeroed"), "{wgsl}");
    }
    let mut claims = claims::Claims::default();
    claims.codec("//#unzeroed\nvar<workgroup> p_a: u32;\n");
    assert!(claims.hold());
    claims.codec("var<workgroup> p_a: u32;\n");
    assert!(!claims.hold());
}

#[test]
fn poison_fills_every_workgroup_variable() {
    const WGSL: &str = "
struct Pair {
    a: u32,
    b: vec2<f32>,
}
alias Sum = vec4<f32>;
var<workgroup> sums: array<Sum, N>;
var<workgroup> pairs: array<Pair, 3>;
var<workgroup> bits: array<atomic<u32>, 2>;
var<workgroup> peak: atomic<u32>;
var<workgroup> one: i32;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    b[lid] = u32(sums[lid].x) + pairs[lid].a + atomicLoad(&bits[0]) + atomicLoad(&peak) + u32(one);
}
";
    let options = AssembleOptions { poison_workgroup: true, ..AssembleOptions::default() };
    let text = assemble(&spec_of(WGSL), &options).unwrap().text;
    validate(&naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{}", e.emit_to_string(&text))));
    for store in [
        "for (var poison_at = lid; poison_at < N; poison_at += 64) { sums[poison_at] = vec4<f32>(bitcast<f32>(poison_word)); }",
        "pairs[poison_at] = Pair(poison_word, vec2<f32>(bitcast<f32>(poison_word)));",
        "atomicStore(&bits[poison_at], poison_word);",
        "if (lid == 0u) { atomicStore(&peak, poison_word); }",
        "if (lid == 0u) { one = bitcast<i32>(poison_word); }",
    ] {
        assert!(text.contains(store), "{store} is not in\n{text}");
    }
    assert_eq!(assemble(&spec_of(KERNEL), &options).unwrap().text, text_of(KERNEL));
    for (wgsl, wants) in [
        (
            "var<workgroup> a: mat2x2<f32>;\n@compute @workgroup_size(1)\nfn main(@builtin(local_invocation_index) l: u32) {\n}",
            "the type",
        ),
        ("var<workgroup> a: u32;\n@compute @workgroup_size(1)\nfn main() {\n}", "no local_invocation_index"),
        ("var<workgroup> a:u32;\n", "the declaration"),
    ] {
        let message = assemble(&spec_of(wgsl), &options).unwrap_err().to_string();
        assert!(message.contains(wants), "{message}");
    }
}
