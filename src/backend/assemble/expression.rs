//! What `#{..}` calculates: sums and differences of products, quotients and remainders, from left to right.

use crate::error::Result;

const SUMS: [char; 2] = ['+', '-'];
const PRODUCTS: [char; 3] = ['*', '/', '%'];

/// Whether `text` is more than a name or a number.
pub(super) fn is_calculated(text: &str) -> bool {
    text.contains(SUMS) || text.contains(PRODUCTS)
}

/// The value of `text`, its names and numbers valued by `number`; `None` where it has none: a division by 0, a value
/// below 0 or above 2^32 - 1.
///
/// # Errors
/// Those of `number`.
pub(super) fn evaluate(text: &str, number: &dyn Fn(&str) -> Result<u32>) -> Result<Option<u32>> {
    // The last operator of the weakest kind is carried out last.
    let Some(at) = text.rfind(SUMS).or_else(|| text.rfind(PRODUCTS)) else {
        return number(text.trim()).map(Some);
    };
    let (Some(left), Some(right)) = (evaluate(&text[..at], number)?, evaluate(&text[at + 1..], number)?) else {
        return Ok(None);
    };
    Ok(match text.as_bytes()[at] {
        b'+' => left.checked_add(right),
        b'-' => left.checked_sub(right),
        b'*' => left.checked_mul(right),
        b'/' => left.checked_div(right),
        _ => left.checked_rem(right),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<u32> {
        let number = |name: &str| Ok(name.parse().unwrap_or(7));
        evaluate(text, &number).unwrap()
    }

    #[test]
    fn products_come_before_sums_and_both_go_from_the_left() {
        assert_eq!(value("2*N+1"), Some(15));
        assert_eq!(value("1+2*N"), Some(15));
        assert_eq!(value("9-3-2"), Some(4));
        assert_eq!(value("N/2*3 % 4"), Some(1));
        assert_eq!(value("8-1*8+1-1"), Some(0));
        assert_eq!(value(" 12 "), Some(12));
    }

    #[test]
    fn what_has_no_value_has_none() {
        for text in ["1-2", "N/0", "N%0", "4294967295+1", "65536*65536"] {
            assert_eq!(value(text), None, "{text}");
        }
    }
}
