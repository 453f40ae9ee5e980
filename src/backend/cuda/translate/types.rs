//! Types and constant expressions.

use super::{Known, Unknown, Writer, constant_name};
use naga::proc::TypeResolution;
use naga::{ArraySize, Expression, Handle, Literal, Scalar, ScalarKind, Type, TypeInner};
use std::fmt::Write as _;

impl Writer<'_> {
    pub(super) fn type_name(&self, handle: Handle<Type>) -> Known<String> {
        match &self.module.types[handle].inner {
            TypeInner::Struct { .. } => Ok(format!("KvType{}", handle.index())),
            inner => self.inner_name(inner),
        }
    }

    pub(super) fn inner_name(&self, inner: &TypeInner) -> Known<String> {
        match *inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => Ok(scalar_name(scalar)?.into()),
            TypeInner::Vector { size, scalar } => Ok(format!("kv_vec<{}, {}>", scalar_name(scalar)?, size as u32)),
            TypeInner::Array { base, size: ArraySize::Constant(count), .. } => {
                Ok(format!("kv_array<{}, {count}>", self.type_name(base)?))
            }
            TypeInner::Pointer { base, .. } => Ok(format!("{}&", self.type_name(base)?)),
            ref other => Err(Unknown::new(other)),
        }
    }

    pub(super) fn resolved_name(&self, ty: &TypeResolution) -> Known<String> {
        match ty {
            TypeResolution::Handle(handle) => self.type_name(*handle),
            TypeResolution::Value(inner) => self.inner_name(inner),
        }
    }

    pub(super) fn is_scalar(&self, handle: Handle<Type>) -> bool {
        matches!(self.module.types[handle].inner, TypeInner::Scalar(_))
    }

    /// The element type of an array without a length.
    pub(super) fn element(&self, handle: Handle<Type>) -> Option<String> {
        match self.module.types[handle].inner {
            TypeInner::Array { base, .. } => self.type_name(base).ok(),
            _ => None,
        }
    }

    pub(super) fn structure(&self, handle: Handle<Type>, ty: &Type, out: &mut String) -> Known<()> {
        let TypeInner::Struct { members, .. } = &ty.inner else { return Ok(()) };
        let _ = writeln!(out, "struct {} {{", self.type_name(handle)?);
        for (at, member) in members.iter().enumerate() {
            let _ = writeln!(out, "{} m{at};", self.type_name(member.ty)?);
        }
        out.push_str("};\n");
        Ok(())
    }

    /// An expression of the module, outside of functions.
    pub(super) fn constant_expression(&self, handle: Handle<Expression>) -> Known<String> {
        match &self.module.global_expressions[handle] {
            Expression::Literal(literal) => literal_text(*literal),
            Expression::Constant(constant) => self.constant(*constant),
            Expression::ZeroValue(ty) => Ok(format!("{}{{}}", self.type_name(*ty)?)),
            Expression::Splat { size, value } => {
                let parts = vec![self.constant_expression(*value)?; *size as usize];
                Ok(format!("{{{}}}", parts.join(", ")))
            }
            Expression::Compose { ty, components } => {
                let parts =
                    components.iter().map(|c| self.constant_expression(*c)).collect::<Known<Vec<_>>>()?.join(", ");
                let name = self.type_name(*ty)?;
                Ok(match self.module.types[*ty].inner {
                    TypeInner::Array { .. } => format!("{name}{{{{{parts}}}}}"),
                    _ => format!("{name}{{{parts}}}"),
                })
            }
            other => Err(Unknown::new(other)),
        }
    }

    /// A use of a constant: scalars by value.
    pub(super) fn constant(&self, handle: Handle<naga::Constant>) -> Known<String> {
        let constant = &self.module.constants[handle];
        match self.is_scalar(constant.ty) {
            true => self.constant_expression(constant.init),
            false => Ok(constant_name(handle)),
        }
    }
}

pub(super) fn scalar_name(scalar: Scalar) -> Known<&'static str> {
    match (scalar.kind, scalar.width) {
        (ScalarKind::Sint, 4) => Ok("int"),
        (ScalarKind::Uint, 4) => Ok("unsigned"),
        (ScalarKind::Float, 4) => Ok("float"),
        (ScalarKind::Bool, _) => Ok("bool"),
        _ => Err(Unknown::new(scalar)),
    }
}

pub(super) fn literal_text(literal: Literal) -> Known<String> {
    match literal {
        // By bits, so that no decimal is rounded twice.
        Literal::F32(v) => Ok(format!("__uint_as_float(0x{:08x}u)", v.to_bits())),
        Literal::U32(v) => Ok(format!("{v}u")),
        Literal::I32(i32::MIN) => Ok("(-2147483647 - 1)".into()),
        Literal::I32(v) => Ok(format!("({v})")),
        Literal::Bool(v) => Ok(v.to_string()),
        other => Err(Unknown::new(other)),
    }
}
