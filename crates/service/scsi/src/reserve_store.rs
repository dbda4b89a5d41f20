//! Reservations as bytes, for those that survive a restart (APTPL).
//!
//! ```text
//! 0    magic "FBPR"              8    bytes of the whole       16  reservation: type (0: none)
//! 4    version, 1                12   number of registrations  18  reservation: index of the holder
//! 20   checksum of everything else, XXH3-128 (16 bytes)
//! 36   registrations: key (8), portal group (2), ISID (6), all ports (1), bytes of the name (1), name
//! ```
//!
//! Little-endian. What is stored decides who may write after a crash: anything that is not exactly as it was
//! written is refused, and the unit with it, rather than taken for "no reservations".

use crate::nexus::{InitiatorPort, NAME_BYTES_MAX, Nexus};
use crate::reservation::{Kind, Registration, Reservation, Reservations};
use forebay_base::Checksum;
use forebay_base::codec::{Reader, Truncated, Writer};

/// Registrations of one unit: 64 hosts with four paths each.
pub const REGISTRATIONS_MAX: usize = 256;
/// Bytes of the stored state, at most.
pub const STATE_BYTES_MAX: usize = 64 << 10;

const MAGIC: u32 = u32::from_le_bytes(*b"FBPR");
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = 20;
const HEADER: usize = CHECKSUM_AT + 16;
const FIXED: usize = 8 + 2 + 6 + 1 + 1;
const _: () = assert!(HEADER + REGISTRATIONS_MAX * (FIXED + NAME_BYTES_MAX) <= STATE_BYTES_MAX);

/// Stored reservations that cannot be read. Serving the unit without them could let a fenced host write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateError {
    /// The bytes are not what was stored.
    Corrupt,
    /// Written by a later release.
    Version(u32),
}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StateError::Corrupt => f.write_str("the stored reservations are damaged"),
            StateError::Version(version) => {
                write!(
                    f,
                    "the stored reservations have version {version}, and this release reads version {VERSION}"
                )
            }
        }
    }
}

impl std::error::Error for StateError {}

impl From<Truncated> for StateError {
    fn from(_: Truncated) -> StateError {
        StateError::Corrupt
    }
}

/// What must be there after a restart: everything, or nothing when the last registration did not ask for it.
pub(crate) fn encode(state: &Reservations) -> Vec<u8> {
    let kept = if state.persists { &state.registrations[..] } else { &[] };
    let reservation = state.reservation.as_ref().filter(|_| state.persists);
    let len = HEADER + kept.iter().map(|r| FIXED + r.nexus.initiator.name().len()).sum::<usize>();
    let holder = reservation.map_or(0, |reservation| {
        kept.iter().position(|r| r.nexus == reservation.holder).expect("the holder is registered")
    });
    let mut bytes = vec![0; len];
    let mut writer = Writer::new(&mut bytes);
    writer.u32(MAGIC).u32(VERSION).u32(len as u32).u32(kept.len() as u32);
    writer.u16(reservation.map_or(0, |reservation| reservation.kind as u16)).u16(holder as u16);
    writer.zeros(16);
    for registration in kept {
        let Nexus { initiator, portal_group } = &registration.nexus;
        writer.u64(registration.key).u16(*portal_group).bytes(&initiator.isid());
        writer.u8(registration.all_ports.into()).u8(initiator.name().len() as u8);
        writer.bytes(initiator.name().as_bytes());
    }
    let checksum = checksum(&bytes);
    bytes[CHECKSUM_AT..HEADER].copy_from_slice(&checksum);
    bytes
}

/// Of everything but itself.
fn checksum(bytes: &[u8]) -> [u8; 16] {
    Checksum::of_with_hole(bytes, CHECKSUM_AT).0.to_le_bytes()
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Reservations, StateError> {
    let mut reader = Reader::new(bytes);
    if reader.u32()? != MAGIC {
        return Err(StateError::Corrupt);
    }
    let version = reader.u32()?;
    if bytes.len() < HEADER || bytes.len() > STATE_BYTES_MAX || checksum(bytes) != bytes[CHECKSUM_AT..HEADER]
    {
        return Err(StateError::Corrupt);
    }
    if version != VERSION {
        return Err(StateError::Version(version));
    }
    let (len, count) = (reader.u32()?, reader.u32()? as usize);
    let (kind, holder) = (reader.u16()?, usize::from(reader.u16()?));
    reader.bytes(16)?;
    if len as usize != bytes.len() || count > REGISTRATIONS_MAX {
        return Err(StateError::Corrupt);
    }
    let mut state = Reservations { persists: count > 0, ..Reservations::default() };
    for _ in 0..count {
        let (key, portal_group) = (reader.u64()?, reader.u16()?);
        let isid = reader.bytes(6)?.try_into().expect("six bytes");
        let (all_ports, name_len) = (reader.u8()?, usize::from(reader.u8()?));
        let name = std::str::from_utf8(reader.bytes(name_len)?).map_err(|_| StateError::Corrupt)?;
        let initiator = InitiatorPort::new(name, isid).ok_or(StateError::Corrupt)?;
        let nexus = Nexus { initiator, portal_group };
        if key == 0 || all_ports > 1 || state.find(&nexus).is_some() {
            return Err(StateError::Corrupt);
        }
        state.registrations.push(Registration { nexus, key, all_ports: all_ports == 1 });
    }
    if kind != 0 {
        let kind = u8::try_from(kind).ok().and_then(Kind::decode).ok_or(StateError::Corrupt)?;
        let holder = state.registrations.get(holder).ok_or(StateError::Corrupt)?.nexus.clone();
        state.reservation = Some(Reservation { kind, holder });
    }
    if reader.remaining() != 0 {
        return Err(StateError::Corrupt);
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nexus(number: usize, portal_group: u16) -> Nexus {
        let name = format!("iqn.2026-11.example:{number:0>203}");
        let isid = [0x80, 0, 0, 0, 0, number as u8];
        Nexus { initiator: InitiatorPort::new(&name, isid).expect("the longest name"), portal_group }
    }

    fn full() -> Reservations {
        let registration = |number| Registration {
            nexus: nexus(number, 1 + number as u16 % 4),
            key: 1 + number as u64,
            all_ports: number % 2 == 1,
        };
        let reservation = Reservation { kind: Kind::WriteExclusiveRegistrants, holder: nexus(200, 1) };
        Reservations {
            generation: 0,
            persists: true,
            registrations: (0..REGISTRATIONS_MAX).map(registration).collect(),
            reservation: Some(reservation),
        }
    }

    #[test]
    fn the_largest_state_comes_back() {
        let bytes = encode(&full());
        assert!(bytes.len() <= STATE_BYTES_MAX);
        assert_eq!(decode(&bytes), Ok(full()));
        let forgotten = Reservations { persists: false, ..full() };
        assert_eq!(decode(&encode(&forgotten)), Ok(Reservations::default()));
    }

    #[test]
    fn what_is_not_as_written_is_refused() {
        let mut state = full();
        state.registrations.truncate(2);
        state.reservation = None;
        let bytes = encode(&state);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                assert_eq!(decode(&bytes), Err(StateError::Corrupt), "byte {at} bit {bit}");
            }
            assert_eq!(decode(&bytes[..at]), Err(StateError::Corrupt), "cut at {at}");
        }
        let mut later = bytes;
        later[4] = 2;
        let sum = checksum(&later);
        later[CHECKSUM_AT..HEADER].copy_from_slice(&sum);
        assert_eq!(decode(&later), Err(StateError::Version(2)));
    }
}
