//! A selector and a policy, as small as they can be; both keep a side plane and take taps.

use crate::peak;
use crate::tapped::Tapper;
use kvarto::Result;
use kvarto::backend::Backend;
use kvarto::engine::{TapCall, TapMemory};
use kvarto::needs::{Needs, TapKind, TapNeed};
use kvarto::policy::{Move, PageView, Policy};
use kvarto::select::{Question, Selector};
use kvarto::shape::CacheShape;

/// Pages 0, 3, 6, .. It is handed the queries of every layer.
#[derive(Default)]
pub struct EveryThird(pub Tapper);

impl Selector for EveryThird {
    fn name(&self) -> &str {
        "every-third"
    }

    fn summary(&self) -> &str {
        "pages 0, 3, 6 and so on"
    }

    fn reads(&self, _: &Question, page: usize) -> bool {
        page.is_multiple_of(3)
    }

    fn needs(&self, shape: &CacheShape) -> Needs {
        let layers = shape.groups.iter().flat_map(|g| g.layers.iter().copied()).collect();
        Needs { planes: vec![peak::spec()], taps: vec![TapNeed { kind: TapKind::Queries, layers, period_steps: 1 }] }
    }

    fn prepare(&self, backend: &mut dyn Backend, _: &CacheShape) -> Result<()> {
        self.0.prepare(backend)
    }

    fn tap(&self, call: &mut TapCall<'_>) -> Result<()> {
        // The planes that it declared are within reach of its kernels.
        let planes = call.planes.expect("a layer with a cache");
        assert_eq!(planes.place("peak")?.words, 1);
        assert!(planes.place("another").is_err());
        let segments: Vec<u32> = planes.segments().map(|(slice, first)| first + (slice.bytes == 0) as u32).collect();
        assert!(segments.first() == Some(&0) && segments.is_sorted());
        planes.descriptors()?;
        self.0.take(call)
    }

    fn before_step(&self, memory: &mut TapMemory<'_>) -> Result<()> {
        self.0.read(memory)
    }
}

/// Brings sealed pages 1, 3, 5, .. to `lin8`. It is handed the residual stream after layer 1 in every second step.
#[derive(Default)]
pub struct EverySecond(pub Tapper);

impl Policy for EverySecond {
    fn name(&self) -> &str {
        "every-second"
    }

    fn targets(&self) -> Vec<(String, String)> {
        vec![("lin8".into(), "lin8".into())]
    }

    fn needs(&self, _: &CacheShape) -> Needs {
        let taps = vec![TapNeed { kind: TapKind::Residual, layers: vec![1], period_steps: 2 }];
        Needs { planes: vec![peak::spec()], taps }
    }

    fn prepare(&mut self, backend: &mut dyn Backend, _: &CacheShape) -> Result<()> {
        self.0.prepare(backend)
    }

    fn tap(&mut self, call: &mut TapCall<'_>) -> Result<()> {
        self.0.take(call)
    }

    fn before_step(&mut self, memory: &mut TapMemory<'_>) -> Result<()> {
        self.0.read(memory)
    }

    fn decide(&mut self, pages: &[PageView]) -> Vec<Move> {
        let due = pages.iter().filter(|p| p.page % 2 == 1 && &*p.formats.0 != "lin8");
        due.map(|p| Move::Convert {
            sequence: p.sequence,
            layer: p.layer,
            kv_head: p.kv_head,
            page: p.page,
            k: "lin8".into(),
            v: "lin8".into(),
            reason: "every second page",
        })
        .collect()
    }
}
