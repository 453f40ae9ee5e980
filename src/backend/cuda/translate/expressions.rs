//! Expressions of a function's body.

use super::types::{literal_text, scalar_name};
use super::{Known, Unknown, Writer};
use naga::valid::FunctionInfo;
use naga::{
    AddressSpace, BinaryOperator as Binary, Expression, Function, GlobalVariable, Handle, MathFunction as Math, Scalar,
    ScalarKind, TypeInner, UnaryOperator as Unary,
};
use std::collections::HashMap;

/// Components of vectors.
const COMPONENTS: [&str; 4] = ["x", "y", "z", "w"];

/// A function while it is written.
pub(super) struct Body<'a> {
    pub writer: &'a Writer<'a>,
    pub function: &'a Function,
    pub info: &'a FunctionInfo,
    /// Expressions that were evaluated where WGSL says, by the variables that hold them.
    pub named: HashMap<Handle<Expression>, String>,
    /// Loops that the text stands in, and whether one needs the label of its continuing part.
    pub loops: Vec<(usize, bool)>,
    pub labels: usize,
}

impl Body<'_> {
    pub(super) fn inner(&self, handle: Handle<Expression>) -> &TypeInner {
        self.info[handle].ty.inner_with(&self.writer.module.types)
    }

    pub(super) fn is_pointer(&self, handle: Handle<Expression>) -> bool {
        matches!(self.inner(handle), TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. })
    }

    /// An expression's text: its variable where it was evaluated, a place where it is a pointer.
    pub(super) fn text(&self, handle: Handle<Expression>) -> Known<String> {
        match self.named.get(&handle) {
            Some(name) => Ok(name.clone()),
            None => self.evaluate(handle),
        }
    }

    pub(super) fn evaluate(&self, handle: Handle<Expression>) -> Known<String> {
        let writer = self.writer;
        match &self.function.expressions[handle] {
            Expression::Literal(literal) => literal_text(*literal),
            Expression::Constant(constant) => writer.constant(*constant),
            Expression::ZeroValue(ty) => Ok(format!("{}{{}}", writer.type_name(*ty)?)),
            Expression::Compose { ty, components } => {
                let name = writer.type_name(*ty)?;
                let whole = matches!(writer.module.types[*ty].inner, TypeInner::Array { .. });
                let mut parts = Vec::new();
                for &component in components {
                    match *self.inner(component) {
                        TypeInner::Vector { size, .. } if !whole && !self.is_struct(*ty) => {
                            let vector = self.text(component)?;
                            parts.extend(COMPONENTS[..size as usize].iter().map(|c| format!("{vector}.{c}")));
                        }
                        _ => parts.push(self.text(component)?),
                    }
                }
                let parts = parts.join(", ");
                Ok(if whole { format!("{name}{{{{{parts}}}}}") } else { format!("{name}{{{parts}}}") })
            }
            Expression::Access { base, index } => Ok(format!("{}[{}]", self.text(*base)?, self.text(*index)?)),
            Expression::AccessIndex { base, index } => self.member(*base, *index),
            Expression::Splat { size, value } => Ok(format!("kv_splat<{}>({})", *size as u32, self.text(*value)?)),
            Expression::Swizzle { size, vector, pattern } => {
                let name = writer.resolved_name(&self.info[handle].ty)?;
                let of = self.text(*vector)?;
                let parts: Vec<String> =
                    pattern[..*size as usize].iter().map(|c| format!("{of}.{}", COMPONENTS[*c as usize])).collect();
                Ok(format!("{name}{{{}}}", parts.join(", ")))
            }
            Expression::FunctionArgument(at) => Ok(format!("a{at}")),
            Expression::GlobalVariable(global) => Ok(writer.global_name(*global)),
            Expression::LocalVariable(local) => Ok(format!("v{}", local.index())),
            Expression::Load { pointer } => {
                let place = self.text(*pointer)?;
                let read = self.root(*pointer).is_some_and(|global| writer.is_read(global));
                Ok(if read { format!("kv_read({place})") } else { place })
            }
            Expression::Unary { op, expr } => {
                let name = match op {
                    Unary::Negate => "kv_neg",
                    Unary::LogicalNot => "kv_not",
                    Unary::BitwiseNot => "kv_complement",
                };
                Ok(format!("{name}({})", self.text(*expr)?))
            }
            Expression::Binary { op, left, right } => self.binary(*op, *left, *right),
            Expression::Select { condition, accept, reject } => {
                Ok(format!("kv_select({}, {}, {})", self.text(*condition)?, self.text(*accept)?, self.text(*reject)?))
            }
            Expression::Relational { fun: naga::RelationalFunction::All, argument } => {
                Ok(format!("kv_all({})", self.text(*argument)?))
            }
            Expression::Relational { fun: naga::RelationalFunction::Any, argument } => {
                Ok(format!("kv_any({})", self.text(*argument)?))
            }
            Expression::Math { fun, arg, arg1, arg2, .. } => {
                let name = math(*fun)?;
                let arguments = [Some(*arg), *arg1, *arg2].into_iter().flatten();
                let texts = arguments.map(|a| self.text(a)).collect::<Known<Vec<_>>>()?;
                Ok(format!("{name}({})", texts.join(", ")))
            }
            Expression::As { expr, kind, convert } => {
                let to = scalar_name(Scalar { kind: *kind, width: if *kind == ScalarKind::Bool { 1 } else { 4 } })?;
                if convert.is_some_and(|width| width > 4) {
                    return Err(Unknown("a conversion to 64 bits".into()));
                }
                let name = if convert.is_some() { "kv_convert" } else { "kv_bitcast" };
                Ok(format!("{name}<{to}>({})", self.text(*expr)?))
            }
            other => Err(Unknown::new(other)),
        }
    }

    fn is_struct(&self, ty: Handle<naga::Type>) -> bool {
        matches!(self.writer.module.types[ty].inner, TypeInner::Struct { .. })
    }

    fn member(&self, base: Handle<Expression>, index: u32) -> Known<String> {
        let of = match *self.inner(base) {
            TypeInner::Pointer { base, .. } => &self.writer.module.types[base].inner,
            ref inner => inner,
        };
        let text = self.text(base)?;
        Ok(match of {
            TypeInner::Struct { .. } => format!("{text}.m{index}"),
            TypeInner::Vector { .. } => format!("{text}.{}", COMPONENTS[index as usize % 4]),
            _ => format!("{text}[{index}u]"),
        })
    }

    fn binary(&self, op: Binary, left: Handle<Expression>, right: Handle<Expression>) -> Known<String> {
        let (l, r) = (self.text(left)?, self.text(right)?);
        let sign = match op {
            Binary::Add => "+",
            Binary::Subtract => "-",
            Binary::Multiply => "*",
            Binary::Divide => "/",
            Binary::Modulo if self.is_float(left) => return Ok(format!("fmodf({l}, {r})")),
            Binary::Modulo => "%",
            Binary::Equal => "==",
            Binary::NotEqual => "!=",
            Binary::Less => "<",
            Binary::LessEqual => "<=",
            Binary::Greater => ">",
            Binary::GreaterEqual => ">=",
            Binary::And => "&",
            Binary::ExclusiveOr => "^",
            Binary::InclusiveOr => "|",
            Binary::LogicalAnd => "&&",
            Binary::LogicalOr => "||",
            Binary::ShiftLeft => return Ok(format!("kv_shl({l}, {r})")),
            Binary::ShiftRight => return Ok(format!("kv_shr({l}, {r})")),
        };
        Ok(format!("({l} {sign} {r})"))
    }

    fn is_float(&self, handle: Handle<Expression>) -> bool {
        self.inner(handle).scalar_kind() == Some(ScalarKind::Float)
    }

    /// The storage buffer that a pointer is into.
    fn root(&self, pointer: Handle<Expression>) -> Option<Handle<GlobalVariable>> {
        match self.function.expressions[pointer] {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => self.root(base),
            Expression::GlobalVariable(global) => {
                let space = self.writer.module.global_variables[global].space;
                matches!(space, AddressSpace::Storage { .. }).then_some(global)
            }
            _ => None,
        }
    }
}

fn math(fun: Math) -> Known<&'static str> {
    Ok(match fun {
        Math::Abs => "kv_abs",
        Math::Min => "kv_min",
        Math::Max => "kv_max",
        Math::Clamp => "kv_clamp",
        Math::Cos => "kv_cos",
        Math::Sign => "kv_sign",
        Math::Sin => "kv_sin",
        Math::Tanh => "kv_tanh",
        Math::Ceil => "kv_ceil",
        Math::Floor => "kv_floor",
        Math::Round => "kv_round",
        Math::Trunc => "kv_trunc",
        Math::Exp => "kv_exp",
        Math::Exp2 => "kv_exp2",
        Math::Log => "kv_log",
        Math::Log2 => "kv_log2",
        Math::Pow => "kv_pow",
        Math::Sqrt => "kv_sqrt",
        Math::InverseSqrt => "kv_inverse_sqrt",
        Math::Dot => "kv_dot",
        Math::Fma => "kv_fma",
        Math::CountOneBits => "kv_count_one_bits",
        Math::CountLeadingZeros => "kv_count_leading_zeros",
        Math::FirstTrailingBit => "kv_first_trailing_bit",
        Math::ReverseBits => "kv_reverse_bits",
        Math::Unpack2x16float => "kv_unpack2x16float",
        other => return Err(Unknown::new(other)),
    })
}
