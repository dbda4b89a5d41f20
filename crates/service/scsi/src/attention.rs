//! Unit attentions that wait for a nexus: a set with an order, not a queue.
//!
//! A condition that is established twice before it is reported is reported once (SAM-5 5.14), so one bit for each
//! condition is all that is ever needed, and nothing grows however often things happen. They are reported one
//! command at a time, resets first, which make the others moot.

use crate::sense::{Sense, SenseKey, asc};

/// In the order in which they are reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attention {
    /// The first thing that every nexus is told; it covers the loss of the one before.
    PowerOn,
    /// A reset of the logical unit or the target.
    Reset,
    /// Another nexus had this nexus's commands aborted.
    CommandsCleared,
    ReservationsPreempted,
    ReservationsReleased,
    RegistrationsPreempted,
    CapacityChanged,
    ModeParametersChanged,
    InquiryDataChanged,
    ReportedLunsChanged,
    /// The pool's space went over its soft threshold.
    ThinThreshold,
}

const ALL: [(Attention, u16); 11] = [
    (Attention::PowerOn, asc::POWER_ON_OR_RESET),
    (Attention::Reset, asc::BUS_DEVICE_RESET_FUNCTION),
    (Attention::CommandsCleared, asc::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR),
    (Attention::ReservationsPreempted, asc::RESERVATIONS_PREEMPTED),
    (Attention::ReservationsReleased, asc::RESERVATIONS_RELEASED),
    (Attention::RegistrationsPreempted, asc::REGISTRATIONS_PREEMPTED),
    (Attention::CapacityChanged, asc::CAPACITY_DATA_CHANGED),
    (Attention::ModeParametersChanged, asc::MODE_PARAMETERS_CHANGED),
    (Attention::InquiryDataChanged, asc::INQUIRY_DATA_CHANGED),
    (Attention::ReportedLunsChanged, asc::REPORTED_LUNS_DATA_CHANGED),
    (Attention::ThinThreshold, asc::THIN_SOFT_THRESHOLD_REACHED),
];

/// The conditions that wait for one nexus.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Attentions(u16);

impl Attentions {
    pub fn raise(&mut self, attention: Attention) {
        self.0 |= 1 << attention as u16;
    }
    pub fn clear(&mut self, attention: Attention) {
        self.0 &= !(1 << attention as u16);
    }
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// The next one to report, which is then no longer pending.
    pub fn take(&mut self) -> Option<Sense> {
        let (attention, code) = *ALL.get(self.0.trailing_zeros() as usize)?;
        self.clear(attention);
        Some(Sense::new(SenseKey::UnitAttention, code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_reported_once_in_order() {
        for (index, (attention, _)) in ALL.iter().enumerate() {
            assert_eq!(*attention as usize, index);
        }
        let mut set = Attentions::default();
        assert_eq!(set.take(), None);
        for attention in [Attention::CapacityChanged, Attention::PowerOn, Attention::CapacityChanged] {
            set.raise(attention);
        }
        let mut code = || set.take().map(|sense| (sense.key, sense.code));
        assert_eq!(code(), Some((SenseKey::UnitAttention, asc::POWER_ON_OR_RESET)));
        assert_eq!(code(), Some((SenseKey::UnitAttention, asc::CAPACITY_DATA_CHANGED)));
        assert_eq!(code(), None);
        assert!(set.is_empty());
    }
}
