//! The command line: its words, its numbers, and how a fault in it is told.

use super::{output, report};
use clap::{Arg, Command, Parser};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// Reads the words of the command line; the exit code when there is nothing to run: 0 after help, 2 after a fault,
/// 1 when help could not be written.
pub fn parse<C: Parser>(words: Vec<OsString>) -> Result<C, ExitCode> {
    let error = match C::try_parse_from(&words) {
        Ok(parsed) => return Ok(parsed),
        Err(error) => error,
    };
    if !error.use_stderr() {
        return Err(help(&error));
    }
    let error = without_controls::<C>(error, &words);
    if json_wanted(&C::command(), words.get(1..).unwrap_or_default()) {
        report::usage(&error);
    } else {
        // Where standard error fails there is nobody left to tell.
        let _ = error.print();
    }
    Err(ExitCode::from(2))
}

/// Writes help or the version.
fn help(text: &clap::Error) -> ExitCode {
    let mut out = std::io::stdout();
    let written = match out.is_terminal() {
        true => text.print().and_then(|()| out.flush()).map_err(anyhow::Error::from),
        false => output::write(&text.to_string()).map_err(anyhow::Error::from),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::fault(&error, false);
            ExitCode::FAILURE
        }
    }
}

/// The same fault, told of words whose control characters are spelled out: clap repeats words as they came.
fn without_controls<C: Parser>(error: clap::Error, words: &[OsString]) -> clap::Error {
    let clean: Vec<String> = words.iter().map(|word| output::escaped(&word.to_string_lossy())).collect();
    if words.iter().zip(&clean).all(|(word, clean)| word.as_os_str() == clean.as_str()) {
        return error;
    }
    match C::try_parse_from(&clean) {
        Err(error) if error.use_stderr() => error,
        // Not the same fault any more: plain text without colours can be cleaned as it is.
        _ => C::command().error(error.kind(), output::escaped_lines(&error.to_string())),
    }
}

/// Whether `--json` stands among `words` as a flag: before any `--`, and not as the value of another flag.
fn json_wanted(command: &Command, words: &[OsString]) -> bool {
    let mut command = command.clone();
    // Flags that all commands share are there only then.
    command.build();
    let (mut at, mut rest) = (&command, words.iter().map(|word| word.to_string_lossy()).peekable());
    while let Some(word) = rest.next() {
        let Some(long) = word.strip_prefix("--") else {
            at = at.find_subcommand(word.as_ref()).unwrap_or(at);
            continue;
        };
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        match name {
            "" => return false,
            "json" => return true,
            _ => {}
        }
        let taker = at.get_arguments().find(|arg| arg.get_long() == Some(name) && arg.get_action().takes_values());
        if value.is_none() && taker.zip(rest.peek()).is_some_and(|(arg, next)| is_value(arg, next)) {
            rest.next();
        }
    }
    false
}

/// Whether clap takes `word` for the value of the flag before it.
fn is_value(arg: &Arg, word: &str) -> bool {
    !word.starts_with('-')
        || word == "-"
        || arg.is_allow_hyphen_values_set()
        || (arg.is_allow_negative_numbers_set() && word[1..].starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

/// A whole number; the error states the range.
pub fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("a whole number from 0 to {} is wanted", usize::MAX))
}

/// Milliseconds; the error states the range.
pub fn milliseconds(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("a whole number from 0 to {} is wanted", u32::MAX))
}

/// A seed; the error states the range.
pub fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a whole number from 0 to {} is wanted", u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::CommandFactory;

    fn wanted(line: &str) -> bool {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        json_wanted(&Cli::command(), &words)
    }

    #[test]
    fn json_is_wanted_where_it_is_a_flag() {
        for line in [
            "generate --json --wrong",
            "generate --wrong --json",
            "generate --seed -1 --json",
            "generate --stop x --json",
            // A flag does not serve as a value: the value is missing.
            "generate --stop --json",
            "generate hi -v --json --kv",
            "models list --json x",
            "models --json",
            "--json generate hi",
            "doctor --json --adapter",
            "generate --json=yes hi",
            "generate --prompt-file - --json --top-k x",
        ] {
            assert!(wanted(line), "{line}");
        }
        for line in [
            "generate hi --wrong",
            "generate --wrong -- --json",
            "generate --model=--json --top-k x",
            "generate --stop=--json --wrong",
            "models list -- --json",
            "generate json --wrong",
            "generate --jsonl",
            "generate -- hi --json --json",
        ] {
            assert!(!wanted(line), "{line}");
        }
    }

    #[test]
    fn json_is_read_as_clap_reads_it() {
        let parts = ["--json", "--", "--stop", "--model=--json", "hi", "--seed", "-1", "7", "--chat", "-v", "--kv"];
        let mut well = 0;
        // Every line of up to four of these words.
        for code in 0..parts.len().pow(4) {
            let mut words = vec!["kvarto", "generate"];
            words.extend((0..4).map(|at| parts[code / parts.len().pow(at) % parts.len()]));
            let Ok(cli) = Cli::try_parse_from(&words) else { continue };
            let super::super::Command::Generate(command) = cli.command else { panic!("{words:?}") };
            let words: Vec<OsString> = words[1..].iter().map(OsString::from).collect();
            assert_eq!(json_wanted(&Cli::command(), &words), command.json, "{words:?}");
            well += 1;
        }
        assert!(well > 100, "{well}");
    }
}
