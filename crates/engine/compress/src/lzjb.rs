//! LZJB, the small and fast Lempel–Ziv coder of ZFS.
//!
//! A byte of flags stands before each eight items, lowest bit first: 0 for a literal byte, 1 for a match of two bytes, which
//! have 6 bits of length − 3 and 10 bits of distance, highest bits first. A match has 3 to 66 bytes and may reach into itself.

const LENGTH_MIN: usize = 3;
const LENGTH_MAX: usize = LENGTH_MIN + 63;
const DISTANCE_MAX: usize = 1023;
/// Places at which three bytes were seen last, by a hash of them.
const PLACES: usize = 1024;

/// Compresses `from` into `into`; how many bytes, or nothing when they do not fit.
pub fn compress(from: &[u8], into: &mut [u8]) -> Option<usize> {
    // One more than the place; 0 for never.
    let mut seen = [0_u32; PLACES];
    let (mut at, mut out, mut flags, mut items) = (0, 0, 0, 8);
    while at < from.len() {
        if items == 8 {
            (flags, items) = (out, 0);
            *into.get_mut(flags)? = 0;
            out += 1;
        }
        let found = match from.get(at..at + LENGTH_MIN) {
            Some(three) => {
                let key = u32::from_le_bytes([three[0], three[1], three[2], 0]);
                let hash = (key.wrapping_mul(0x9e37_79b1) >> 22) as usize;
                let before = std::mem::replace(&mut seen[hash], at as u32 + 1) as usize;
                let length = |before: usize| {
                    let pairs = from[before..].iter().zip(&from[at..]);
                    pairs.take(LENGTH_MAX).take_while(|(one, other)| one == other).count()
                };
                let is_near = before > 0 && at + 1 - before <= DISTANCE_MAX;
                is_near
                    .then(|| (at + 1 - before, length(before - 1)))
                    .filter(|(_, length)| *length >= LENGTH_MIN)
            }
            None => None,
        };
        match found {
            Some((distance, length)) => {
                into[flags] |= 1 << items;
                let code = ((length - LENGTH_MIN) << 10 | distance) as u16;
                into.get_mut(out..out + 2)?.copy_from_slice(&code.to_be_bytes());
                (out, at) = (out + 2, at + length);
            }
            None => {
                *into.get_mut(out)? = from[at];
                (out, at) = (out + 1, at + 1);
            }
        }
        items += 1;
    }
    Some(out)
}

/// Expands `from` into `into`; how many bytes, or nothing when it is no such thing or more than fits.
pub fn decompress(from: &[u8], into: &mut [u8]) -> Option<usize> {
    let (mut from, mut out, mut flags, mut items) = (from.iter().copied(), 0, 0, 8);
    loop {
        if items == 8 {
            let Some(next) = from.next() else { return Some(out) };
            (flags, items) = (next, 0);
        }
        let Some(first) = from.next() else { return Some(out) };
        if flags >> items & 1 == 0 {
            *into.get_mut(out)? = first;
            out += 1;
        } else {
            let code = usize::from(u16::from_be_bytes([first, from.next()?]));
            let (length, distance) = ((code >> 10) + LENGTH_MIN, code & DISTANCE_MAX);
            let start = out.checked_sub(distance).filter(|start| *start < out)?;
            if out + length > into.len() {
                return None;
            }
            (start..start + length).for_each(|byte| {
                into[out] = into[byte];
                out += 1;
            });
        }
        items += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_stream() {
        // Four literals, then a match of six bytes at distance four.
        let stream = [0b1_0000, b'a', b'b', b'c', b'd', 3 << 2, 4];
        let mut into = [0; 16];
        assert_eq!(decompress(&stream, &mut into), Some(10));
        assert_eq!(&into[..10], b"abcdabcdab");
        let mut out = [0; 16];
        assert_eq!(compress(b"abcdabcdab", &mut out), Some(stream.len()));
        assert_eq!(out[..stream.len()], stream);
        assert_eq!(compress(b"abcdabcdab", &mut out[..6]), None, "no room");
        assert_eq!(decompress(&stream, &mut into[..9]), None, "no room");
        assert_eq!(decompress(&[1, 0, 0], &mut into), None, "distance 0");
        assert_eq!(decompress(&[1, 0, 1], &mut into), None, "before the start");
    }
}
