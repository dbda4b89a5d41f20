//! Who speaks to whom: the initiator port and the target port whose relationship SAM-5 calls an I_T nexus.
//!
//! For iSCSI (RFC 7143, 3.4.3) an initiator port is a name and an ISID, and a target port is a portal group. The
//! RELATIVE TARGET PORT IDENTIFIER that SCSI wants is the portal group's tag. Persistent reservations name
//! initiator ports by TransportIDs (SPC-4 7.6.4.6), which are read and written here.

use std::fmt;

/// Bytes of an iSCSI name, at most (RFC 7143, 4.2.7.1).
pub const NAME_BYTES_MAX: usize = 223;
/// What the TransportID of a port has after the name: `,i,0x` and twelve hexadecimal digits.
const SUFFIX_BYTES: usize = 5 + 12;
/// ADDITIONAL LENGTH of a TransportID is at least this.
const ADDITIONAL_MIN: usize = 20;

/// An iSCSI initiator port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InitiatorPort {
    name: Box<str>,
    isid: [u8; 6],
}

impl InitiatorPort {
    /// Names are compared in lower case. `None`: the name is empty, too long, or has characters that none may have.
    pub fn new(name: &str, isid: [u8; 6]) -> Option<InitiatorPort> {
        let proper = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && !name.chars().any(|c| c.is_control() || c.is_whitespace() || c == ',');
        // Lower case of some letters is longer: only ASCII is changed here, the rest comes normalised or not at all.
        proper.then(|| InitiatorPort { name: name.to_ascii_lowercase().into(), isid })
    }
    pub fn name(&self) -> &str {
        &self.name
    }
    pub fn isid(&self) -> [u8; 6] {
        self.isid
    }
    /// The TransportID, a multiple of four bytes.
    pub fn transport_id(&self) -> Vec<u8> {
        let [a, b, c, d, e, f] = self.isid;
        let text = format!("{},i,0x{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{f:02x}", self.name);
        // With at least one zero at the end.
        let additional = (text.len() + 1).next_multiple_of(4).max(ADDITIONAL_MIN);
        let mut bytes = vec![0x45, 0];
        bytes.extend((additional as u16).to_be_bytes());
        bytes.extend(text.as_bytes());
        bytes.resize(4 + additional, 0);
        bytes
    }
}

impl fmt::Debug for InitiatorPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},i,", self.name)?;
        self.isid.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Whom a TransportID in a parameter list names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TransportId {
    Port(InitiatorPort),
    /// Format 00b, without an ISID: all ports of this initiator.
    Device(Box<str>),
}

/// A TransportID that is no iSCSI one, or lies about its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportIdError;

impl TransportId {
    /// Reads one from the front; also how many bytes it took.
    pub fn decode(bytes: &[u8]) -> Result<(TransportId, usize), TransportIdError> {
        let (&[kind, _, high, low], rest) = bytes.split_first_chunk().ok_or(TransportIdError)?;
        let additional = usize::from(u16::from_be_bytes([high, low]));
        if !additional.is_multiple_of(4) || additional < ADDITIONAL_MIN || additional > rest.len() {
            return Err(TransportIdError);
        }
        let text = &rest[..additional];
        let end = text.iter().position(|&byte| byte == 0).ok_or(TransportIdError)?;
        let text = std::str::from_utf8(&text[..end]).map_err(|_| TransportIdError)?;
        let id = match kind {
            0x05 => InitiatorPort::new(text, [0; 6]).map(|port| TransportId::Device(port.name)),
            0x45 => port(text).map(TransportId::Port),
            _ => None,
        };
        Ok((id.ok_or(TransportIdError)?, 4 + additional))
    }
}

/// `NAME,i,0xISID`.
fn port(text: &str) -> Option<InitiatorPort> {
    let (name, isid) = text.split_once(",i,0x").or_else(|| text.split_once(",i,0X"))?;
    if isid.is_empty() || isid.len() > SUFFIX_BYTES - 5 || !isid.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return None;
    }
    let [_, _, isid @ ..] = u64::from_str_radix(isid, 16).ok()?.to_be_bytes();
    InitiatorPort::new(name, isid)
}

/// One initiator port through one target port.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Nexus {
    pub initiator: InitiatorPort,
    /// The target portal group's tag, which is also the relative target port identifier: not 0.
    pub portal_group: u16,
}

/// A nexus that is attached to a unit, as the unit knows it. Of no use with another unit or after detaching.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NexusId {
    pub(crate) slot: u16,
    pub(crate) generation: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_ids() {
        let port =
            InitiatorPort::new("iqn.2026-11.Example:a", [0x80, 1, 2, 3, 4, 0xab]).expect("a proper name");
        let bytes = port.transport_id();
        assert_eq!(bytes[..4], [0x45, 0, 0, 40]);
        assert_eq!(&bytes[4..], b"iqn.2026-11.example:a,i,0x8001020304ab\0\0");
        assert_eq!(TransportId::decode(&bytes), Ok((TransportId::Port(port), 44)));
        let mut device = vec![0x05, 0, 0, 20];
        device.extend(b"iqn.2026-11.x:bcd\0\0\0rest");
        assert_eq!(TransportId::decode(&device), Ok((TransportId::Device("iqn.2026-11.x:bcd".into()), 24)));
        let broken = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            TransportId::decode(&bytes)
        };
        assert_eq!(broken(0, 0x46), Err(TransportIdError), "another protocol");
        assert_eq!(broken(3, 44), Err(TransportIdError), "longer than the list");
        assert_eq!(broken(3, 42), Err(TransportIdError), "not a multiple of four");
        assert_eq!(broken(3, 36), Err(TransportIdError), "no zero at the end");
        assert_eq!(broken(32, b'x'), Err(TransportIdError), "an ISID that is no number");
        assert_eq!(TransportId::decode(&bytes[..3]), Err(TransportIdError));
    }

    #[test]
    fn the_longest_name_has_a_transport_id() {
        let port =
            InitiatorPort::new(&"n".repeat(NAME_BYTES_MAX), [1; 6]).expect("a name of the largest length");
        let bytes = port.transport_id();
        assert_eq!(TransportId::decode(&bytes), Ok((TransportId::Port(port), bytes.len())));
        assert_eq!(InitiatorPort::new(&"n".repeat(NAME_BYTES_MAX + 1), [1; 6]), None);
        assert_eq!(InitiatorPort::new("a,b", [1; 6]), None);
    }
}
