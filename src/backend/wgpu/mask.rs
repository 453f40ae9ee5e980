//! Masks: what a device is held to below what its adapter has, so that any machine can play a poorer one.

use crate::error::{Error, ErrorKind, Result};
use crate::format::words;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// A limit that can be masked, named as in [`Caps`](crate::backend::Caps).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// Largest storage binding, bytes.
    BindingBytes,
    /// Largest buffer, bytes.
    BufferBytes,
    /// Workgroup memory a group, bytes.
    WorkgroupBytes,
    /// Invocations a group.
    Invocations,
    /// Workgroups a dimension of a dispatch.
    WorkgroupsPerDimension,
    /// Storage buffers a stage.
    StorageBuffers,
}

impl Limit {
    /// All of them.
    pub const ALL: [Limit; 6] = [
        Limit::BindingBytes,
        Limit::BufferBytes,
        Limit::WorkgroupBytes,
        Limit::Invocations,
        Limit::WorkgroupsPerDimension,
        Limit::StorageBuffers,
    ];

    /// `max_binding_bytes`: the word of the record and of `--limits`.
    pub fn as_str(self) -> &'static str {
        match self {
            Limit::BindingBytes => "max_binding_bytes",
            Limit::BufferBytes => "max_buffer_bytes",
            Limit::WorkgroupBytes => "max_workgroup_bytes",
            Limit::Invocations => "max_invocations",
            Limit::WorkgroupsPerDimension => "max_workgroups_per_dimension",
            Limit::StorageBuffers => "max_storage_buffers",
        }
    }

    /// The least that the backend can work with: the host splits for bindings and folds dispatches, but not below this.
    pub fn least(self) -> u64 {
        match self {
            // Room for the parameter blocks of a recording of 4096 dispatches.
            Limit::BindingBytes => 1 << 20,
            // A model's rows of activations lie in one buffer.
            Limit::BufferBytes => 16 << 20,
            // Dispatches are folded into two dimensions: a million workgroups.
            Limit::WorkgroupsPerDimension => 1 << 10,
            Limit::WorkgroupBytes | Limit::Invocations | Limit::StorageBuffers => self.of(&wgpu::Limits::defaults()),
        }
    }

    /// Its value among `limits`.
    pub fn of(self, limits: &wgpu::Limits) -> u64 {
        match self {
            Limit::BindingBytes => limits.max_storage_buffer_binding_size,
            Limit::BufferBytes => limits.max_buffer_size,
            Limit::WorkgroupBytes => limits.max_compute_workgroup_storage_size.into(),
            Limit::Invocations => {
                limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x).into()
            }
            Limit::WorkgroupsPerDimension => limits.max_compute_workgroups_per_dimension.into(),
            Limit::StorageBuffers => limits.max_storage_buffers_per_shader_stage.into(),
        }
    }

    fn set(self, limits: &mut wgpu::Limits, value: u64) {
        let narrow = u32::try_from(value).unwrap_or(u32::MAX);
        match self {
            Limit::BindingBytes => limits.max_storage_buffer_binding_size = value,
            Limit::BufferBytes => limits.max_buffer_size = value,
            Limit::WorkgroupBytes => limits.max_compute_workgroup_storage_size = narrow,
            Limit::Invocations => {
                limits.max_compute_invocations_per_workgroup = narrow;
                limits.max_compute_workgroup_size_x = narrow;
            }
            Limit::WorkgroupsPerDimension => limits.max_compute_workgroups_per_dimension = narrow,
            Limit::StorageBuffers => limits.max_storage_buffers_per_shader_stage = narrow,
        }
    }
}

/// Where the limits that are not set one by one come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitBase {
    /// The adapter, or the caller's own device.
    #[default]
    Adapter,
    /// WebGPU's defaults: what every browser's adapter has.
    WebgpuDefault,
}

impl LimitBase {
    /// Both of them.
    pub const ALL: [LimitBase; 2] = [LimitBase::Adapter, LimitBase::WebgpuDefault];

    /// `adapter` or `webgpu-default`.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitBase::Adapter => "adapter",
            LimitBase::WebgpuDefault => "webgpu-default",
        }
    }
}

/// Limits that a device is held to; by default the adapter's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitMask {
    base: LimitBase,
    set: BTreeMap<Limit, u64>,
}

impl LimitMask {
    /// The limits of `base`.
    pub fn new(base: LimitBase) -> Self {
        LimitMask { base, set: BTreeMap::new() }
    }

    /// The same with `limit` at `value` (bytes, or a count); checked when a device is opened.
    pub fn with(mut self, limit: Limit, value: u64) -> Self {
        self.set.insert(limit, value);
        self
    }

    /// Reads `webgpu-default`, `adapter`, or pairs such as `max_binding_bytes=1MiB` (KiB, MiB, GiB), comma-separated.
    ///
    /// # Errors
    /// `Usage` for a word that is not known (with the nearest that is), a value that is no number or below
    /// [`Limit::least`], and for what is said twice.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |what: String, remedy: String| Error::new(ErrorKind::Usage, what, remedy);
        let twice = |word: &str| bad(format!("{word} is given twice"), "once is enough".into());
        let (mut base, mut set) = (None, BTreeMap::new());
        for word in text.split(',').map(str::trim) {
            let Some((key, value)) = word.split_once('=') else {
                let known = LimitBase::ALL.into_iter().find(|b| b.as_str() == word).ok_or_else(|| {
                    if Limit::ALL.iter().any(|limit| limit.as_str() == word) {
                        return bad(format!("{word} has no value"), format!("write {word}=NUMBER"));
                    }
                    if word.is_empty() {
                        return bad("a word is missing".into(), "write webgpu-default, or KEY=VALUE".into());
                    }
                    let names = LimitBase::ALL.map(LimitBase::as_str).into_iter();
                    let names = names.chain(Limit::ALL.map(Limit::as_str));
                    bad(
                        format!("{word:?} says nothing of limits"),
                        words::suggest(word, names) + "; the latter as KEY=VALUE",
                    )
                })?;
                if base.replace(known).is_some() {
                    return Err(twice("where limits come from"));
                }
                continue;
            };
            let (key, value) = (key.trim(), value.trim());
            let limit = Limit::ALL.into_iter().find(|l| l.as_str() == key).ok_or_else(|| {
                let names = Limit::ALL.map(Limit::as_str).into_iter();
                bad(format!("{key:?} is not a limit"), words::suggest(key, names))
            })?;
            let number = number(value).ok_or_else(|| {
                bad(
                    format!("{value:?} is not a value of {key}"),
                    "write a whole number, or one of KiB, MiB or GiB".into(),
                )
            })?;
            limit.check(number)?;
            if set.insert(limit, number).is_some() {
                return Err(twice(key));
            }
        }
        Ok(LimitMask { base: base.unwrap_or_default(), set })
    }

    /// The limits to ask for of an adapter that offers `offered`, or that a device which has them is held to.
    ///
    /// # Errors
    /// `Usage` for a value below [`Limit::least`]; `Unsupported` for one above what `title` offers.
    pub(super) fn over(&self, offered: &wgpu::Limits, title: &str) -> Result<wgpu::Limits> {
        let mut limits = wgpu::Limits::defaults();
        for limit in Limit::ALL {
            if self.base == LimitBase::Adapter {
                limit.set(&mut limits, limit.of(offered));
            }
            let Some(&value) = self.set.get(&limit) else { continue };
            limit.check(value)?;
            let (name, most) = (limit.as_str(), limit.of(offered));
            if value > most {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("limit {name}={value} is above the adapter's: {title} has {most}"),
                    format!("a mask only takes away: give at most {most}"),
                ));
            }
            limit.set(&mut limits, value);
        }
        // Textures, vertices and the like may be poorer than WebGPU's defaults: nothing here uses them.
        Ok(limits.or_worse_values_from(offered))
    }

    fn words(&self) -> impl Iterator<Item = String> {
        let base = (self.base != LimitBase::Adapter).then(|| format!("limits={}", self.base.as_str()));
        base.into_iter().chain(self.set.iter().map(|(limit, value)| format!("{}={value}", limit.as_str())))
    }
}

impl Limit {
    fn check(self, value: u64) -> Result<()> {
        let (name, least) = (self.as_str(), self.least());
        if value >= least {
            return Ok(());
        }
        let message = format!("limit {name}={value} is below what the kernels and their buffers need, {least}");
        Err(Error::new(ErrorKind::Usage, message, format!("give at least {least}")))
    }
}

/// `1048576`, `1MiB`.
fn number(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].trim_start() {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    // `parse` alone would take a sign.
    let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten()?;
    number.checked_mul(1 << shift)
}

/// Optional features that are not used although the adapter may have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// 16-bit floats in shaders.
    pub f16: bool,
    /// Subgroup operations.
    pub subgroups: bool,
    /// Device timestamps: kernels are then timed by the host.
    pub timestamps: bool,
}

impl Without {
    /// The words of `--without`.
    pub const WORDS: [&str; 3] = ["f16", "subgroups", "timestamps"];

    /// Reads `f16,subgroups,timestamps` or a part of these.
    ///
    /// # Errors
    /// `Usage` for a word that is not known, with the nearest that is.
    pub fn parse(text: &str) -> Result<Self> {
        let mut without = Without::default();
        for word in text.split(',').map(str::trim) {
            match word {
                "f16" => without.f16 = true,
                "subgroups" => without.subgroups = true,
                "timestamps" => without.timestamps = true,
                _ => {
                    let message = format!("{word:?} is no optional feature that can be left out");
                    let remedy = words::suggest(word, Without::WORDS.into_iter());
                    return Err(Error::new(ErrorKind::Usage, message, remedy));
                }
            }
        }
        Ok(without)
    }

    /// What is left of `offered`: the features that the backend makes use of.
    pub(super) fn of(self, offered: wgpu::Features) -> wgpu::Features {
        let mut wanted = wgpu::Features::empty();
        for (taken, feature) in [
            (self.timestamps, wgpu::Features::TIMESTAMP_QUERY),
            (self.f16, wgpu::Features::SHADER_F16),
            (self.subgroups, wgpu::Features::SUBGROUP),
        ] {
            if !taken {
                wanted |= feature;
            }
        }
        wanted & offered
    }

    fn words(self) -> impl Iterator<Item = String> {
        let taken = [self.f16, self.subgroups, self.timestamps];
        Without::WORDS.into_iter().zip(taken).filter(|(_, taken)| *taken).map(|(word, _)| format!("without {word}"))
    }
}

/// Both masks as the record lists them.
pub(super) fn masked(limits: &LimitMask, without: Without) -> Vec<String> {
    limits.words().chain(without.words()).collect()
}
