//! GPT-2's spelling of bytes as characters.

/// The character that stands for `byte`: itself where printable, else the next one from U+0100 on.
pub(super) fn char_of(byte: u8) -> char {
    let shifted = match byte {
        0x00..=0x20 => u32::from(byte),
        0x7F..=0xA0 => u32::from(byte) - 0x7F + 0x21,
        0xAD => 0x43,
        printable => return char::from(printable),
    };
    // 0x100 to 0x143: always a character.
    char::from_u32(0x100 + shifted).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte `c` stands for, if it is one of the 256.
pub(super) fn byte_of(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// The bytes of a token spelled so; its plain UTF-8 when it holds any other character.
pub(super) fn bytes_of(token: &str) -> Vec<u8> {
    token.chars().map(byte_of).collect::<Option<Vec<u8>>>().unwrap_or_else(|| token.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_a_bijection() {
        let mut seen = std::collections::HashSet::new();
        for byte in 0..=255u8 {
            assert_eq!(byte_of(char_of(byte)), Some(byte));
            assert!(seen.insert(char_of(byte)));
        }
        assert_eq!((char_of(b' '), char_of(b'\n'), char_of(0xAD)), ('Ġ', 'Ċ', 'Ń'));
        assert_eq!(bytes_of("Ġé日"), "Ġé日".as_bytes());
    }
}
