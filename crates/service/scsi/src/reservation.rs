//! Persistent reservations: who is registered, who holds what, and which commands conflict (SPC-4 5.12).
//!
//! The state is a value. A PERSISTENT RESERVE OUT makes the next state from it ([`crate::reserve_out`]), which
//! replaces it when it has been stored, if it must survive a restart ([`crate::reserve_store`]); so a command that
//! fails on the way has changed nothing. Commands are judged by [`conflicts`], a pure function of the reservation's
//! type, of what the nexus is to it, and of what the command wants.

use crate::command::Command;
use crate::nexus::Nexus;

/// Persistent reservation types; the discriminants are those of the standard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrants = 5,
    ExclusiveAccessRegistrants = 6,
    WriteExclusiveAll = 7,
    ExclusiveAccessAll = 8,
}

impl Kind {
    pub fn decode(value: u8) -> Option<Kind> {
        use Kind::*;
        [
            WriteExclusive,
            ExclusiveAccess,
            WriteExclusiveRegistrants,
            ExclusiveAccessRegistrants,
            WriteExclusiveAll,
            ExclusiveAccessAll,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == value)
    }
    /// Every registered nexus is a holder.
    pub fn is_held_by_all(self) -> bool {
        matches!(self, Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll)
    }
    /// Registered nexuses may do what holders may.
    pub fn admits_registrants(self) -> bool {
        !matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }
    /// Others may read.
    fn admits_reading(self) -> bool {
        matches!(self, Kind::WriteExclusive | Kind::WriteExclusiveRegistrants | Kind::WriteExclusiveAll)
    }
}

/// What a command does, as far as reservations care.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Allowed always: it tells of the unit, or judges reservations itself.
    Any,
    /// Allowed under persistent reservations, not beside another's RESERVE.
    Harmless,
    /// Reads the medium or its parameters.
    Reads,
    /// Writes the medium or changes the unit.
    Writes,
}

impl Access {
    /// SPC-4 table 68 and SBC-3 table 13.
    pub fn of(command: &Command) -> Access {
        use Command::*;
        match command {
            Inquiry { .. }
            | ReportLuns { .. }
            | RequestSense { .. }
            | Reserve
            | Release
            | PersistentReserveIn { .. }
            | PersistentReserveOut { .. } => Access::Any,
            TestUnitReady
            | ReadCapacity10
            | ReadCapacity16 { .. }
            | ReportTargetPortGroups { .. }
            | StartStop { start: Some(true), .. }
            | PreventAllow { prevent: false } => Access::Harmless,
            Read { .. }
            | Verify { .. }
            | Prefetch { .. }
            | GetLbaStatus { .. }
            | ReadDefectData { .. }
            | ModeSense { .. }
            | ReportSupportedOpcodes { .. }
            | ReportTaskManagement { .. }
            | ReceiveCopyResults { .. } => Access::Reads,
            Write { .. }
            | WriteAtomic { .. }
            | WriteAndVerify { .. }
            | SynchronizeCache { .. }
            | Unmap { .. }
            | WriteSame { .. }
            | OrWrite { .. }
            | CompareAndWrite { .. }
            | ModeSelect { .. }
            | StartStop { .. }
            | PreventAllow { .. }
            | ExtendedCopy { .. } => Access::Writes,
        }
    }
}

/// What a nexus is to the reservations. Kept with each attached nexus, so that no command looks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Role {
    pub registered: bool,
    pub holder: bool,
}

/// Whether a command conflicts with a persistent reservation.
pub(crate) fn conflicts(kind: Kind, role: Role, access: Access) -> bool {
    if role.holder || role.registered && kind.admits_registrants() {
        return false;
    }
    match access {
        Access::Any | Access::Harmless => false,
        Access::Reads => !kind.admits_reading(),
        Access::Writes => true,
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Registration {
    pub nexus: Nexus,
    pub key: u64,
    /// Made for all target ports at once.
    pub all_ports: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reservation {
    pub kind: Kind,
    /// Who made it. Where all registered nexuses hold it, any of them is as good.
    pub holder: Nexus,
}

/// The state of a unit's persistent reservations.
///
/// Invariants: no nexus is registered twice; no key is 0; the holder of a reservation is registered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reservations {
    /// PRGENERATION: counts changes of registrations since the unit came up.
    pub generation: u32,
    /// Survives a restart (APTPL of the last registration).
    pub persists: bool,
    pub registrations: Vec<Registration>,
    pub reservation: Option<Reservation>,
}

impl Reservations {
    pub fn find(&self, nexus: &Nexus) -> Option<&Registration> {
        self.registrations.iter().find(|registration| registration.nexus == *nexus)
    }
    pub fn is_holder(&self, nexus: &Nexus) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| {
            reservation.holder == *nexus || reservation.kind.is_held_by_all() && self.find(nexus).is_some()
        })
    }
    pub fn role(&self, nexus: &Nexus) -> Role {
        Role { registered: self.find(nexus).is_some(), holder: self.is_holder(nexus) }
    }
    pub fn kind(&self) -> Option<Kind> {
        self.reservation.as_ref().map(|reservation| reservation.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of SPC-4 5.12.1 for medium access, written out: what a nexus that is nothing, registered or holder may do.
    #[test]
    fn conflict_matrix() {
        use Kind::*;
        // For each type: (a stranger reads, a stranger writes, a registrant reads, a registrant writes) conflicts.
        let table = [
            (WriteExclusive, [false, true, false, true]),
            (ExclusiveAccess, [true, true, true, true]),
            (WriteExclusiveRegistrants, [false, true, false, false]),
            (ExclusiveAccessRegistrants, [true, true, false, false]),
            (WriteExclusiveAll, [false, true, false, false]),
            (ExclusiveAccessAll, [true, true, false, false]),
        ];
        for (kind, row) in table {
            let (stranger, registrant) = (Role::default(), Role { registered: true, holder: false });
            let cells = [
                (stranger, Access::Reads),
                (stranger, Access::Writes),
                (registrant, Access::Reads),
                (registrant, Access::Writes),
            ];
            for ((role, access), expected) in cells.into_iter().zip(row) {
                assert_eq!(conflicts(kind, role, access), expected, "{kind:?} {role:?} {access:?}");
            }
            let holder = Role { registered: true, holder: true };
            for access in [Access::Any, Access::Harmless, Access::Reads, Access::Writes] {
                assert!(!conflicts(kind, holder, access));
            }
            for access in [Access::Any, Access::Harmless] {
                assert!(!conflicts(kind, stranger, access));
            }
            assert_eq!(Kind::decode(kind as u8), Some(kind));
        }
        assert_eq!([0, 2, 4, 9].map(Kind::decode), [None; 4]);
    }
}
