//! The part of BER that SNMP writes (RFC 3417, section 8; X.690): definite lengths, primitive values, sequences.

pub const SEQUENCE: u8 = 0x30;
/// `[7] IMPLICIT`, constructed: SNMPv2-Trap-PDU (RFC 3416, section 3).
pub const TRAP_V2: u8 = 0xa7;
/// `[APPLICATION 1]`: Counter32, `[APPLICATION 2]`: Unsigned32, `[APPLICATION 3]`: TimeTicks (RFC 2578, section 2).
pub const UNSIGNED_32: u8 = 0x42;
pub const TIME_TICKS: u8 = 0x43;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// A tag, a length and the content.
pub fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    // Below 128 in one byte, else the number of bytes and then those.
    if content.len() < 0x80 {
        out.push(content.len() as u8);
    } else {
        let bytes = content.len().to_be_bytes();
        let significant = &bytes[content.len().leading_zeros() as usize / 8..];
        out.push(0x80 | significant.len() as u8);
        out.extend_from_slice(significant);
    }
    out.extend_from_slice(content);
    out
}

pub fn sequence(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    element(tag, &parts.concat())
}

pub fn octets(bytes: &[u8]) -> Vec<u8> {
    element(OCTET_STRING, bytes)
}

/// A non-negative INTEGER.
pub fn integer(value: u32) -> Vec<u8> {
    unsigned(INTEGER, value)
}

/// A non-negative number: as few bytes as leave the sign bit clear.
pub fn unsigned(tag: u8, value: u32) -> Vec<u8> {
    let bytes = u64::from(value).to_be_bytes();
    let begin = (0..7).find(|&at| bytes[at] != 0 || bytes[at + 1] & 0x80 != 0).unwrap_or(7);
    element(tag, &bytes[begin..])
}

/// An object identifier of at least two numbers, the first of which is 0 to 2 and the second below 40.
pub fn oid(numbers: &[u32]) -> Vec<u8> {
    let [first, second, rest @ ..] = numbers else { return element(OBJECT_IDENTIFIER, &[]) };
    debug_assert!(*first <= 2 && *second < 40, "identifiers are constants of ours");
    let mut content = vec![(first * 40 + second) as u8];
    for &number in rest {
        // Seven bits a byte, the most significant first; all but the last have the high bit.
        for shift in (1..5).rev().map(|byte| byte * 7) {
            if number >> shift != 0 {
                content.push(0x80 | (number >> shift & 0x7f) as u8);
            }
        }
        content.push((number & 0x7f) as u8);
    }
    element(OBJECT_IDENTIFIER, &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_standard() {
        // X.690, 8.19.5 (the identifier 2.100.3 is beyond us); the others by the rules of 8.1.3, 8.3 and 8.19.
        assert_eq!(oid(&[1, 3, 6, 1, 4, 1, 8072]), [6, 7, 0x2b, 6, 1, 4, 1, 0xbf, 0x08]);
        assert_eq!(oid(&[1, 3, u32::MAX]), [6, 6, 0x2b, 0x8f, 0xff, 0xff, 0xff, 0x7f]);
        for (value, expected) in [
            (0, vec![2, 1, 0]),
            (127, vec![2, 1, 127]),
            (128, vec![2, 2, 0, 128]),
            (256, vec![2, 2, 1, 0]),
            (0x7fff_ffff, vec![2, 4, 0x7f, 0xff, 0xff, 0xff]),
            (u32::MAX, vec![2, 5, 0, 0xff, 0xff, 0xff, 0xff]),
        ] {
            assert_eq!(integer(value), expected);
        }
        assert_eq!(octets(&[7; 127])[..3], [4, 127, 7]);
        assert_eq!(octets(&[7; 128])[..4], [4, 0x81, 128, 7]);
        assert_eq!(octets(&[7; 256])[..5], [4, 0x82, 1, 0, 7]);
        assert_eq!(octets(&[7; 70_000])[..5], [4, 0x83, 1, 0x11, 0x70]);
        assert_eq!(sequence(SEQUENCE, &[integer(1), octets(b"a")]), [0x30, 6, 2, 1, 1, 4, 1, b'a']);
    }
}
