//! append, query, mean and copy_slots against the CPU's kernels.

use crate::{cpu, on_each};
use kvarto::backend::{Backend, BufferSlice, CodecUse, Recording, read_blocking};
use kvarto::conformance::{BASES, POISON, Random};
use kvarto::format::FormatRegistry;
use kvarto::kernel::attention::AttentionShape;
use kvarto::kernel::{MeanPlace, RowView, SideBases, append, copy_slots, maps, mean, query};
use kvarto::shape::{PageGeometry, Side};

/// Elements ahead of row 0 and between rows.
const OFFSET: usize = 8;
const GAP: usize = 4;

pub fn shape(k_dim: usize, v_dim: usize, page_tokens: usize) -> AttentionShape {
    AttentionShape { kv_heads: 2, group: 3, k_dim, v_dim, page_tokens, window: false, softcap: false }
}

fn buffer(backend: &mut dyn Backend, words: &[u32]) -> BufferSlice {
    let bytes = (words.len() * 4) as u64;
    let id = backend.alloc("test", bytes).expect("a buffer");
    backend.write(id, 0, bytemuck::cast_slice(words)).expect("a write");
    BufferSlice::whole(id, bytes)
}

fn words(backend: &mut dyn Backend, slice: BufferSlice) -> Vec<u32> {
    let bytes = read_blocking(backend, slice.buffer, slice.offset, slice.bytes).expect("a read");
    bytemuck::pod_collect_to_vec(&bytes)
}

/// Rows of normal values with NaN ahead and between.
fn rows(random: &mut Random, count: usize, floats: usize) -> Vec<u32> {
    let mut out = vec![POISON; OFFSET];
    for _ in 0..count {
        out.extend(random.normal(floats).iter().map(|x| x.to_bits()));
        out.extend([POISON; GAP]);
    }
    out
}

fn view(slice: BufferSlice, floats: usize) -> RowView {
    RowView { slice, offset: OFFSET as u32, stride: (floats + GAP) as u32 }
}

fn close(got: &[u32], want: &[u32], tolerance: f32, what: &str) {
    assert_eq!(got.len(), want.len());
    for (at, (&got, &want)) in got.iter().zip(want).enumerate() {
        if want == POISON || got == POISON {
            assert_eq!(got, want, "{what}: element {at}");
            continue;
        }
        let (got, want) = (f32::from_bits(got), f32::from_bits(want));
        assert!((got - want).abs() <= tolerance * want.abs().max(1.0), "{what}: element {at}: {got}, CPU {want}");
    }
}

/// Two pages a head; token t of row t into the first page from token 3 on, the last row into the second page.
pub fn append_on(
    backend: &mut dyn Backend,
    shape: &AttentionShape,
    formats: (&str, &str),
    bases: SideBases,
    workgroup: u32,
) -> [Vec<u32>; 2] {
    let registry = FormatRegistry::builtin();
    let codec = |name: &str, side, head_dim| {
        let (_, format) = registry.by_name(name).expect("a format");
        let geometry = PageGeometry { tokens: shape.page_tokens, head_dim };
        CodecUse { format: name.into(), codec: format.codec(side, geometry).expect("a codec") }
    };
    let (k, v) = (codec(formats.0, Side::K, shape.k_dim), codec(formats.1, Side::V, shape.v_dim));
    let mut random = Random::new(11);
    let (count, heads) = (5, shape.kv_heads);
    let k_in = rows(&mut random, count, heads * shape.k_dim);
    let v_in = rows(&mut random, count, heads * shape.v_dim);
    let means: Vec<u32> =
        random.normal(3 * 2 * heads * (shape.k_dim + shape.v_dim)).iter().map(|x| x.to_bits()).collect();
    // Descriptors 1 and 3 are the first pages of the heads, 0 and 2 the second ones; slots are crossed.
    let mut descs = vec![POISON; 4 * 8];
    for id in 0..4 {
        descs[id * 8] = 0;
        descs[id * 8 + 4] = [2, 5, 0, 4][id];
        descs[id * 8 + 5] = [5, 1, 3, 0][id];
    }
    let mut tables = vec![POISON; 4];
    tables.extend([1, 3, 0, 2]);
    let items_at = tables.len();
    (0..count).for_each(|row| {
        let (token, list) = if row == count - 1 { (0, 6) } else { (3 + row, 4) };
        tables.extend([row as u32, token as u32, list, 0]);
    });
    let rows_at = tables.len();
    (0..count).for_each(|row| tables.extend([row as u32, 0, row as u32, row as u32 % 3]));

    let of_maps = maps::layer_floats(bases, heads, shape.k_dim, shape.v_dim).iter().sum::<usize>();
    let maps: Vec<u32> = random.normal(of_maps.max(4)).iter().map(|x| x.to_bits()).collect();
    let k_slab = buffer(backend, &vec![POISON; 6 * k.codec.layout().page_words]);
    let v_slab = buffer(backend, &vec![POISON; 6 * v.codec.layout().page_words]);
    let (k_in, v_in) = (buffer(backend, &k_in), buffer(backend, &v_in));
    let buffers = append::Buffers {
        k_in: view(k_in, heads * shape.k_dim),
        v_in: view(v_in, heads * shape.v_dim),
        tables: buffer(backend, &tables),
        descs: buffer(backend, &descs),
        means: buffer(backend, &means),
        maps: buffer(backend, &maps),
        k_slab,
        v_slab,
    };
    let spec = append::specialise(shape, k, v, bases, workgroup).expect("a kernel");
    let pipeline = backend.prepare(&spec).unwrap_or_else(|e| panic!("{e}"));
    let place = MeanPlace::new(shape, 2, 1);
    let args = append::Args { items: count as u32, items_at: items_at as u32, rows_at: rows_at as u32, means: place };
    let mut recording = Recording::new();
    recording.dispatch(append::dispatch(pipeline, heads, &buffers, &args));
    backend.submit(recording).expect("a submission");
    [words(backend, k_slab), words(backend, v_slab)]
}

#[test]
fn append_stores_the_bits_of_the_cpu() {
    on_each(|backend| {
        let mixed = SideBases { k: BASES[2].k, v: BASES[0].v };
        for (shape, formats, bases, workgroup) in [
            (shape(64, 64, 16), ("f16", "f16"), BASES[0], 64),
            (shape(128, 80, 64), ("f16", "bf16"), BASES[1], 64),
            (shape(192, 128, 32), ("f32", "f16"), mixed, 128),
            (shape(96, 256, 128), ("bf16", "f32"), BASES[2], 64),
        ] {
            let got = append_on(backend, &shape, formats, bases, workgroup);
            let want = append_on(&mut cpu(), &shape, formats, bases, workgroup);
            assert!(want[0].iter().any(|w| *w != POISON) && want[1].iter().any(|w| *w != POISON));
            assert_eq!(got, want, "{shape:?} {formats:?} {bases:?}");
        }
    });
}

#[test]
fn append_maps_rows_as_the_cpu_does() {
    on_each(|backend| {
        let calibrated = kvarto::conformance::CALIBRATED;
        for (shape, bases, workgroup) in [
            (shape(80, 64, 16), BASES[3], 64),
            (shape(64, 192, 32), SideBases { k: calibrated.v, v: calibrated.k }, 128),
            (shape(256, 96, 64), calibrated, 256),
        ] {
            let got = append_on(backend, &shape, ("f32", "f32"), bases, workgroup);
            let want = append_on(&mut cpu(), &shape, ("f32", "f32"), bases, workgroup);
            for (got, want) in got.iter().zip(&want) {
                assert!(want.iter().filter(|w| **w != POISON).count() > 500);
                // Products may be fused, and fall out of step in the sums.
                close(got, want, 1e-4, &format!("{shape:?} {bases:?}"));
            }
        }
    });
}

fn query_on(backend: &mut dyn Backend, shape: &AttentionShape, at: usize) -> Vec<u32> {
    let mut random = Random::new(5);
    let (count, floats) = (4, shape.q_heads() * shape.k_dim);
    let q_in = rows(&mut random, count, floats);
    let means: Vec<u32> =
        random.normal(2 * shape.kv_heads * (shape.k_dim + shape.v_dim)).iter().map(|x| x.to_bits()).collect();
    let of_maps = maps::region_floats(BASES[at].k, shape.kv_heads, shape.k_dim).max(4);
    let maps: Vec<u32> = random.normal(of_maps).iter().map(|x| x.to_bits()).collect();
    let mut tables = vec![POISON; 4];
    (0..count).for_each(|row| tables.extend([row as u32, 0, row as u32, row as u32 % 2]));
    let q_in = buffer(backend, &q_in);
    let q_out = buffer(backend, &vec![POISON; count * shape.q_heads() * shape.query_floats() + 4]);
    let buffers = query::Buffers {
        q_in: view(q_in, floats),
        tables: buffer(backend, &tables),
        means: buffer(backend, &means),
        maps: buffer(backend, &maps),
        q_out,
    };
    let spec = query::specialise(shape, BASES[at].k, [64, 128, 256, 64][at]).expect("a kernel");
    let pipeline = backend.prepare(&spec).unwrap_or_else(|e| panic!("{e}"));
    let args = query::Args { rows_at: 4, rows: count as u32, means: MeanPlace::new(shape, 1, 0), scale: 0.3 };
    let mut recording = Recording::new();
    recording.dispatch(query::dispatch(pipeline, shape.q_heads(), &buffers, &args));
    backend.submit(recording).expect("a submission");
    words(backend, q_out)
}

#[test]
fn query_agrees_with_the_cpu() {
    on_each(|backend| {
        let shapes = [shape(64, 64, 16), shape(80, 64, 16), shape(192, 128, 16), shape(96, 64, 16)];
        for (at, shape) in shapes.iter().enumerate() {
            let (got, want) = (query_on(backend, shape, at), query_on(&mut cpu(), shape, at));
            let pads = want[shape.k_dim + 1..shape.k_dim + 4].iter().map(|w| f32::from_bits(*w));
            let [down, up, zero] = pads.collect::<Vec<_>>()[..] else { panic!("three pads") };
            let peak = want[..shape.k_dim].iter().fold(0.0f32, |most, w| most.max(f32::from_bits(*w).abs()));
            assert!(down * up == 1.0 && peak * down < 1.0 && peak * down >= 0.5 && zero == 0.0, "{down} {up} {zero}");
            close(&got, &want, 1e-5, &format!("{shape:?}"));
        }
    });
}

fn mean_on(backend: &mut dyn Backend, shape: &AttentionShape) -> Vec<u32> {
    let mut random = Random::new(6);
    let heads = shape.kv_heads;
    let (k_in, v_in) = (rows(&mut random, 70, heads * shape.k_dim), rows(&mut random, 70, heads * shape.v_dim));
    let mut tables = vec![POISON; 4];
    tables.extend([0, 1, 2, 0, 1, 69, 0, 0]);
    let (k_in, v_in) = (buffer(backend, &k_in), buffer(backend, &v_in));
    let place = MeanPlace::new(shape, 2, 1);
    let means = buffer(backend, &vec![POISON; 3 * place.stride as usize]);
    let buffers = mean::Buffers {
        k_in: view(k_in, heads * shape.k_dim),
        v_in: view(v_in, heads * shape.v_dim),
        tables: buffer(backend, &tables),
        means,
    };
    let spec = mean::specialise(shape, 64).expect("a kernel");
    let pipeline = backend.prepare(&spec).unwrap_or_else(|e| panic!("{e}"));
    let mut recording = Recording::new();
    recording.dispatch(mean::dispatch(pipeline, heads, &buffers, &mean::Args { items: 2, items_at: 4, means: place }));
    backend.submit(recording).expect("a submission");
    words(backend, means)
}

#[test]
fn mean_agrees_with_the_cpu() {
    on_each(|backend| {
        let shape = shape(80, 128, 16);
        let (got, want) = (mean_on(backend, &shape), mean_on(&mut cpu(), &shape));
        assert!(want.iter().any(|w| *w != POISON));
        close(&got, &want, 1e-6, "means");
    });
}

fn copy_on(backend: &mut dyn Backend) -> Vec<u32> {
    let slab: Vec<u32> = (0..6 * 100).collect();
    let slab = buffer(backend, &slab);
    let tables = buffer(backend, &[POISON, POISON, POISON, POISON, 0, 4, POISON, 0, 2, 5, POISON, 0]);
    let pipeline =
        backend.prepare(&copy_slots::specialise(100, 64).expect("a kernel")).unwrap_or_else(|e| panic!("{e}"));
    let mut recording = Recording::new();
    let args = copy_slots::Args { items: 2, items_at: 4 };
    recording.dispatch(copy_slots::dispatch(pipeline, &copy_slots::Buffers { slab, tables }, &args));
    backend.submit(recording).expect("a submission");
    words(backend, slab)
}

#[test]
fn slots_are_copied() {
    on_each(|backend| {
        let got = copy_on(backend);
        assert_eq!(got, copy_on(&mut cpu()));
        assert_eq!((got[400], got[599], got[399], got[0]), (0, 299, 399, 0));
    });
}
