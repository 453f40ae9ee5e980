//! Functions and their statements.

use super::expressions::Body;
use super::{Known, Unknown, Writer, function_name};
use naga::valid::FunctionInfo;
use naga::{AtomicFunction as Atomic, Block, Expression, Function, Handle, Statement, SwitchValue};
use std::collections::HashMap;
use std::fmt::Write as _;

impl Writer<'_> {
    pub(super) fn function(&self, name: &str, function: &Function, info: &FunctionInfo, out: &mut String) -> Known<()> {
        let result = match &function.result {
            Some(result) => self.type_name(result.ty)?,
            None => "void".into(),
        };
        let arguments = function
            .arguments
            .iter()
            .enumerate()
            .map(|(at, argument)| Ok(format!("{} a{at}", self.type_name(argument.ty)?)))
            .collect::<Known<Vec<_>>>()?;
        let _ = writeln!(out, "KV_INLINE {result} {name}({}) {{", arguments.join(", "));
        let mut body = Body { writer: self, function, info, named: HashMap::new(), loops: Vec::new(), labels: 0 };
        for (handle, local) in function.local_variables.iter() {
            let value = match local.init {
                Some(init) => body.text(init)?,
                None => "{}".into(),
            };
            let _ = writeln!(out, "{} v{} = {value};", self.type_name(local.ty)?, handle.index());
        }
        body.block(&function.body, out)?;
        out.push_str("}\n");
        Ok(())
    }
}

impl Body<'_> {
    fn block(&mut self, block: &Block, out: &mut String) -> Known<()> {
        block.iter().try_for_each(|statement| self.statement(statement, out))
    }

    fn statement(&mut self, statement: &Statement, out: &mut String) -> Known<()> {
        match statement {
            Statement::Emit(range) => {
                for handle in range.clone() {
                    // Pointers are places, and stand where they are used.
                    if !self.is_pointer(handle) {
                        let value = self.evaluate(handle)?;
                        self.name(handle, &value, out)?;
                    }
                }
            }
            Statement::Block(block) => {
                out.push_str("{\n");
                self.block(block, out)?;
                out.push_str("}\n");
            }
            Statement::If { condition, accept, reject } => {
                let _ = writeln!(out, "if ({}) {{", self.text(*condition)?);
                self.block(accept, out)?;
                if !reject.is_empty() {
                    out.push_str("} else {\n");
                    self.block(reject, out)?;
                }
                out.push_str("}\n");
            }
            Statement::Switch { selector, cases } => {
                let _ = writeln!(out, "switch ({}) {{", self.text(*selector)?);
                for case in cases {
                    match case.value {
                        SwitchValue::I32(v) => writeln!(out, "case {v}: {{"),
                        SwitchValue::U32(v) => writeln!(out, "case {v}u: {{"),
                        SwitchValue::Default => writeln!(out, "default: {{"),
                    }
                    .unwrap_or_default();
                    self.block(&case.body, out)?;
                    out.push_str(if case.fall_through { "}\n" } else { "} break;\n" });
                }
                out.push_str("}\n");
            }
            Statement::Loop { body, continuing, break_if } => self.repeat(body, continuing, *break_if, out)?,
            Statement::Break => out.push_str("break;\n"),
            Statement::Continue => match self.loops.last_mut() {
                Some((label, used)) => {
                    *used = true;
                    let _ = writeln!(out, "goto next_{label};");
                }
                None => return Err(Unknown("continue outside of a loop".into())),
            },
            Statement::Return { value: None } => out.push_str("return;\n"),
            Statement::Return { value: Some(value) } => {
                let _ = writeln!(out, "return {};", self.text(*value)?);
            }
            Statement::ControlBarrier(_) => out.push_str("__syncthreads();\n"),
            Statement::MemoryBarrier(_) => out.push_str("__threadfence();\n"),
            Statement::Store { pointer, value } => {
                let _ = writeln!(out, "{} = {};", self.text(*pointer)?, self.text(*value)?);
            }
            Statement::Atomic { pointer, fun, value, result } => self.atomic(*pointer, fun, *value, *result, out)?,
            Statement::WorkGroupUniformLoad { pointer, result } => {
                out.push_str("__syncthreads();\n");
                let place = self.text(*pointer)?;
                self.name(*result, &place, out)?;
                out.push_str("__syncthreads();\n");
            }
            Statement::Call { function, arguments, result } => {
                let texts = arguments.iter().map(|a| self.text(*a)).collect::<Known<Vec<_>>>()?;
                let call = format!("{}({})", function_name(*function), texts.join(", "));
                match result {
                    Some(result) => self.name(*result, &call, out)?,
                    None => {
                        let _ = writeln!(out, "{call};");
                    }
                }
            }
            other => return Err(Unknown::new(other)),
        }
        Ok(())
    }

    /// Evaluates here, once.
    fn name(&mut self, handle: Handle<Expression>, value: &str, out: &mut String) -> Known<()> {
        let name = format!("e{}", handle.index());
        let _ = writeln!(out, "const {} {name} = {value};", self.writer.resolved_name(&self.info[handle].ty)?);
        self.named.insert(handle, name);
        Ok(())
    }

    /// A loop whose continuing part stands behind a label: what the body jumps to by `continue`.
    fn repeat(
        &mut self,
        body: &Block,
        continuing: &Block,
        break_if: Option<Handle<Expression>>,
        out: &mut String,
    ) -> Known<()> {
        let label = self.labels;
        self.labels += 1;
        self.loops.push((label, false));
        out.push_str("for (;;) {\n{\n");
        self.block(body, out)?;
        out.push_str("}\n");
        if let Some((_, true)) = self.loops.pop() {
            let _ = writeln!(out, "next_{label}:;");
        }
        // What the continuing part declares must not be jumped over.
        out.push_str("{\n");
        self.block(continuing, out)?;
        if let Some(condition) = break_if {
            let _ = writeln!(out, "if ({}) break;", self.text(condition)?);
        }
        out.push_str("}\n}\n");
        Ok(())
    }

    fn atomic(
        &mut self,
        pointer: Handle<Expression>,
        fun: &Atomic,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
        out: &mut String,
    ) -> Known<()> {
        let name = match fun {
            Atomic::Add => "atomicAdd",
            Atomic::And => "atomicAnd",
            Atomic::ExclusiveOr => "atomicXor",
            Atomic::InclusiveOr => "atomicOr",
            Atomic::Min => "atomicMin",
            Atomic::Max => "atomicMax",
            Atomic::Exchange { compare: None } => "atomicExch",
            other => return Err(Unknown::new(other)),
        };
        let call = format!("{name}(&{}, {})", self.text(pointer)?, self.text(value)?);
        match result {
            Some(result) => self.name(result, &call, out)?,
            None => {
                let _ = writeln!(out, "{call};");
            }
        }
        Ok(())
    }
}
