//! 128-bit identifiers of pools, disks and datasets, shown as UUIDs (RFC 9562, version 4 when drawn at random).

use std::{fmt, str::FromStr};

/// A UUID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Id(pub u128);

impl Id {
    /// A version 4 UUID out of two random words.
    pub fn from_random(high: u64, low: u64) -> Id {
        let bits = (u128::from(high) << 64) | u128::from(low);
        let version = (bits & !(0xf << 76)) | (0x4 << 76);
        Id((version & !(0x3 << 62)) | (0x2 << 62))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 32 hexadecimal digits with or without dashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAnId;

impl FromStr for Id {
    type Err = NotAnId;
    fn from_str(text: &str) -> Result<Id, NotAnId> {
        let digits: String = text.chars().filter(|&c| c != '-').collect();
        if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(NotAnId);
        }
        u128::from_str_radix(&digits, 16).map(Id).map_err(|_| NotAnId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let id = Id::from_random(0x0123456789abcdef, 0xfedcba9876543210);
        assert_eq!(id.to_string(), "01234567-89ab-4def-bedc-ba9876543210");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("xyz".parse::<Id>(), Err(NotAnId));
        assert_eq!("+1234567890123456789012345678901".parse::<Id>(), Err(NotAnId));
    }
}
