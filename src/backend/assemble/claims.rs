//! Which parts of a module declare workgroup variables, and which claim not to need them cleared.

/// The claim in a codec's text, which is plain WGSL: a comment on a line of its own.
const COMMENT: &str = "//#unzeroed";

/// Whether a line of WGSL declares a workgroup variable.
pub(super) fn declares(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.contains("var<workgroup>")
}

/// What the parts of one module say.
#[derive(Default)]
pub(super) struct Claims {
    /// Some part declares workgroup variables and claims nothing.
    broken: bool,
}

impl Claims {
    /// A part that declares workgroup variables or not, and claims or not.
    pub fn note(&mut self, declared: bool, claimed: bool) {
        self.broken |= declared && !claimed;
    }

    /// A codec's text.
    pub fn codec(&mut self, text: &str) {
        self.note(text.lines().any(declares), text.lines().any(|line| line.trim() == COMMENT));
    }

    /// Whether nothing in the module needs cleared memory.
    pub fn hold(&self) -> bool {
        !self.broken
    }
}
