//! Address expressions: one statement of a layout, evaluated on the CPU and printed as WGSL and C.

use std::fmt::Write;
use std::ops::{Add, Div, Mul, Rem};

/// A `u32` expression over a token's and a channel's index within a page.
///
/// Built with the operators `+ * / %` (constants on the right) and [`Expr::below`]. Operations on
/// constants are folded, so a printed expression holds no work that its geometry makes needless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// The token's index within the page.
    T,
    /// The channel's index within the row.
    C,
    /// A number.
    Const(u32),
    /// Sum, modulo 2^32.
    Add(Box<Expr>, Box<Expr>),
    /// Product, modulo 2^32.
    Mul(Box<Expr>, Box<Expr>),
    /// Quotient by a constant other than 0, rounded down.
    Div(Box<Expr>, u32),
    /// Remainder of a division by a constant other than 0.
    Rem(Box<Expr>, u32),
    /// The second expression where the first is below the constant, the third elsewhere.
    Below(Box<Expr>, u32, Box<Expr>, Box<Expr>),
}

/// Names of the expression's variables in printed text.
pub const VARIABLES: [&str; 2] = ["t", "c"];

impl Expr {
    /// `then` where `self < limit`, otherwise `or`. A folded constant picks its side at once.
    pub fn below(self, limit: u32, then: Expr, or: Expr) -> Expr {
        match self {
            Expr::Const(x) => {
                if x < limit {
                    then
                } else {
                    or
                }
            }
            _ if then == or => then,
            _ => Expr::Below(Box::new(self), limit, Box::new(then), Box::new(or)),
        }
    }

    /// The value for token `t` and channel `c`.
    pub fn eval(&self, t: u32, c: u32) -> u32 {
        match self {
            Expr::T => t,
            Expr::C => c,
            Expr::Const(x) => *x,
            Expr::Add(a, b) => a.eval(t, c).wrapping_add(b.eval(t, c)),
            Expr::Mul(a, b) => a.eval(t, c).wrapping_mul(b.eval(t, c)),
            // A zero divisor cannot be built with the operators; a hand-made one yields 0.
            Expr::Div(a, d) => a.eval(t, c).checked_div(*d).unwrap_or(0),
            Expr::Rem(a, d) => a.eval(t, c).checked_rem(*d).unwrap_or(0),
            Expr::Below(a, limit, then, or) => {
                if a.eval(t, c) < *limit {
                    then.eval(t, c)
                } else {
                    or.eval(t, c)
                }
            }
        }
    }

    /// WGSL text over `t` and `c`.
    pub fn wgsl(&self) -> String {
        let mut text = String::new();
        self.print(&mut text, true);
        text
    }

    /// C (and CUDA) text over `t` and `c`.
    pub fn c(&self) -> String {
        let mut text = String::new();
        self.print(&mut text, false);
        text
    }

    fn print(&self, out: &mut String, wgsl: bool) {
        let mut binary = |a: &Expr, op: &str, b: &Expr| {
            out.push('(');
            a.print(out, wgsl);
            out.push_str(op);
            b.print(out, wgsl);
            out.push(')');
        };
        match self {
            Expr::T => out.push_str(VARIABLES[0]),
            Expr::C => out.push_str(VARIABLES[1]),
            // Writing to a String cannot fail.
            Expr::Const(x) => drop(write!(out, "{x}u")),
            Expr::Add(a, b) => binary(a, " + ", b),
            Expr::Mul(a, b) => binary(a, " * ", b),
            Expr::Div(a, d) => binary(a, " / ", &Expr::Const(*d)),
            Expr::Rem(a, d) => binary(a, " % ", &Expr::Const(*d)),
            Expr::Below(a, limit, then, or) => {
                let (a, then, or) = if wgsl { (a.wgsl(), then.wgsl(), or.wgsl()) } else { (a.c(), then.c(), or.c()) };
                let text = match wgsl {
                    true => format!("select({or}, {then}, {a} < {limit}u)"),
                    false => format!("({a} < {limit}u ? {then} : {or})"),
                };
                out.push_str(&text);
            }
        }
    }
}

impl From<u32> for Expr {
    fn from(x: u32) -> Expr {
        Expr::Const(x)
    }
}

impl<R: Into<Expr>> Add<R> for Expr {
    type Output = Expr;

    fn add(self, rhs: R) -> Expr {
        match (self, rhs.into()) {
            (Expr::Const(a), Expr::Const(b)) => Expr::Const(a.wrapping_add(b)),
            (a, Expr::Const(0)) => a,
            (Expr::Const(0), b) => b,
            (a, b) => Expr::Add(Box::new(a), Box::new(b)),
        }
    }
}

impl<R: Into<Expr>> Mul<R> for Expr {
    type Output = Expr;

    fn mul(self, rhs: R) -> Expr {
        match (self, rhs.into()) {
            (Expr::Const(a), Expr::Const(b)) => Expr::Const(a.wrapping_mul(b)),
            (_, Expr::Const(0)) | (Expr::Const(0), _) => Expr::Const(0),
            (a, Expr::Const(1)) => a,
            (Expr::Const(1), b) => b,
            (a, b) => Expr::Mul(Box::new(a), Box::new(b)),
        }
    }
}

impl Div<u32> for Expr {
    type Output = Expr;

    fn div(self, rhs: u32) -> Expr {
        match self {
            Expr::Const(a) => Expr::Const(a.checked_div(rhs).unwrap_or(0)),
            a if rhs == 1 => a,
            a => Expr::Div(Box::new(a), rhs),
        }
    }
}

impl Rem<u32> for Expr {
    type Output = Expr;

    fn rem(self, rhs: u32) -> Expr {
        match self {
            Expr::Const(a) => Expr::Const(a.checked_rem(rhs).unwrap_or(0)),
            _ if rhs == 1 => Expr::Const(0),
            a => Expr::Rem(Box::new(a), rhs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_constants() {
        let one = 1; // A literal would be a lint.
        assert_eq!(Expr::T % one * 7u32 + 0u32, Expr::Const(0));
        assert_eq!(Expr::Const(9) / 2 + Expr::C, Expr::Const(4) + Expr::C);
        assert_eq!((Expr::T / 1) * 1u32, Expr::T);
        assert_eq!(Expr::Const(3).below(4, Expr::T, Expr::C), Expr::T);
    }

    #[test]
    fn prints_what_it_evaluates() {
        let e = (Expr::C / 8).below(2, Expr::T * 4u32, Expr::T + 1u32) + Expr::C % 8;
        assert_eq!(e.eval(3, 9), 13);
        assert_eq!(e.eval(3, 17), 5);
        assert_eq!(e.wgsl(), "(select((t + 1u), (t * 4u), (c / 8u) < 2u) + (c % 8u))");
        assert_eq!(e.c(), "(((c / 8u) < 2u ? (t * 4u) : (t + 1u)) + (c % 8u))");
    }
}
