//! Numbers as words: large ones in groups of three digits, bytes in units.

/// A number with its digits in groups of three.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Bytes: exact below 10 KiB, with two digits after the point above.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if number < 10 << 10 {
        return format!("{} B", thousands(number));
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_groups_and_units() {
        assert_eq!([thousands(0), thousands(999), thousands(1000)], ["0", "999", "1,000"]);
        assert_eq!(thousands(12_345_678), "12,345,678");
        assert_eq!([bytes(10_239), bytes(10_240), bytes(3 << 30)], ["10,239 B", "10.00 KiB", "3.00 GiB"]);
        assert!(bytes(u64::MAX).ends_with("PiB"));
    }
}
