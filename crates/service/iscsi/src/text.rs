//! Text: `key=value` pairs, each ended by a zero byte (RFC 7143, section 6.1), and the values that keys have.

use std::fmt::Display;

/// Longest name of a key.
const KEY_MAX: usize = 63;
/// Longest value that is taken: a binary value of 1024 bytes in hexadecimal (the RFC's bound for CHAP) with its prefix.
/// Others are bounded by 255 bytes, which their own meaning checks.
const VALUE_MAX: usize = 2 + 2 * 1024;
/// Most bytes of a decoded binary value.
pub const BINARY_MAX: usize = 1024;

/// The text is not what section 6.1 describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// The pairs of a whole text, in their order.
pub fn parse(text: &[u8]) -> Result<Vec<(&str, &str)>, Malformed> {
    // Some initiators end the text with further zeros.
    let pairs = text.split(|&byte| byte == 0).filter(|pair| !pair.is_empty()).map(|pair| {
        let pair = str::from_utf8(pair).map_err(|_| Malformed)?;
        let (key, value) = pair.split_once('=').ok_or(Malformed)?;
        let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b".-+@_#".contains(&byte);
        let fits = (1..=KEY_MAX).contains(&key.len()) && value.len() <= VALUE_MAX;
        (fits && key.bytes().all(is_key)).then_some((key, value)).ok_or(Malformed)
    });
    pairs.collect()
}

/// Appends a pair.
pub fn push(text: &mut Vec<u8>, key: &str, value: impl Display) {
    text.extend_from_slice(format!("{key}={value}\0").as_bytes());
}

/// A number in decimal or hexadecimal.
pub fn number(value: &str) -> Option<u32> {
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u32::from_str_radix(digits, 16).ok()
        }
        None if value.bytes().all(|byte| byte.is_ascii_digit()) => value.parse().ok(),
        _ => None,
    }
}

pub fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

pub fn yes_or_no(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

/// Bytes written in hexadecimal (`0x`) or base64 (`0b`), at most [`BINARY_MAX`].
pub fn binary(value: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    let (prefix, digits) = value.split_at_checked(2)?;
    let bytes = match prefix {
        "0x" | "0X" => {
            let nibble = |digit: u8| char::from(digit).to_digit(16).map(|n| n as u8);
            // An odd count of digits lacks a leading zero.
            let (first, pairs) = digits.as_bytes().split_at(digits.len() % 2);
            let first = first.iter().map(|&digit| nibble(digit));
            let pairs = pairs.chunks(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?));
            first.chain(pairs).collect::<Option<Vec<u8>>>()?
        }
        "0b" | "0B" => base64::engine::general_purpose::STANDARD.decode(digits).ok()?,
        _ => return None,
    };
    (1..=BINARY_MAX).contains(&bytes.len()).then_some(bytes)
}

/// In hexadecimal, which every implementation reads.
pub fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("0x");
    bytes.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
    text
}

/// An iSCSI name in the form in which names are compared; `None` when it is none (4.2.7.1).
pub fn name(value: &str) -> Option<String> {
    const NAME_MAX: usize = 223;
    let name = value.to_ascii_lowercase();
    let typed = ["iqn.", "eui.", "naa."].iter().any(|kind| name.len() > kind.len() && name.starts_with(kind));
    let allowed =
        |c: char| c.is_ascii_alphanumeric() || "-.:_".contains(c) || (!c.is_ascii() && c.is_alphanumeric());
    (typed && name.len() <= NAME_MAX && name.chars().all(allowed)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_taken_apart_and_nonsense_is_refused() {
        assert_eq!(parse(b"A=b\0X-c.d#=\0E=f=g\0\0\0"), Ok(vec![("A", "b"), ("X-c.d#", ""), ("E", "f=g")]));
        assert_eq!(parse(b""), Ok(vec![]));
        assert_eq!(parse(b"A=1\0B=2"), Ok(vec![("A", "1"), ("B", "2")]), "the last zero may be missing");
        let long = format!("{}=1\0", "k".repeat(64));
        for text in [&b"A\0"[..], b"=b\0", b"A b=c\0", b"A=\xff\0", long.as_bytes()] {
            assert_eq!(parse(text), Err(Malformed), "{text:?}");
        }
        assert!(parse(format!("A={}\0", "v".repeat(VALUE_MAX + 1)).as_bytes()).is_err());
    }

    #[test]
    fn values() {
        let numbers =
            [("0", Some(0)), ("4294967295", Some(u32::MAX)), ("0x10", Some(16)), ("0XfF", Some(255))];
        let refused = ["4294967296", "", "0x", "-1", "+1", " 1", "1k", "0x1g", "0x100000000", "0x+1"]
            .map(|text| (text, None));
        for (text, expected) in numbers.into_iter().chain(refused) {
            assert_eq!(number(text), expected, "{text:?}");
        }
        assert_eq!([boolean("Yes"), boolean("No"), boolean("yes")], [Some(true), Some(false), None]);
        assert_eq!(binary("0x0aFf"), Some(vec![10, 255]));
        assert_eq!(binary("0xaff"), Some(vec![10, 255]));
        assert_eq!(binary("0bCv8="), Some(vec![10, 255]));
        assert_eq!(binary(&hexadecimal(&[0, 9, 254])), Some(vec![0, 9, 254]));
        for text in ["", "0", "0x", "0b", "0xg0", "0b?", "12", "0é"] {
            assert_eq!(binary(text), None, "{text:?}");
        }
        assert_eq!(binary(&hexadecimal(&[1; BINARY_MAX + 1])), None);
    }

    #[test]
    fn names() {
        assert_eq!(name("IQN.1993-08.org.debian:01:Ab").as_deref(), Some("iqn.1993-08.org.debian:01:ab"));
        assert_eq!(name("eui.02004567A425678D").as_deref(), Some("eui.02004567a425678d"));
        let long = format!("iqn.{}", "x".repeat(220));
        for text in ["", "iqn.", "host", "iqn.a b", "iqn.a/b", "iqn.a\n", &long] {
            assert_eq!(name(text), None, "{text:?}");
        }
    }
}
