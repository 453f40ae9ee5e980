//! Runs of launches that come again, kept as graphs: the driver is told once what they are, then what has changed of them.
//!
//! A token's step is hundreds of launches, of which from one token to the next few have another argument: lengths and
//! tables are in the device's memory. Told one by one, they keep the host busy longer than the device.

#![allow(unsafe_code)]

use super::driver::{Stream, fault};
use super::function::Function;
use super::launch::Launch;
use crate::error::{ErrorKind, Result};
use cudarc::driver::sys;

/// Launches below which a run goes one by one.
const FEWEST: usize = 12;
/// Launches above which making a graph is not worth its memory.
const MOST: usize = 8192;
/// Graphs kept; the one that was used longest ago goes first.
const KEPT: usize = 8;
/// Runs remembered to see whether one comes again.
const REMEMBERED: usize = 16;

/// A run's kernels, one after another, as the driver holds them.
struct Graph {
    graph: sys::CUgraph,
    ready: sys::CUgraphExec,
    nodes: Vec<sys::CUgraphNode>,
    /// What the nodes are told at present.
    launches: Vec<Launch>,
    used: u64,
}

// SAFETY: the driver's graphs may be used from any thread, by one at a time.
unsafe impl Send for Graph {}

/// The graphs of a stream.
#[derive(Default)]
pub(super) struct Graphs {
    kept: Vec<Graph>,
    /// Pipelines of runs that were seen lately and are no graph yet.
    seen: Vec<Vec<usize>>,
    turn: u64,
}

impl Graphs {
    /// Queues the run as a graph if it came before with the same pipelines; whether it did.
    ///
    /// # Errors
    /// What the driver says: nothing of the run was queued then.
    pub(super) fn run<'a>(
        &mut self,
        stream: &Stream,
        launches: &[Launch],
        function: impl Fn(&Launch) -> &'a Function,
    ) -> Result<bool> {
        if !(FEWEST..=MOST).contains(&launches.len()) {
            return Ok(false);
        }
        self.turn += 1;
        let same = |graph: &Graph| {
            let pairs = graph.launches.iter().zip(launches);
            graph.launches.len() == launches.len() && pairs.clone().all(|(a, b)| a.pipeline == b.pipeline)
        };
        let at = match self.kept.iter().position(same) {
            Some(at) => at,
            None if self.comes_again(launches) => {
                if self.kept.len() == KEPT
                    && let Some(oldest) = (0..KEPT).min_by_key(|&at| self.kept[at].used)
                {
                    self.kept.swap_remove(oldest);
                }
                match Graph::new(launches, &function) {
                    Ok(graph) => self.kept.push(graph),
                    // Launches one by one need none.
                    Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                        log::warn!("no graph of {} launches, they go one by one: {}", launches.len(), error.message());
                        return Ok(false);
                    }
                    Err(error) => return Err(error),
                }
                self.kept.len() - 1
            }
            None => return Ok(false),
        };
        let graph = &mut self.kept[at];
        graph.used = self.turn;
        graph.tell(launches, &function)?;
        stream.launch_graph(graph.ready)?;
        Ok(true)
    }

    /// Whether a run with these pipelines was seen lately; it is remembered if not.
    fn comes_again(&mut self, launches: &[Launch]) -> bool {
        let pipelines: Vec<usize> = launches.iter().map(|launch| launch.pipeline).collect();
        if let Some(at) = self.seen.iter().position(|seen| *seen == pipelines) {
            self.seen.swap_remove(at);
            return true;
        }
        if self.seen.len() == REMEMBERED {
            self.seen.remove(0);
        }
        self.seen.push(pipelines);
        false
    }
}

impl Graph {
    fn new<'a>(launches: &[Launch], function: &impl Fn(&Launch) -> &'a Function) -> Result<Self> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: writes one pointer; destroyed with what is made below.
        unsafe { sys::cuGraphCreate(&mut graph, 0) }.result().map_err(|e| fault(e, "making a graph"))?;
        let mut made = Graph {
            graph,
            ready: std::ptr::null_mut(),
            nodes: Vec::with_capacity(launches.len()),
            launches: launches.to_vec(),
            used: 0,
        };
        for launch in launches {
            let node = made.add(launch, function(launch))?;
            made.nodes.push(node);
        }
        // SAFETY: the graph is whole.
        unsafe { sys::cuGraphInstantiateWithFlags(&mut made.ready, graph, 0) }
            .result()
            .map_err(|e| fault(e, "making a graph ready"))?;
        Ok(made)
    }

    /// A node behind the last one.
    fn add(&mut self, launch: &Launch, function: &Function) -> Result<sys::CUgraphNode> {
        // An edge as of overlapped launches: the node may begin when all blocks of the one ahead let it.
        let overlapped = sys::CUgraphEdgeData {
            from_port: sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8,
            to_port: 0,
            type_: sys::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8,
            reserved: [0; 5],
        };
        let whole = sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
        let edge = if function.overlaps() { overlapped } else { whole };
        let mut arguments = launch.arguments();
        // SAFETY: plain numbers, pointers and unions of them, for which zeros are values.
        let mut params: sys::CUgraphNodeParams = unsafe { std::mem::zeroed() };
        params.type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL;
        params.__bindgen_anon_1.kernel = sys::CUDA_KERNEL_NODE_PARAMS_v3 {
            func: function.raw(),
            gridDimX: launch.groups,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: function.threads(),
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: function.shared_bytes(),
            kernelParams: arguments.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        let ahead = self.nodes.last().copied();
        let (from, edges, count) = match &ahead {
            Some(node) => (std::ptr::from_ref(node), std::ptr::from_ref(&edge), 1),
            None => (std::ptr::null(), std::ptr::null(), 0),
        };
        let mut node = std::ptr::null_mut();
        // SAFETY: the graph lives, the one dependency is a node of it, and arguments are copied before this returns.
        unsafe { sys::cuGraphAddNode_v2(&mut node, self.graph, from, edges, count, &mut params) }
            .result()
            .map_err(|e| fault(e, "adding to a graph"))?;
        Ok(node)
    }

    /// Tells the nodes whose launches differ from what they were told last.
    fn tell<'a>(&mut self, launches: &[Launch], function: &impl Fn(&Launch) -> &'a Function) -> Result<()> {
        for ((node, told), launch) in self.nodes.iter().zip(&mut self.launches).zip(launches) {
            if told == launch {
                continue;
            }
            let (function, mut arguments) = (function(launch), launch.arguments());
            let params = sys::CUDA_KERNEL_NODE_PARAMS_v2 {
                func: function.raw(),
                gridDimX: launch.groups,
                gridDimY: 1,
                gridDimZ: 1,
                blockDimX: function.threads(),
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: function.shared_bytes(),
                kernelParams: arguments.as_mut_ptr(),
                extra: std::ptr::null_mut(),
                kern: std::ptr::null_mut(),
                ctx: std::ptr::null_mut(),
            };
            // SAFETY: a node of this graph, the same function as before; arguments are copied before this returns, and
            // runs that are queued keep what they were queued with.
            unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.ready, *node, &params) }
                .result()
                .map_err(|e| fault(e, "changing a graph"))?;
            told.clone_from(launch);
        }
        Ok(())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made here; what is queued of it runs on. Whoever drops graphs has entered the context.
        unsafe {
            if !self.ready.is_null() {
                let _ = sys::cuGraphExecDestroy(self.ready);
            }
            let _ = sys::cuGraphDestroy(self.graph);
        }
    }
}
