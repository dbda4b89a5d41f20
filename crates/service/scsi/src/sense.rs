//! Sense data: why a command failed, in the two formats of SPC-4 4.5.
//!
//! A [`Sense`] is a small value that is built where the fault is found; which format it takes is decided when the
//! answer is made, since the Control mode page (D_SENSE) chooses.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SenseKey {
    NoSense = 0x0,
    RecoveredError = 0x1,
    NotReady = 0x2,
    MediumError = 0x3,
    HardwareError = 0x4,
    IllegalRequest = 0x5,
    UnitAttention = 0x6,
    DataProtect = 0x7,
    CopyAborted = 0xa,
    AbortedCommand = 0xb,
    Miscompare = 0xe,
}

/// Additional sense code in the high byte, qualifier in the low byte.
pub mod asc {
    pub const NONE: u16 = 0x0000;
    pub const NOT_READY_INITIALIZING_REQUIRED: u16 = 0x0402;
    pub const NOT_READY_MANUAL_INTERVENTION: u16 = 0x0403;
    pub const THIRD_PARTY_DEVICE_FAILURE: u16 = 0x0d01;
    pub const COPY_TARGET_NOT_REACHABLE: u16 = 0x0d02;
    pub const COPY_TARGET_INCORRECT: u16 = 0x0d03;
    pub const UNRECOVERED_READ_ERROR: u16 = 0x1100;
    pub const PARAMETER_LIST_LENGTH: u16 = 0x1a00;
    pub const MISCOMPARE_DURING_VERIFY: u16 = 0x1d00;
    pub const INVALID_OPERATION_CODE: u16 = 0x2000;
    pub const LBA_OUT_OF_RANGE: u16 = 0x2100;
    pub const INVALID_FIELD_IN_CDB: u16 = 0x2400;
    pub const LOGICAL_UNIT_NOT_SUPPORTED: u16 = 0x2500;
    pub const INVALID_FIELD_IN_PARAMETER_LIST: u16 = 0x2600;
    pub const INVALID_RELEASE: u16 = 0x2604;
    pub const TOO_MANY_TARGET_DESCRIPTORS: u16 = 0x2606;
    pub const UNSUPPORTED_TARGET_DESCRIPTOR: u16 = 0x2607;
    pub const TOO_MANY_SEGMENT_DESCRIPTORS: u16 = 0x2608;
    pub const UNSUPPORTED_SEGMENT_DESCRIPTOR: u16 = 0x2609;
    pub const WRITE_PROTECTED: u16 = 0x2700;
    pub const SPACE_ALLOCATION_FAILED: u16 = 0x2707;
    pub const POWER_ON_OR_RESET: u16 = 0x2900;
    pub const BUS_DEVICE_RESET_FUNCTION: u16 = 0x2903;
    pub const MODE_PARAMETERS_CHANGED: u16 = 0x2a01;
    pub const RESERVATIONS_PREEMPTED: u16 = 0x2a03;
    pub const RESERVATIONS_RELEASED: u16 = 0x2a04;
    pub const REGISTRATIONS_PREEMPTED: u16 = 0x2a05;
    pub const CAPACITY_DATA_CHANGED: u16 = 0x2a09;
    pub const COMMANDS_CLEARED_BY_ANOTHER_INITIATOR: u16 = 0x2f00;
    pub const THIN_SOFT_THRESHOLD_REACHED: u16 = 0x3807;
    pub const SAVING_NOT_SUPPORTED: u16 = 0x3900;
    pub const INQUIRY_DATA_CHANGED: u16 = 0x3f03;
    pub const REPORTED_LUNS_DATA_CHANGED: u16 = 0x3f0e;
    pub const INTERNAL_TARGET_FAILURE: u16 = 0x4400;
    pub const INSUFFICIENT_REGISTRATION_RESOURCES: u16 = 0x5504;
}

/// Where in the CDB or the parameter list a field is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldPointer {
    pub in_cdb: bool,
    pub byte: u16,
    /// The leftmost bit of the field; `None`: the whole byte.
    pub bit: Option<u8>,
}

/// Why a command failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sense {
    pub key: SenseKey,
    /// One of [`asc`].
    pub code: u16,
    /// The INFORMATION field: an LBA, or the offset of the byte that differs.
    pub information: Option<u64>,
    pub field: Option<FieldPointer>,
}

impl Sense {
    pub const fn new(key: SenseKey, code: u16) -> Sense {
        Sense { key, code, information: None, field: None }
    }
    pub const fn illegal(code: u16) -> Sense {
        Sense::new(SenseKey::IllegalRequest, code)
    }
    /// INVALID FIELD IN CDB at a byte and, where the field is smaller, its leftmost bit.
    pub fn cdb_field(byte: usize, bit: impl Into<Option<u8>>) -> Sense {
        let field = FieldPointer { in_cdb: true, byte: byte as u16, bit: bit.into() };
        Sense { field: Some(field), ..Sense::illegal(asc::INVALID_FIELD_IN_CDB) }
    }
    /// INVALID FIELD IN PARAMETER LIST.
    pub fn parameter_field(byte: usize, bit: impl Into<Option<u8>>) -> Sense {
        let byte = u16::try_from(byte).unwrap_or(u16::MAX);
        let field = FieldPointer { in_cdb: false, byte, bit: bit.into() };
        Sense { field: Some(field), ..Sense::illegal(asc::INVALID_FIELD_IN_PARAMETER_LIST) }
    }
    pub fn at(self, information: u64) -> Sense {
        Sense { information: Some(information), ..self }
    }

    /// Fixed (70h) or descriptor (72h) format, always of the current command.
    pub fn encode(&self, descriptor_format: bool) -> SenseBytes {
        let [code, qualifier] = self.code.to_be_bytes();
        // SENSE KEY SPECIFIC (SPC-4 4.5.2.4.2), valid in its first bit.
        let specific = self.field.map(|field| {
            let kind = 0x80 | u8::from(field.in_cdb) << 6 | field.bit.map_or(0, |bit| 0x08 | (bit & 0x07));
            let [high, low] = field.byte.to_be_bytes();
            [kind, high, low]
        });
        let mut bytes = [0; SENSE_BYTES_MAX];
        let mut len = 18;
        if descriptor_format {
            bytes[..4].copy_from_slice(&[0x72, self.key as u8, code, qualifier]);
            len = 8;
            if let Some(information) = self.information {
                bytes[len..len + 4].copy_from_slice(&[0x00, 0x0a, 0x80, 0]);
                bytes[len + 4..len + 12].copy_from_slice(&information.to_be_bytes());
                len += 12;
            }
            if let Some(specific) = specific {
                bytes[len..len + 2].copy_from_slice(&[0x02, 0x06]);
                bytes[len + 4..len + 7].copy_from_slice(&specific);
                len += 8;
            }
            bytes[7] = len as u8 - 8;
        } else {
            bytes[0] = 0x70;
            bytes[2] = self.key as u8;
            bytes[7] = len as u8 - 8;
            // Four bytes only: what does not fit is not reported rather than cut.
            if let Some(information) = self.information.and_then(|value| u32::try_from(value).ok()) {
                bytes[0] |= 0x80;
                bytes[3..7].copy_from_slice(&information.to_be_bytes());
            }
            bytes[12..14].copy_from_slice(&[code, qualifier]);
            if let Some(specific) = specific {
                bytes[15..18].copy_from_slice(&specific);
            }
        }
        SenseBytes { bytes, len: len as u8 }
    }
}

impl fmt::Debug for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:02x}/{:02x}", self.key, self.code >> 8, self.code & 0xff)?;
        if let Some(information) = self.information {
            write!(f, " at {information}")?;
        }
        if let Some(FieldPointer { in_cdb, byte, bit }) = self.field {
            let list = if in_cdb { "CDB" } else { "parameters" };
            write!(f, " in {list} byte {byte}")?;
            bit.map_or(Ok(()), |bit| write!(f, " bit {bit}"))?;
        }
        Ok(())
    }
}

/// Descriptor format with an information and a sense key specific descriptor.
pub(crate) const SENSE_BYTES_MAX: usize = 8 + 12 + 8;

/// Encoded sense data, without an allocation; empty when there is none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SenseBytes {
    bytes: [u8; SENSE_BYTES_MAX],
    len: u8,
}

impl SenseBytes {
    pub const EMPTY: SenseBytes = SenseBytes { bytes: [0; SENSE_BYTES_MAX], len: 0 };
}

impl std::ops::Deref for SenseBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for SenseBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", &self[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_format() {
        let sense = Sense::cdb_field(1, 4);
        let expected = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xcc, 0, 1];
        assert_eq!(sense.encode(false)[..], expected);
        let sense = Sense::new(SenseKey::Miscompare, asc::MISCOMPARE_DURING_VERIFY).at(0x1234);
        let expected = [0xf0, 0, 0xe, 0, 0, 0x12, 0x34, 10, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0, 0];
        assert_eq!(sense.encode(false)[..], expected);
        let far = Sense::new(SenseKey::MediumError, asc::UNRECOVERED_READ_ERROR).at(1 << 32);
        assert_eq!(far.encode(false)[0], 0x70, "an address beyond four bytes is left out");
    }

    #[test]
    fn descriptor_format() {
        let sense = Sense::parameter_field(0x0102, None).at(1 << 40);
        let mut expected = vec![0x72, 5, 0x26, 0, 0, 0, 0, 20];
        expected.extend([0, 0x0a, 0x80, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
        expected.extend([2, 6, 0, 0, 0x80, 1, 2, 0]);
        assert_eq!(sense.encode(true)[..], expected);
        assert_eq!(
            Sense::illegal(asc::INVALID_OPERATION_CODE).encode(true)[..],
            [0x72, 5, 0x20, 0, 0, 0, 0, 0]
        );
    }
}
