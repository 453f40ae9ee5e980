//! One dispatch as CPU code sees it: constants, parameters and bindings by name.

use super::Specialisation;
use bytemuck::Pod;

/// A binding as a CPU kernel sees it.
pub(super) enum CpuBinding<'a> {
    Read(&'a [u32]),
    Write(&'a mut [u32]),
    Taken,
}

/// One dispatch as a CPU kernel sees it.
pub struct CpuCall<'a> {
    /// Constants and codecs.
    pub spec: &'a Specialisation,
    /// Workgroups asked for. A CPU kernel may cut its work otherwise; the results must be the same.
    pub groups: u32,
    pub(super) params: &'a [u32],
    pub(super) bindings: Vec<CpuBinding<'a>>,
}

impl<'a> CpuCall<'a> {
    /// A parameter word. Panics if it is not declared: a fault of the kernel's own code.
    pub fn param(&self, name: &str) -> u32 {
        match self.spec.decl.params.iter().position(|p| p.name == name) {
            Some(at) => self.params[at],
            None => panic!("kernel {} declares no parameter {name}", self.spec.decl.name),
        }
    }

    /// A parameter word as an index.
    pub fn index(&self, name: &str) -> usize {
        self.param(name) as usize
    }

    /// A parameter word as a float.
    pub fn float(&self, name: &str) -> f32 {
        f32::from_bits(self.param(name))
    }

    /// The read-only binding `name`, as elements of `T` (`u32`, `f32` or arrays of them).
    pub fn read<T: Pod>(&mut self, name: &str) -> &'a [T] {
        let at = self.at(name);
        match &self.bindings[at] {
            CpuBinding::Read(words) => cast(words),
            _ => panic!("kernel {}: {name} is not a read binding", self.spec.decl.name),
        }
    }

    /// The written binding `name`; can be taken once.
    pub fn write<T: Pod>(&mut self, name: &str) -> &'a mut [T] {
        let at = self.at(name);
        match std::mem::replace(&mut self.bindings[at], CpuBinding::Taken) {
            CpuBinding::Write(words) => {
                let whole = words.len() * 4 / size_of::<T>() * size_of::<T>() / 4;
                bytemuck::cast_slice_mut(&mut words[..whole])
            }
            _ => panic!("kernel {}: {name} is not a written binding, or was taken", self.spec.decl.name),
        }
    }

    fn at(&self, name: &str) -> usize {
        match self.spec.decl.bindings.iter().position(|b| b.name == name) {
            Some(at) => at,
            None => panic!("kernel {} declares no binding {name}", self.spec.decl.name),
        }
    }
}

fn cast<T: Pod>(words: &[u32]) -> &[T] {
    let whole = words.len() * 4 / size_of::<T>() * size_of::<T>() / 4;
    bytemuck::cast_slice(&words[..whole])
}
