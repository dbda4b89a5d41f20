//! Every PDU of RFC 7143, section 11: the basic header segment as bytes, and its fields as structs.
//!
//! A [`Bhs`] is 48 bytes with what all PDUs share. Each PDU's own fields are a plain struct whose declaration is the
//! format: field, type, and the byte at which it starts. Decoding cannot fail, as every bit pattern of a
//! field is a value; whether the values make sense is for the state machines to judge. Encoding gives zeros
//! wherever the RFC reserves. The additional header segments that exist are told apart by [`additional`].

use crate::wire::{Attribute, flag, opcode};

pub const BHS_LEN: usize = 48;
/// Bytes of additional headers: their length is 8 bits of words.
pub const AHS_MAX: usize = 255 * 4;
/// The longest data segment that a header can announce: 24 bits.
pub const SEGMENT_MAX: u32 = (1 << 24) - 1;

const IMMEDIATE: u8 = 0x40;

/// A basic header segment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bhs(pub [u8; BHS_LEN]);

impl Bhs {
    pub fn new(opcode: u8) -> Bhs {
        let mut bytes = [0; BHS_LEN];
        bytes[0] = opcode;
        Bhs(bytes)
    }
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }
    /// Outside the order of commands.
    pub fn is_immediate(&self) -> bool {
        self.0[0] & IMMEDIATE != 0
    }
    pub fn immediate(mut self) -> Bhs {
        self.0[0] |= IMMEDIATE;
        self
    }
    pub fn flags(&self) -> u8 {
        self.0[1]
    }
    pub fn is_final(&self) -> bool {
        self.flags() & flag::FINAL != 0
    }
    /// Bytes of additional headers.
    pub fn ahs_len(&self) -> usize {
        usize::from(self.0[4]) * 4
    }
    pub fn set_ahs_len(&mut self, bytes: usize) {
        assert!(bytes <= AHS_MAX && bytes.is_multiple_of(4), "{bytes} bytes of additional headers");
        self.0[4] = (bytes / 4) as u8;
    }
    /// Bytes of data, without padding.
    pub fn data_len(&self) -> u32 {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]])
    }
    pub fn set_data_len(&mut self, len: u32) {
        assert!(len <= SEGMENT_MAX, "a data segment of {len} bytes");
        self.0[5..8].copy_from_slice(&len.to_be_bytes()[1..]);
    }
    pub fn lun(&self) -> u64 {
        Field::get(&self.0, 8)
    }
    /// Initiator task tag.
    pub fn itt(&self) -> u32 {
        Field::get(&self.0, 16)
    }
    /// Of requests that have one: their place in the order of commands.
    pub fn cmd_sn(&self) -> u32 {
        Field::get(&self.0, 24)
    }
    /// StatSN, ExpCmdSN and MaxCmdSN, which all PDUs from the target have in the same place.
    pub fn set_sequence(&mut self, stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32) {
        stat_sn.put(&mut self.0, 24);
        exp_cmd_sn.put(&mut self.0, 28);
        max_cmd_sn.put(&mut self.0, 32);
    }
    pub fn stat_sn(&self) -> u32 {
        Field::get(&self.0, 24)
    }
    pub fn exp_cmd_sn(&self) -> u32 {
        Field::get(&self.0, 28)
    }
    pub fn max_cmd_sn(&self) -> u32 {
        Field::get(&self.0, 32)
    }
}

impl std::fmt::Debug for Bhs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bhs({:#04x}", self.opcode())?;
        self.0[1..].chunks(4).try_for_each(|word| write!(f, " {word:02x?}"))?;
        f.write_str(")")
    }
}

/// A value at a place in a header.
trait Field: Sized {
    fn get(bytes: &[u8; BHS_LEN], at: usize) -> Self;
    fn put(&self, bytes: &mut [u8; BHS_LEN], at: usize);
}

macro_rules! number_field {
    ($($number:ty)*) => {$(
        impl Field for $number {
            fn get(bytes: &[u8; BHS_LEN], at: usize) -> $number {
                <$number>::from_be_bytes(Field::get(bytes, at))
            }
            fn put(&self, bytes: &mut [u8; BHS_LEN], at: usize) {
                self.to_be_bytes().put(bytes, at);
            }
        }
    )*};
}
number_field!(u8 u16 u32 u64);

impl<const N: usize> Field for [u8; N] {
    fn get(bytes: &[u8; BHS_LEN], at: usize) -> [u8; N] {
        *bytes[at..].first_chunk().expect("fields lie within the header")
    }
    fn put(&self, bytes: &mut [u8; BHS_LEN], at: usize) {
        bytes[at..at + N].copy_from_slice(self);
    }
}

macro_rules! pdus {
    ($($(#[$doc:meta])* $name:ident = $opcode:ident { $($(#[$note:meta])* $field:ident: $kind:ty = $at:literal,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
            pub struct $name { $($(#[$note])* pub $field: $kind,)* }
            impl $name {
                pub fn decode(bhs: &Bhs) -> $name {
                    $name { $($field: Field::get(&bhs.0, $at),)* }
                }
                /// Without data and additional headers.
                pub fn encode(&self) -> Bhs {
                    let mut bhs = Bhs::new(opcode::$opcode);
                    $(self.$field.put(&mut bhs.0, $at);)*
                    bhs
                }
            }
        )*
        #[cfg(test)]
        fn round_trips(bytes: [u8; BHS_LEN]) -> usize {
            let mut count = 0;
            $({
                let first = $name::decode(&Bhs(bytes));
                let encoded = first.encode();
                assert_eq!($name::decode(&encoded), first, stringify!($name));
                assert_eq!(encoded.opcode(), opcode::$opcode);
                count += 1;
            })*
            count
        }
    };
}

pdus! {
    NopOut = NOP_OUT { flags: u8 = 1, lun: u64 = 8, itt: u32 = 16, ttt: u32 = 20, cmd_sn: u32 = 24, exp_stat_sn: u32 = 28, }
    ScsiCommand = SCSI_COMMAND {
        /// [`flag::FINAL`], READ, WRITE and the attribute.
        flags: u8 = 1,
        lun: u64 = 8, itt: u32 = 16,
        /// Bytes that the initiator expects to move.
        expected_len: u32 = 20,
        cmd_sn: u32 = 24, exp_stat_sn: u32 = 28, cdb: [u8; 16] = 32,
    }
    TaskRequest = TASK_REQUEST {
        /// [`flag::FINAL`] and one of [`crate::wire::task_function`].
        flags: u8 = 1,
        lun: u64 = 8, itt: u32 = 16,
        /// The task that is meant.
        referenced_itt: u32 = 20,
        cmd_sn: u32 = 24, exp_stat_sn: u32 = 28, referenced_cmd_sn: u32 = 32, exp_data_sn: u32 = 36,
    }
    LoginRequest = LOGIN_REQUEST {
        flags: u8 = 1, version_max: u8 = 2, version_min: u8 = 3, isid: [u8; 6] = 8, tsih: u16 = 14, itt: u32 = 16,
        cid: u16 = 20, cmd_sn: u32 = 24, exp_stat_sn: u32 = 28,
    }
    TextRequest = TEXT_REQUEST {
        flags: u8 = 1, lun: u64 = 8, itt: u32 = 16, ttt: u32 = 20, cmd_sn: u32 = 24, exp_stat_sn: u32 = 28,
    }
    DataOut = DATA_OUT {
        flags: u8 = 1, lun: u64 = 8, itt: u32 = 16, ttt: u32 = 20, exp_stat_sn: u32 = 28, data_sn: u32 = 36,
        buffer_offset: u32 = 40,
    }
    LogoutRequest = LOGOUT_REQUEST {
        /// [`flag::FINAL`] and the reason.
        flags: u8 = 1,
        itt: u32 = 16, cid: u16 = 20, cmd_sn: u32 = 24, exp_stat_sn: u32 = 28,
    }
    Snack = SNACK {
        flags: u8 = 1, lun: u64 = 8, itt: u32 = 16, ttt: u32 = 20, exp_stat_sn: u32 = 28, begin: u32 = 40, run: u32 = 44,
    }
    NopIn = NOP_IN {
        flags: u8 = 1, lun: u64 = 8, itt: u32 = 16, ttt: u32 = 20, stat_sn: u32 = 24, exp_cmd_sn: u32 = 28,
        max_cmd_sn: u32 = 32,
    }
    ScsiResponse = SCSI_RESPONSE {
        flags: u8 = 1,
        /// 0: the target completed the command; 1: it failed.
        response: u8 = 2,
        status: u8 = 3, itt: u32 = 16, stat_sn: u32 = 24, exp_cmd_sn: u32 = 28, max_cmd_sn: u32 = 32,
        /// Data-In and R2T PDUs that were sent for the command.
        exp_data_sn: u32 = 36,
        residual: u32 = 44,
    }
    TaskResponse = TASK_RESPONSE {
        flags: u8 = 1, response: u8 = 2, itt: u32 = 16, stat_sn: u32 = 24, exp_cmd_sn: u32 = 28, max_cmd_sn: u32 = 32,
    }
    LoginResponse = LOGIN_RESPONSE {
        flags: u8 = 1, version_max: u8 = 2, version_active: u8 = 3, isid: [u8; 6] = 8, tsih: u16 = 14, itt: u32 = 16,
        stat_sn: u32 = 24, exp_cmd_sn: u32 = 28, max_cmd_sn: u32 = 32,
        /// Class in the upper byte, detail in the lower.
        status: u16 = 36,
    }
    TextResponse = TEXT_RESPONSE {
        flags: u8 = 1, lun: u64 = 8, itt: u32 = 16, ttt: u32 = 20, stat_sn: u32 = 24, exp_cmd_sn: u32 = 28,
        max_cmd_sn: u32 = 32,
    }
    DataIn = DATA_IN {
        flags: u8 = 1, status: u8 = 3, lun: u64 = 8, itt: u32 = 16, ttt: u32 = 20, stat_sn: u32 = 24,
        exp_cmd_sn: u32 = 28, max_cmd_sn: u32 = 32, data_sn: u32 = 36, buffer_offset: u32 = 40, residual: u32 = 44,
    }
    LogoutResponse = LOGOUT_RESPONSE {
        flags: u8 = 1, response: u8 = 2, itt: u32 = 16, stat_sn: u32 = 24, exp_cmd_sn: u32 = 28, max_cmd_sn: u32 = 32,
        time2wait: u16 = 40, time2retain: u16 = 42,
    }
    R2t = R2T {
        flags: u8 = 1, lun: u64 = 8, itt: u32 = 16, ttt: u32 = 20, stat_sn: u32 = 24, exp_cmd_sn: u32 = 28,
        max_cmd_sn: u32 = 32, r2t_sn: u32 = 36, buffer_offset: u32 = 40,
        /// Bytes asked for.
        desired_len: u32 = 44,
    }
    AsyncMessage = ASYNC {
        flags: u8 = 1, lun: u64 = 8, itt: u32 = 16, stat_sn: u32 = 24, exp_cmd_sn: u32 = 28, max_cmd_sn: u32 = 32,
        event: u8 = 36, vendor_code: u8 = 37, parameter1: u16 = 38, parameter2: u16 = 40, parameter3: u16 = 42,
    }
    Reject = REJECT {
        flags: u8 = 1, reason: u8 = 2, itt: u32 = 16, stat_sn: u32 = 24, exp_cmd_sn: u32 = 28, max_cmd_sn: u32 = 32,
        data_sn: u32 = 36,
    }
}

impl ScsiCommand {
    pub fn attribute(&self) -> Attribute {
        Attribute::of(self.flags)
    }
    pub fn reads(&self) -> bool {
        self.flags & flag::READ != 0
    }
    pub fn writes(&self) -> bool {
        self.flags & flag::WRITE != 0
    }
}

/// What additional headers say (11.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Additional<'a> {
    /// What a CDB has beyond its first 16 bytes.
    Cdb(&'a [u8]),
    /// Bytes expected in by a bidirectional command.
    ReadLen(u32),
    Unknown(u8),
}

/// The additional headers in `ahs`; an error where one claims to be longer than what is there.
pub fn additional(ahs: &[u8]) -> impl Iterator<Item = Result<Additional<'_>, Overlong>> {
    let mut rest = ahs;
    std::iter::from_fn(move || {
        let (&[high, low, kind, ..], true) = (rest.first_chunk::<4>()?, rest.len() >= 4) else { return None };
        // The length counts what is behind the type.
        let len = usize::from(u16::from_be_bytes([high, low]));
        let Some(value) = rest[3..].get(..len) else {
            rest = &[];
            return Some(Err(Overlong));
        };
        rest = rest.get((3 + len).next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok(match (kind & 0x3f, value) {
            (1, [_reserved, cdb @ ..]) => Additional::Cdb(cdb),
            (2, &[_reserved, a, b, c, d]) => Additional::ReadLen(u32::from_be_bytes([a, b, c, d])),
            _ => Additional::Unknown(kind),
        }))
    })
}

/// An additional header ends outside the PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overlong;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pdu_survives_encoding() {
        let patterns: [fn(usize) -> u8; 3] = [|at| at as u8 + 1, |_| 0xff, |at| (at * 7) as u8];
        for pattern in patterns {
            assert_eq!(round_trips(std::array::from_fn(pattern)), 18);
        }
    }

    /// Places in the header, from the RFC's figures, independent of the table above.
    #[test]
    fn fields_stand_where_the_figures_show_them() {
        let command = ScsiCommand {
            flags: 0xa1,
            lun: 0x0001_0000_0000_0000,
            itt: 0x1112_1314,
            expected_len: 8192,
            cmd_sn: 7,
            exp_stat_sn: 9,
            cdb: [0x2a; 16],
        };
        let mut bhs = command.encode().immediate();
        bhs.set_data_len(0x01_0203);
        bhs.set_ahs_len(8);
        let mut expected = vec![0x41, 0xa1, 0, 0, 2, 1, 2, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0x11, 0x12, 0x13, 0x14];
        expected.extend([0, 0, 0x20, 0, 0, 0, 0, 7, 0, 0, 0, 9]);
        expected.extend([0x2a; 16]);
        assert_eq!(bhs.0[..], expected[..]);
        assert_eq!((bhs.data_len(), bhs.ahs_len(), bhs.opcode()), (0x01_0203, 8, opcode::SCSI_COMMAND));
        let login = LoginResponse { status: 0x0201, tsih: 0xabcd, ..LoginResponse::default() }.encode();
        assert_eq!((login.0[36], login.0[37], login.0[14], login.0[15]), (2, 1, 0xab, 0xcd));
        let r2t = R2t { buffer_offset: 0x0a0b_0c0d, desired_len: 0x0102_0304, r2t_sn: 5, ..R2t::default() }
            .encode();
        assert_eq!(r2t.0[36..], [0, 0, 0, 5, 10, 11, 12, 13, 1, 2, 3, 4]);
    }

    #[test]
    fn additional_headers_are_told_apart() {
        let bytes = [0, 5, 2, 0, 0, 0, 2, 0, 0, 17, 1, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
        let found: Vec<_> = additional(&bytes).collect();
        assert_eq!(found, [Ok(Additional::ReadLen(512)), Ok(Additional::Cdb(&[9; 16]))]);
        assert_eq!(additional(&[0, 9, 1, 0]).collect::<Vec<_>>(), [Err(Overlong)]);
        assert_eq!(additional(&[0, 1, 7, 0]).collect::<Vec<_>>(), [Ok(Additional::Unknown(7))]);
        assert_eq!(additional(&[0, 0, 3, 0, 0, 0]).count(), 1, "what is shorter than a header is none");
    }
}
