//! What a cubin says of its kernel: an ELF file, whose sections and attributes tell registers, stack and shared memory, and
//! whose instructions are 16 bytes each, with the opcode in the lowest twelve bits.

use std::collections::BTreeMap;

/// Opcodes, as `nvdisasm` names what has these bits (CUDA 13.0, sm_80 to sm_121a).
pub const HMMA: u16 = 0x23c;
pub const IMMA: u16 = 0x237;
pub const QMMA: u16 = 0x27a;
/// Stores to local memory: spills.
pub const STL: u16 = 0x387;

/// A kernel's figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cubin {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread's stack.
    pub stack: u32,
    /// Bytes of a block's static shared memory.
    pub shared: u64,
    /// Instructions by opcode.
    pub opcodes: BTreeMap<u16, usize>,
}

impl Cubin {
    /// Reads a file that holds one kernel.
    pub fn read(file: &[u8], kernel: &str) -> Option<Cubin> {
        if file.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let headers = number(file, 40, 8)? as usize;
        let (count, names_at) = (number(file, 60, 2)? as usize, number(file, 62, 2)? as usize);
        let section = |at: usize| -> Option<(usize, usize, u64, usize)> {
            let header = headers + 64 * at;
            let [offset, bytes] = [24, 32].map(|field| number(file, header + field, 8));
            let kind = number(file, header + 4, 4)? as usize;
            Some((number(file, header, 4)? as usize, offset? as usize, bytes?, kind))
        };
        let (_, names, ..) = section(names_at)?;
        let mut found = Cubin::default();
        let (mut code, mut attributes) = (false, false);
        for at in 0..count {
            let (name, offset, bytes, kind) = section(at)?;
            let name = text(file, names + name)?;
            // Sections without bytes in the file: shared memory.
            let body = if kind == 8 { &[][..] } else { file.get(offset..offset + bytes as usize)? };
            if name == format!(".nv.shared.{kernel}") {
                found.shared = bytes;
            } else if name == format!(".text.{kernel}") {
                code = true;
                for word in body.as_chunks::<16>().0 {
                    *found.opcodes.entry(u16::from_le_bytes([word[0], word[1]]) & 0xfff).or_default() += 1;
                }
            } else if name == ".nv.info" {
                attributes = true;
                found.attributes(body)?;
            }
        }
        (code && attributes && found.registers > 0).then_some(found)
    }

    /// Attributes: a byte of form, one of kind, a length or a value of two bytes, and of form 4 that many bytes: the
    /// symbol, a value.
    fn attributes(&mut self, body: &[u8]) -> Option<()> {
        let mut at = 0;
        while at + 4 <= body.len() {
            let payload = if body[at] == 4 { number(body, at + 2, 2)? as usize } else { 0 };
            let value = || number(body, at + 8, 4).map(|x| x as u32);
            match body[at + 1] {
                0x2f if payload == 8 => self.registers = value()?,
                0x11 if payload == 8 => self.stack = value()?,
                _ => {}
            }
            at += 4 + payload;
        }
        Some(())
    }

    /// Instructions of an opcode.
    pub fn count(&self, opcode: u16) -> usize {
        self.opcodes.get(&opcode).copied().unwrap_or(0)
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(length)?)?;
    Some(part.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

fn text(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    std::str::from_utf8(&rest[..rest.iter().position(|byte| *byte == 0)?]).ok()
}
