//! The directives of a kernel's text: conditions, repetition, includes, codec fragments and `#{NAME}`.

use super::claims::{Claims, declares};
use super::expression::{evaluate, is_calculated};
use super::lines::{Lines, Place};
use super::{ALWAYS, f32_text, push_text};
use crate::backend::{Constant, Specialisation};
use crate::error::{Error, ErrorKind, Result};

/// Includes within includes; deeper is a cycle that the once-rule did not catch, or a mess.
const MAX_DEPTH: usize = 8;

/// One `#if` that is not closed yet.
struct Level {
    line: usize,
    /// Whether the text around it is taken.
    outer: bool,
    /// Whether a branch was taken already.
    taken: bool,
    /// Whether the current branch is taken.
    active: bool,
    seen_else: bool,
}

/// What the lines of a file say of workgroup variables.
#[derive(Default)]
struct Marks {
    declared: bool,
    claimed: bool,
}

struct Expansion<'a> {
    spec: &'a Specialisation,
    library: &'a [(&'a str, &'a str)],
    claims: &'a mut Claims,
    included: Vec<String>,
    stored: Vec<String>,
    encoded: Vec<String>,
    /// Loop variables and their values, outermost first.
    loops: Vec<(String, u32)>,
    /// Extensions that the text asks for.
    enables: Vec<String>,
}

/// Appends the kernel's text to `out`, its directives carried out; returns the extensions it asks for.
pub(super) fn expand(
    spec: &Specialisation,
    library: &[(&str, &str)],
    claims: &mut Claims,
    out: &mut String,
) -> Result<Vec<String>> {
    let included = ALWAYS.map(String::from).to_vec();
    let mut expansion = Expansion {
        spec,
        library,
        claims,
        included,
        stored: Vec::new(),
        encoded: Vec::new(),
        loops: Vec::new(),
        enables: Vec::new(),
    };
    let file = format!("{}.wgsl", spec.decl.name);
    expansion.text(&file, spec.decl.wgsl, 0, out)?;
    Ok(expansion.enables)
}

impl Expansion<'_> {
    fn text(&mut self, file: &str, text: &str, depth: usize, out: &mut String) -> Result<()> {
        let lines: Vec<&str> = text.lines().collect();
        let mut marks = Marks::default();
        self.lines(Lines { file, text: &lines, first: 1, depth }, &mut marks, out)?;
        self.claims.note(marks.declared, marks.claimed);
        Ok(())
    }

    fn lines(&mut self, lines: Lines<'_>, marks: &mut Marks, out: &mut String) -> Result<()> {
        let mut levels: Vec<Level> = Vec::new();
        let mut next = 0;
        while next < lines.text.len() {
            let (at, place) = (next, lines.place(next));
            next += 1;
            let active = levels.last().is_none_or(|l| l.active);
            let Some(directive) = place.text.strip_prefix('#').filter(|d| !d.starts_with('{')) else {
                if active {
                    marks.declared |= declares(place.text);
                    self.substitute(place, lines.text[at], out)?;
                }
                continue;
            };
            let (word, rest) = match directive.split_once(char::is_whitespace) {
                Some((word, rest)) => (word, rest.trim()),
                None => (directive, ""),
            };
            match word {
                "if" => {
                    let holds = active && self.condition(place, rest)?;
                    levels.push(Level {
                        line: place.line,
                        outer: active,
                        taken: holds,
                        active: holds,
                        seen_else: false,
                    });
                }
                "elif" | "else" => {
                    let Some(level) = levels.last_mut() else {
                        return Err(self.fault(place, "has no #if before it", ""));
                    };
                    if level.seen_else {
                        return Err(self.fault(place, "comes after #else", ""));
                    }
                    level.seen_else = word == "else";
                    let open = level.outer && !level.taken;
                    let holds = match word {
                        "else" if rest.is_empty() => open,
                        "else" => return Err(self.fault(place, "takes no condition", "write #elif")),
                        _ => open && self.condition(place, rest)?,
                    };
                    if let Some(level) = levels.last_mut() {
                        level.active = holds;
                        level.taken |= holds;
                    }
                }
                "endif" => {
                    if !rest.is_empty() {
                        return Err(self.fault(place, "takes nothing after it", ""));
                    }
                    if levels.pop().is_none() {
                        return Err(self.fault(place, "has no #if before it", ""));
                    }
                }
                "for" => {
                    let Some(end) = lines.end_of_loop(at) else {
                        return Err(self.fault(place, "is never closed", "add #endfor"));
                    };
                    next = end + 1;
                    if active {
                        let body = Lines { text: &lines.text[at + 1..end], first: place.line + 1, ..lines };
                        self.repeat(place, rest, body, marks, out)?;
                    }
                }
                "endfor" => return Err(self.fault(place, "has no #for before it", "")),
                _ if !active => {}
                "include" => self.include(place, rest, lines.depth, out)?,
                "codec_units" => self.codec_units(place, rest, lines.depth, out)?,
                "codec_store" => self.codec_store(place, rest, true, out)?,
                "codec_encode" => self.codec_encode(place, rest, out)?,
                "enable" => {
                    if !["f16", "subgroups"].contains(&rest) {
                        return Err(self.fault(place, "names no extension that kernels use", "f16 or subgroups"));
                    }
                    if !self.enables.iter().any(|e| e == rest) {
                        self.enables.push(rest.to_string());
                    }
                }
                "unzeroed" if rest.is_empty() => marks.claimed = true,
                "unzeroed" => return Err(self.fault(place, "takes nothing after it", "")),
                _ => {
                    let known = "known are #if, #elif, #else, #endif, #for, #endfor, #enable, #include, #codec_units, #codec_store, \
                                 #codec_encode and #unzeroed";
                    return Err(self.fault(place, "is not a directive", known));
                }
            }
        }
        if let Some(level) = levels.last() {
            let place = Place { file: lines.file, line: level.line, text: "#if" };
            return Err(self.fault(place, "is never closed", "add #endif"));
        }
        Ok(())
    }

    /// `body` once for every value of `NAME < COUNT`.
    fn repeat(
        &mut self,
        place: Place<'_>,
        rest: &str,
        body: Lines<'_>,
        marks: &mut Marks,
        out: &mut String,
    ) -> Result<()> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [name, "<", count] = words[..] else {
            return Err(self.fault(
                place,
                "has no loop that can be read",
                "write #for NAME < 3 or #for NAME < CONSTANT",
            ));
        };
        if self.constant(place, name).is_ok() {
            return Err(self.fault(place, "takes a name that stands for something already", "choose another"));
        }
        let count = self.expression(place, count)?;
        for value in 0..count {
            self.loops.push((name.to_string(), value));
            self.lines(body, marks, out)?;
            self.loops.pop();
        }
        Ok(())
    }

    /// Appends `line` with each `#{NAME}` replaced.
    fn substitute(&self, place: Place<'_>, line: &str, out: &mut String) -> Result<()> {
        let mut rest = line;
        while let Some(start) = rest.find("#{") {
            out.push_str(&rest[..start]);
            let Some(length) = rest[start..].find('}') else {
                return Err(self.fault(place, "has #{ without }", ""));
            };
            let name = &rest[start + 2..start + length];
            if is_calculated(name) {
                out.push_str(&self.expression(place, name)?.to_string());
                rest = &rest[start + length + 1..];
                continue;
            }
            match self.constant(place, name)? {
                Constant::U32(v) => out.push_str(&v.to_string()),
                Constant::F32(v) => out.push_str(&f32_text(self.spec.decl.name, name, v)?),
                Constant::Bool(v) => out.push_str(if v { "true" } else { "false" }),
            }
            rest = &rest[start + length + 1..];
        }
        out.push_str(rest);
        out.push('\n');
        Ok(())
    }

    fn condition(&self, place: Place<'_>, text: &str) -> Result<bool> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [word] => {
                let (name, negated) = match word.strip_prefix('!') {
                    Some(name) => (name, true),
                    None => (word, false),
                };
                let holds = match self.constant(place, name)? {
                    Constant::Bool(v) => v,
                    Constant::U32(v) => v != 0,
                    Constant::F32(_) => return Err(self.fault(place, "tests a float", "use a u32 or bool constant")),
                };
                Ok(holds != negated)
            }
            [name, operator, value] => {
                let calculated = name.contains(['+', '-', '*', '/', '%']);
                let left =
                    if calculated { Constant::U32(self.expression(place, name)?) } else { self.constant(place, name)? };
                let Constant::U32(left) = left else {
                    return Err(self.fault(
                        place,
                        "compares a constant that is not u32",
                        "write #if NAME or #if !NAME",
                    ));
                };
                let right = self.number(place, value)?;
                match operator {
                    "==" => Ok(left == right),
                    "!=" => Ok(left != right),
                    "<" => Ok(left < right),
                    "<=" => Ok(left <= right),
                    ">" => Ok(left > right),
                    ">=" => Ok(left >= right),
                    _ => Err(self.fault(place, "has an unknown comparison", "use == != < <= > >=")),
                }
            }
            _ => Err(self.fault(place, "has no condition that can be read", "NAME, !NAME or NAME == 3")),
        }
    }

    fn include(&mut self, place: Place<'_>, rest: &str, depth: usize, out: &mut String) -> Result<()> {
        let Some(name) = rest.strip_prefix('"').and_then(|r| r.strip_suffix('"')) else {
            return Err(self.fault(place, "does not name a file in quotes", ""));
        };
        let Some(&(_, text)) = self.library.iter().find(|(n, _)| *n == name) else {
            let known = self.library.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ");
            return Err(self.fault(place, "names no shared file", &format!("there are {known}")));
        };
        if depth == MAX_DEPTH {
            return Err(self.fault(place, &format!("is nested {MAX_DEPTH} deep"), ""));
        }
        if self.included.iter().any(|n| n == name) {
            return Ok(());
        }
        self.included.push(name.to_string());
        self.text(name, text, depth + 1, out)
    }

    fn codec_store(&mut self, place: Place<'_>, prefix: &str, required: bool, out: &mut String) -> Result<()> {
        self.check_role(place, prefix)?;
        if self.stored.iter().any(|p| p == prefix) {
            return Ok(());
        }
        let text = self.spec.codec(prefix).wgsl_store(prefix);
        if text.is_empty() && required {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{}: the format's tokens cannot be written one by one", self.place(place)),
                "give this role a format that is token-writable",
            ));
        }
        self.stored.push(prefix.to_string());
        self.claims.codec(&text);
        push_text(out, &text);
        Ok(())
    }

    fn codec_units(&mut self, place: Place<'_>, prefix: &str, depth: usize, out: &mut String) -> Result<()> {
        self.check_role(place, prefix)?;
        let text = self.spec.codec(prefix).wgsl_units(prefix).text;
        self.text(&format!("units of {prefix}"), &text, depth, out)
    }

    fn codec_encode(&mut self, place: Place<'_>, prefix: &str, out: &mut String) -> Result<()> {
        self.codec_store(place, prefix, false, out)?;
        if self.encoded.iter().any(|p| p == prefix) {
            return Ok(());
        }
        self.encoded.push(prefix.to_string());
        let text = self.spec.codec(prefix).wgsl_encode(prefix);
        self.claims.codec(&text);
        push_text(out, &text);
        Ok(())
    }

    fn check_role(&self, place: Place<'_>, prefix: &str) -> Result<()> {
        let roles = self.spec.decl.codecs;
        match roles.contains(&prefix) {
            true => Ok(()),
            false => {
                Err(self.fault(place, "names no codec role of the kernel", &format!("it has: {}", roles.join(", "))))
            }
        }
    }

    /// The value of `2*N+1`.
    fn expression(&self, place: Place<'_>, text: &str) -> Result<u32> {
        let none = || self.fault(place, &format!("has the expression {text:?} without a value"), "");
        evaluate(text, &|name| self.number(place, name))?.ok_or_else(none)
    }

    /// Digits, or a numeric constant.
    fn number(&self, place: Place<'_>, text: &str) -> Result<u32> {
        match text.parse::<u32>() {
            Ok(number) => Ok(number),
            Err(_) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => match self.constant(place, text)? {
                Constant::U32(number) => Ok(number),
                _ => Err(self.fault(place, "needs a constant that is a u32", "")),
            },
            Err(_) => Err(self.fault(place, "has something that is not a u32", "write digits or a constant")),
        }
    }

    fn constant(&self, place: Place<'_>, name: &str) -> Result<Constant> {
        if let Some((_, value)) = self.loops.iter().find(|(n, _)| n == name) {
            return Ok(Constant::U32(*value));
        }
        match self.spec.constants.iter().find(|(n, _)| *n == name) {
            Some(&(_, constant)) => Ok(constant),
            None => {
                let known = self.spec.decl.constants.join(", ");
                Err(self.fault(place, &format!("names {name:?}, which is no constant"), &format!("it has: {known}")))
            }
        }
    }

    fn place(&self, place: Place<'_>) -> String {
        format!("kernel {}, {} line {}: `{}`", self.spec.decl.name, place.file, place.line, place.text)
    }

    fn fault(&self, place: Place<'_>, message: &str, remedy: &str) -> Error {
        Error::new(ErrorKind::Shape, format!("{} {message}", self.place(place)), remedy)
    }
}
