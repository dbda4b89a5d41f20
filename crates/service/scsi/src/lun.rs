//! Logical unit numbers as they travel: eight bytes, of which a disk array uses the first two (SAM-5 4.7).
//!
//! Numbers below 256 are written in the peripheral device form and larger ones in the flat space form, as
//! initiators expect; both forms are understood for every number that they can hold. Deeper levels, other buses
//! and extended addresses name nothing here: they are "no such unit", not an error of the transport.

use std::fmt;

/// The largest number that the flat form holds.
pub const LUN_MAX: u16 = (1 << 14) - 1;

/// A single-level logical unit number: 0 to [`LUN_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lun(u16);

impl Lun {
    pub fn new(number: u16) -> Option<Lun> {
        (number <= LUN_MAX).then_some(Lun(number))
    }
    pub fn number(self) -> u16 {
        self.0
    }
    /// The number in the eight bytes; `None` when they address something that a single-level disk array does not have.
    pub fn decode(bytes: [u8; 8]) -> Option<Lun> {
        let [high, low, rest @ ..] = bytes;
        if rest != [0; 6] {
            return None;
        }
        match high >> 6 {
            // Peripheral device addressing: bus 0 only.
            0b00 if high == 0 => Some(Lun(u16::from(low))),
            0b01 => Some(Lun(u16::from(high & 0x3f) << 8 | u16::from(low))),
            _ => None,
        }
    }
    pub fn encode(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        let form = if self.0 < 256 { 0 } else { 0x4000 };
        bytes[..2].copy_from_slice(&(form | self.0).to_be_bytes());
        bytes
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_number() {
        let decode = |high, low| Lun::decode([high, low, 0, 0, 0, 0, 0, 0]).map(Lun::number);
        assert_eq!(decode(0, 0), Some(0));
        assert_eq!(decode(0, 255), Some(255));
        assert_eq!(decode(0x40, 3), Some(3));
        assert_eq!(decode(0x41, 0), Some(256));
        assert_eq!(decode(0x7f, 0xff), Some(LUN_MAX));
        assert_eq!(decode(0x01, 0), None, "another bus");
        assert_eq!(decode(0x80, 0), None, "the logical unit form");
        assert_eq!(decode(0xc1, 1), None, "a well known logical unit");
        assert_eq!(Lun::decode([0, 1, 0, 1, 0, 0, 0, 0]), None, "a second level");
        for number in [0, 1, 255, 256, 4097, LUN_MAX] {
            let lun = Lun::new(number).expect("a number in range");
            assert_eq!(Lun::decode(lun.encode()), Some(lun));
        }
        assert_eq!(Lun::new(LUN_MAX + 1), None);
    }
}
