//! `kvarto eval needle`.

use super::super::output::{self, say};
use super::flags::NeedleFlags;
use super::progress::Meter;
use super::session::Opened;
use kvarto::Result;
use kvarto::engine::Registry;
use kvarto::eval::needle::{Verdict, batches, grid, json, markdown};
use kvarto::eval::{Candidate, needle_file, plot};
use serde_json::json as value;

/// Runs the command; the text for standard output.
///
/// # Errors
/// `Usage` for a grid that cannot be made; as [`kvarto::eval::Runner::needle`].
pub fn run(flags: &NeedleFlags, registry: Registry, meter: &mut Meter) -> Result<String> {
    flags.common.backend.wanted()?;
    let mut candidates = flags.profiles.candidates(&registry)?;
    let wanted = flags.grid()?;
    let opened = Opened::open(&flags.common)?;
    opened.calibrate(&mut candidates)?;
    wanted.check(opened.config.context_length)?;
    let cases = wanted.make(&opened.tokenizer)?;
    let tokenizer = opened.tokenizer.clone();
    let batches = batches(&cases, opened.config.cache_shape(64).values_per_token());
    let mut session = opened.load(&flags.common, registry)?;
    let file = |candidate: &Candidate, batch: usize| {
        needle_file(&candidate.subject(&session.subject), &wanted, &cases[batches[batch].clone()])
    };
    let names: Vec<Vec<String>> =
        candidates.iter().map(|c| (0..batches.len()).map(|batch| file(c, batch)).collect()).collect();
    let find = |c: usize, b: usize| -> Option<Vec<Verdict>> {
        let found: Vec<Verdict> = session.earlier()?.find(&names[c][b])?;
        // The same profile may go by another word now.
        let label = || candidates[c].label.clone();
        let whole = found.len() == batches[b].len();
        whole.then(|| found.into_iter().map(|verdict| Verdict { label: label(), ..verdict }).collect())
    };
    let mut found: Vec<Vec<Option<Vec<Verdict>>>> =
        (0..candidates.len()).map(|c| (0..batches.len()).map(|b| find(c, b)).collect()).collect();
    let missing: Vec<Vec<bool>> = found.iter().map(|row| row.iter().map(Option::is_none).collect()).collect();
    let tokens = |b: usize| cases[batches[b].clone()].iter().map(|case| case.context.len() as u64).sum::<u64>();
    let runs = |b: usize| missing.iter().filter(|row| row[b]).count() as u64;
    meter.begin((0..batches.len()).filter(|&b| runs(b) > 0).map(|b| tokens(b) * (1 + runs(b))).sum());
    let folder = session.folder.clone();
    let mut done = |c: usize, b: usize, verdicts: Vec<Verdict>| {
        if let Some(folder) = &folder {
            folder.save(&names[c][b], &verdicts)?;
        }
        found[c][b] = Some(verdicts);
        Ok(())
    };
    session.runner.needle(&tokenizer, &cases, &batches, &candidates, &|c, b| missing[c][b], meter, &mut done)?;

    let all: Vec<Verdict> = found.into_iter().flatten().flatten().flatten().collect();
    let subject = &session.subject;
    let profiles: serde_json::Map<_, _> =
        candidates.iter().map(|c| (c.label.clone(), c.profile.to_toml().into())).collect();
    let run = value!({
        "version": subject.version, "command": subject.command, "seed": wanted.seed, "profiles": profiles,
        "model": {"name": subject.model, "sha256": subject.model_sha256, "architecture": subject.architecture},
        "backend": subject.backend, "adapter": subject.adapter, "tier": subject.tier,
    });
    let (whole, table) = (output::json(&json(&all, &run), true), markdown(&all));
    if let Some(folder) = &folder {
        folder.write("needle.json", whole.as_bytes())?;
        folder.write("needle.md", table.as_bytes())?;
        plot::heat_map(&grid(&all), "tokens of a case", folder, "needle")?;
        say(&format!("heat map  {}", folder.path().join("needle.png").display()));
    }
    Ok(if flags.common.json { whole } else { table })
}
