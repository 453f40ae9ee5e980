//! What shaders claim by `#unzeroed`: with workgroup memory full of NaN patterns at entry, each gives the same bits.

use crate::codes::{FORMATS, codec, run};
use crate::rows::{append_on, shape};
use crate::support;
use kvarto::backend::wgpu::{OpenOptions, WgpuBackend};
use kvarto::backend::{
    Backend, BindingDecl, BufferSlice, Constant, CpuCall, Dispatch, Element, KernelDecl, Recording, Specialisation,
    read_blocking,
};
use kvarto::conformance::codes::edges;
use kvarto::conformance::grid::head_dim;
use kvarto::conformance::{BASES, Case, Kernel, Random};
use kvarto::shape::{PageGeometry, Side};

/// Runs `words` on Vulkan as it is and poisoned, and gives what both say.
fn both(mut words: impl FnMut(&mut dyn Backend) -> Vec<u32>) -> Option<[Vec<u32>; 2]> {
    let mut said = None;
    support::gpu::on("vulkan", |plain| {
        let options = OpenOptions { poison_workgroup: true, ..OpenOptions::default() };
        let mut poisoned: WgpuBackend = support::gpu::open("vulkan", &options).expect("a second device");
        said = Some([words(plain), words(&mut poisoned)]);
    });
    said
}

fn same(words: impl FnMut(&mut dyn Backend) -> Vec<u32>) {
    if let Some([plain, poisoned]) = both(words) {
        assert!(!plain.is_empty());
        let apart = plain.iter().zip(&poisoned).position(|(a, b)| a != b);
        assert!(plain == poisoned, "some kernel read what it had not written: word {apart:?} differs");
    }
}

/// query, decode or prefill, merge. Vectors of one and two quads, one token a thread and two, blocks of one page and of
/// many, last blocks that are not full, sequences without tokens, merges by slices and by channels.
#[test]
fn attention() {
    let cases = [
        Case { sequences: vec![(150, 1), (0, 1), (3, 1)], group: 1, row_tile: 1, first_position: 4, ..Case::default() },
        Case { k_dim: 80, v_dim: 96, group: 7, page_tokens: 16, sequences: vec![(190, 2)], ..Case::default() },
        Case { k_dim: 256, v_dim: 256, sequences: vec![(70, 3)], workgroup: 128, ..Case::default() },
        Case { k_dim: 192, v_dim: 128, page_tokens: 128, sequences: vec![(300, 1)], workgroup: 256, ..Case::default() },
    ];
    for (at, case) in cases.into_iter().enumerate() {
        for kernel in [Kernel::Decode, Kernel::Prefill] {
            let formats: [kvarto::conformance::Formats; 2] = [|_, _| ("f16", "fp8"), |_, _| ("tq3", "tq3")];
            let case = Case { kernel, basis: BASES[at % 3], formats: formats[at % 2], ..case.clone() };
            let case = Case { window: (at == 1).then_some(70), sink: (at == 2).then_some(0.5), ..case };
            let built = case.build().expect("a case");
            same(|backend| {
                let outcome = built.run(backend).unwrap_or_else(|e| panic!("{case:?}: {e}"));
                let states = outcome.partials.iter().map(|x| x.to_bits());
                outcome.out.iter().copied().chain(states).collect()
            });
        }
    }
}

#[test]
fn append() {
    for (shape, basis) in [(shape(64, 80, 16), 2), (shape(192, 128, 32), 1), (shape(96, 96, 16), 0)] {
        same(|backend| append_on(backend, &shape, ("f16", "f16"), BASES[basis], 64).concat());
    }
}

/// Every encoder, on both sides, with NaN and zeros among the values.
#[test]
fn convert() {
    for (side, name) in Side::BOTH.into_iter().flat_map(|side| FORMATS.map(|name| (side, name))) {
        let geometry = PageGeometry { tokens: 128, head_dim: head_dim(name, 80) };
        let (src, dst) = (codec("f32", side, geometry), codec(name, side, geometry));
        let values = edges(geometry, &mut Random::new(3));
        let mut pages = vec![0; values.len() * src.codec.layout().page_words];
        for (values, page) in values.iter().zip(pages.chunks_exact_mut(src.codec.layout().page_words)) {
            src.codec.encode(values, page);
        }
        same(|backend| run(backend, &src, &dst, &pages, &[128, 128, 100, 128, 128, 1]));
    }
}

/// Reads its workgroup memory before it writes any, and makes no claim.
static CARELESS: KernelDecl = KernelDecl {
    name: "careless",
    bindings: &[BindingDecl::write("out", Element::U32)],
    params: &[],
    constants: &["WORKGROUP"],
    codecs: &[],
    cpu: |_: &mut CpuCall<'_>| Ok(()),
    wgsl: "
var<workgroup> words: array<u32, WORKGROUP>;
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) lid: u32) {
    out[lid] = words[WORKGROUP - 1u - lid];
}
",
    cuda: None,
};

#[test]
fn poison_reaches_a_kernel_that_reads_before_it_writes() {
    let said = both(|backend| {
        let spec = Specialisation::new(&CARELESS, &[("WORKGROUP", Constant::U32(64))], vec![]).expect("a kernel");
        let pipeline = backend.prepare(&spec).unwrap_or_else(|e| panic!("{e}"));
        let out = BufferSlice::whole(backend.alloc("out", 256).expect("a buffer"), 256);
        let mut recording = Recording::new();
        recording.dispatch(Dispatch { pipeline, groups: 1, params: vec![], bindings: vec![out] });
        backend.submit(recording).expect("a submission");
        let bytes = read_blocking(backend, out.buffer, 0, 256).expect("a read");
        backend.free(out.buffer);
        bytemuck::pod_collect_to_vec(&bytes)
    });
    if let Some(said) = said {
        assert_eq!(said, [vec![0; 64], vec![u32::MAX; 64]]);
    }
}
