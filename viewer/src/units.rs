//! Numbers as people read them, each with its unit.

/// Bytes in binary units: `17 B`, `4.00 KiB`, `30.7 MiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    // What rounds to 1024 belongs to the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

/// A time: `47.1 ms`.
pub fn nanoseconds(ns: u64) -> String {
    match ns {
        0 => "0 s".into(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", three_digits(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three_digits(ns as f64 / 1e6)),
        _ => format!("{} s", three_digits(ns as f64 / 1e9)),
    }
}

/// Bytes a second, in decimal units as bandwidths are told.
pub fn bandwidth(bytes_per_second: f64) -> String {
    if !bytes_per_second.is_finite() {
        return "unknown".into();
    }
    let (value, unit) = match bytes_per_second.abs() {
        n if n >= 1e12 => (bytes_per_second / 1e12, "TB/s"),
        n if n >= 1e9 => (bytes_per_second / 1e9, "GB/s"),
        n if n >= 1e6 => (bytes_per_second / 1e6, "MB/s"),
        _ => (bytes_per_second / 1e3, "kB/s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// A share as a percentage; `unknown` for what is no number.
pub fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", share * 100.0) } else { "unknown".into() }
}

/// A whole number with a comma before each three digits.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number and what it counts: `1 page`, `2 pages`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// About three digits that count.
fn three_digits(value: f64) -> String {
    match value.abs() {
        n if n < 9.995 => format!("{value:.2}"),
        n if n < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_about_three_digits() {
        let all: Vec<String> = [0, 1023, 1024, 1536, 32_158_080, (1 << 30) - 1, u64::MAX].map(bytes).to_vec();
        assert_eq!(all, ["0 B", "1023 B", "1.00 KiB", "1.50 KiB", "30.7 MiB", "1.00 GiB", "16.0 EiB"]);
        let all: Vec<String> = [0, 999, 1500, 47_100_000, 1_234_000_000].map(nanoseconds).to_vec();
        assert_eq!(all, ["0 s", "999 ns", "1.50 µs", "47.1 ms", "1.23 s"]);
        assert_eq!([3.2e9, 72.84e9, f64::NAN].map(bandwidth), ["3.20 GB/s", "72.8 GB/s", "unknown"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([counted(1, "page", "pages"), counted(2, "page", "pages")], ["1 page", "2 pages"]);
        assert_eq!([0.5, f64::INFINITY].map(percent), ["50.0 %", "unknown"]);
    }
}
