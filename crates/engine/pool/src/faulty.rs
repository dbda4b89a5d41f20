//! Disks that err again and again: a person is told, and what cannot be trusted any more is taken out of service.
//!
//! One bad sector is nothing: what belongs there is computed and written anew. Many of late, on one disk and not on its peers, announce more.
//! Once a second the watch ([`crate::slow`]) looks at what each disk's [`forebay_device::Health`] holds against it of late. From
//! [`TOLD`] places on there is an event, and no other until it has calmed down to half of that. From [`EVICTED`] places on that the
//! disk could not *read*, it is taken out of service as one that hangs is: if its group can lose it, while no data moves, and only if its peers
//! read and answer. Otherwise the event says why it stays.
//!
//! Wrong data never takes a disk out. It may be somebody else's doing (an administrator's `dd`, bad memory, a cable), a scrub puts it right,
//! and then the disk is as good as before; taking it out would rebuild from peers that may hold no better.

use crate::control::Control;
use crate::spec::Severity;
use forebay_base::planted::{Bug, active};
use forebay_device::{DiskStatus, ErrorCounts};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// More than a scratch or a power loss in the middle of a write leaves.
const TOLD: u64 = 10;
/// Most disks that ever have a bad sector have fewer than 50 in years (Bairavasundaram et al., An Analysis of Latent Sector Errors
/// in Disk Drives, SIGMETRICS 2007).
const EVICTED: u64 = 100;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Grade {
    #[default]
    Usual,
    Noted,
    Unfit,
}

/// What was told of each disk.
#[derive(Default)]
pub(crate) struct FaultyDisks(RefCell<BTreeMap<usize, Grade>>);

impl FaultyDisks {
    pub fn forget(&self, index: usize) {
        self.0.borrow_mut().remove(&index);
    }

    /// Keeps how bad it is now. Whether it is worse than what was told.
    fn is_worse(&self, index: usize, grade: Grade) -> bool {
        let mut told = self.0.borrow_mut();
        let before = if grade == Grade::Usual { told.remove(&index) } else { told.insert(index, grade) };
        grade > before.unwrap_or_default() || (grade > Grade::Usual && active(Bug::ErrorsToldAgain))
    }

    fn told(&self, index: usize) -> Grade {
        self.0.borrow().get(&index).copied().unwrap_or_default()
    }
}

impl Control {
    pub async fn look_at_errors(self: &Rc<Self>) {
        let count = self.disks.borrow().len();
        for index in 0..count {
            if !self.serves(index) || self.shared.is_suspended() {
                self.faulty.forget(index);
                continue;
            }
            let errors = self.recent_errors(index);
            let grade = grade(&errors, self.faulty.told(index));
            let mut remedy = match self.label.borrow().disks[index].status {
                DiskStatus::Cache => format!(
                    "It holds only copies. If errors continue, remove it with 'forebay disk remove {}' and add another disk",
                    self.disk_name(index)
                ),
                _ => format!(
                    "Scrub the pool with 'forebay pool scrub {}'. If errors continue, check cable and controller, then replace the disk",
                    self.name()
                ),
            };
            if grade == Grade::Unfit {
                match self.keeps(index).await {
                    Some(why) => remedy = why.into(),
                    None => {
                        self.faulty.forget(index);
                        self.evict(index, words(&errors)).await;
                        continue;
                    }
                }
            }
            if self.faulty.is_worse(index, grade) {
                let path = self.disks.borrow()[index].path.clone();
                let message = format!(
                    "disk {index} ({path}) {}. {remedy}. 'forebay disk clear {}' resets its counters",
                    words(&errors),
                    self.disk_name(index)
                );
                self.event(Severity::Warning, "disk.errors", &self.disk_name(index), message);
            }
        }
    }

    fn recent_errors(&self, index: usize) -> ErrorCounts {
        self.shared.healths[index].errors(self.rt.now())
    }

    /// Why a disk that is unfit stays in service, and what to do.
    async fn keeps(&self, index: usize) -> Option<&'static str> {
        let is_bad = |peer: usize| self.recent_errors(peer).read_recent >= TOLD;
        if !self.can_lose(index) {
            Some(
                "Its group cannot lose it, so it stays in service. Replace it with 'forebay disk replace DISK NEW'",
            )
        } else if self.is_moving() && !active(Bug::EvictsBeyondTolerance) {
            Some("It stays in service while data moves between disks, and is taken out of service after that")
        } else if self.peers(index).into_iter().any(is_bad) {
            Some(
                "Other disks of its group have read errors too, so it stays in service. Check the controller and cables that they share. \
                 Otherwise replace one disk after the other with 'forebay disk replace DISK NEW'",
            )
        } else if !self.others_answer(index).await {
            Some(
                "Other disks of its group do not answer, so it stays in service. Check the controller and its cables",
            )
        } else {
            None
        }
    }
}

/// How bad a disk is that was `before`: it has to get better by half to count as better.
fn grade(errors: &ErrorCounts, before: Grade) -> Grade {
    let least = |limit: u64, of: Grade| if before >= of { limit / 2 } else { limit };
    if errors.read_recent >= least(EVICTED, Grade::Unfit) {
        Grade::Unfit
    } else if errors.read_recent + errors.checksum_recent >= least(TOLD, Grade::Noted) {
        Grade::Noted
    } else {
        Grade::Usual
    }
}

fn words(errors: &ErrorCounts) -> String {
    let of = |count: u64, what: &str| match count {
        0 => None,
        1 => Some(format!("has 1 recent {what}")),
        count => Some(format!("has {count} recent {what}s")),
    };
    let said = [of(errors.read_recent, "read error"), of(errors.checksum_recent, "checksum error")];
    said.into_iter().flatten().collect::<Vec<_>>().join(", and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(read_recent: u64, checksum_recent: u64) -> ErrorCounts {
        ErrorCounts { read_recent, checksum_recent, ..ErrorCounts::default() }
    }

    #[test]
    fn many_places_are_told_and_only_unreadable_ones_make_a_disk_unfit() {
        for (read, checksum, expected) in [
            (1, 0, Grade::Usual),
            (5, 4, Grade::Usual),
            (5, 5, Grade::Noted),
            (0, 10, Grade::Noted),
            (99, 256, Grade::Noted),
            (100, 0, Grade::Unfit),
        ] {
            assert_eq!(grade(&errors(read, checksum), Grade::Usual), expected, "{read} and {checksum}");
        }
    }

    #[test]
    fn it_is_told_once_until_it_has_calmed_down() {
        let faulty = FaultyDisks::default();
        let told = |recent: &[u64]| -> Vec<bool> {
            let tell = |read: &u64| faulty.is_worse(0, grade(&errors(*read, 0), faulty.told(0)));
            recent.iter().map(tell).collect()
        };
        assert_eq!(told(&[9, 10, 11, 9, 10, 5, 10]), [false, true, false, false, false, false, false]);
        assert_eq!(told(&[4, 10]), [false, true]);
        assert_eq!(told(&[100, 99, 100, 50, 100]), [true, false, false, false, false]);
        assert_eq!(told(&[49, 99, 100]), [false, false, true]);
        faulty.forget(0);
        assert_eq!(told(&[10]), [true]);
    }

    #[test]
    fn what_is_told_says_how_many() {
        assert_eq!(words(&errors(12, 0)), "has 12 recent read errors");
        assert_eq!(words(&errors(1, 9)), "has 1 recent read error, and has 9 recent checksum errors");
    }
}
