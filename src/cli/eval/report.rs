//! What an evaluation says: tables for people, JSON for programs, files for the archive.

use super::super::output;
use super::super::report::figure;
use kvarto::Result;
use kvarto::eval::{self, Folder, Record, Summary, plot};

/// Everything as JSON.
pub fn json(records: &[Record]) -> String {
    output::json(&eval::json(records, &std::env::args().collect::<Vec<_>>()), true)
}

/// The Markdown table, one line a profile, context and text.
pub fn table(records: &[Record]) -> String {
    eval::markdown(&Summary::of(records))
}

/// Perplexities.
pub fn ppl(records: &[Record]) -> String {
    let mut out = String::new();
    for s in Summary::of(records) {
        let percent = s.nll_difference.map(|d| (d.exp() - 1.0) * 100.0);
        out += &format!(
            "{}, {} of {} tokens, {} windows, {} tokens scored\n",
            s.label, s.text, s.window_tokens, s.windows, s.tokens
        );
        out += &format!("  perplexity  {}, dense {} ({} %)\n", exact(s.ppl), exact(s.ppl_dense), signed(percent));
        out += &format!(
            "  NLL         {} nat a token beside dense{}\n",
            signed5(s.nll_difference),
            interval(s.nll_interval)
        );
        out += &bits(&s);
    }
    out
}

/// Divergences, with a line for each stretch of positions.
pub fn kl(records: &[Record]) -> String {
    let mut out = String::new();
    for s in Summary::of(records) {
        out += &format!(
            "{}, {} of {} tokens, {} windows, {} tokens scored\n",
            s.label, s.text, s.window_tokens, s.windows, s.tokens
        );
        out += &format!(
            "  KL to dense  {} nat{}, 99 % below {}\n",
            small(s.kl_mean),
            interval(s.kl_interval),
            small(s.kl_p99)
        );
        out += &format!("  agreement    top-1 {}, top-5 {}\n", share(s.top1), share(s.top5));
        for b in &s.buckets {
            out += &format!(
                "    {:>6} to {:<6} KL {}, 99 % below {}, top-1 {}, top-5 {}\n",
                b.from,
                b.to,
                small(b.kl_mean),
                small(b.kl_p99),
                share(b.top1),
                share(b.top5)
            );
        }
        out += &bits(&s);
    }
    out
}

fn bits(s: &Summary) -> String {
    format!(
        "  bits a value: resident {}, read {}, metadata {}; decode {} tok/s\n",
        figure(s.resident_bits_per_value),
        figure(s.read_bits_per_value),
        figure(s.metadata_bits_per_value),
        figure(s.decode_tokens_per_s)
    )
}

fn exact(value: Option<f64>) -> String {
    value.map_or("-".into(), |v| format!("{v:.4}"))
}

fn signed(value: Option<f64>) -> String {
    value.map_or("-".into(), |v| format!("{v:+.2}"))
}

fn signed5(value: Option<f64>) -> String {
    value.map_or("-".into(), |v| format!("{v:+.5}"))
}

fn share(value: Option<f64>) -> String {
    value.map_or("-".into(), |v| format!("{v:.3}"))
}

fn small(value: Option<f64>) -> String {
    value.map_or("-".into(), |v| format!("{v:.6}"))
}

fn interval(value: Option<[f64; 2]>) -> String {
    value.map_or(String::new(), |[low, high]| format!(" (95 % of windows: {low:+.6} to {high:+.6})"))
}

/// Writes `results.json`, `results.md` and the plots into the folder of results, if there is one.
///
/// # Errors
/// `File` for a file that cannot be written.
pub fn write(records: &[Record], folder: Option<&Folder>) -> Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    folder.write("results.json", json(records).as_bytes())?;
    folder.write("results.md", table(records).as_bytes())?;
    for name in plot::frontier(&Summary::of(records), folder)? {
        output::say(&format!("plot      {}", folder.path().join(name + ".png").display()));
    }
    Ok(())
}
