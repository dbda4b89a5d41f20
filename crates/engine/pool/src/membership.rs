//! Who belongs to the pool: its label and superblock on every disk, and disks that go out of service.

use crate::control::Control;
use crate::error::{Error, ErrorKind};
use crate::format::{ShardRoot, Super};
use crate::spec::Severity;
use forebay_base::planted::{Bug, active};
use forebay_device::{
    DiskEntry, DiskStatus, Health, Label, SuperblockSlot, most_lacking, write_label, write_superblock,
};
use forebay_runtime::Disk;
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Disks that carry each superblock: enough that no three failures lose it, few enough to write at every checkpoint.
const SUPERBLOCK_DISKS_MAX: usize = 8;

/// Of these disks those that carry the superblock.
pub(crate) fn superblock_disks(label: &Label, mut disks: Vec<usize>) -> Vec<usize> {
    // One that has just left is still there to be told so.
    disks.retain(|disk| {
        let status = label.disks[*disk].status;
        status.in_service() && status != DiskStatus::Cache
    });
    // Of one group, before those of the next: of its disks, no more than it can lose may go. A group that leaves comes last.
    disks.sort_by_key(|disk| {
        let group = label.disks[*disk].group;
        (label.groups[usize::from(group)].leaving, group)
    });
    disks.truncate(SUPERBLOCK_DISKS_MAX);
    disks
}

impl Control {
    /// Writes a superblock to its disks and makes it durable.
    pub async fn write_super(
        &self,
        generation: u64,
        shards: Vec<ShardRoot>,
        exported: bool,
    ) -> Result<(), Error> {
        let label_generation = self.label.borrow().generation;
        let pool = Super {
            incarnation: self.incarnation,
            epoch: self.epoch.get(),
            label_generation,
            exported,
            scrubs: self.scrub.schedule.get(),
            trash_keep_seconds: self.trash.keep_seconds.get(),
            speed: self.speed.get(),
            host: self.shared.host.clone(),
            shards,
        };
        let slot = SuperblockSlot { pool: self.id(), generation, payload: pool.encode() };
        let mut online = self.online();
        let holders =
            superblock_disks(&self.label.borrow(), online.iter().map(|(index, _)| *index).collect());
        online.retain(|(index, _)| holders.contains(index));
        let writes = online.iter().map(|(index, disk)| async {
            let written = write_superblock(&self.rt, disk, &slot).await;
            let flushed = if active(Bug::SkipSuperblockFlush) { Ok(()) } else { disk.flush().await };
            (*index, written.and(flushed))
        });
        let mut good = 0;
        for (index, result) in join_all(writes).await {
            match result {
                Ok(()) => good += 1,
                Err(error) => {
                    if error.kind.is_of_device() {
                        self.shared.healths[index].failed_write();
                    }
                    self.shared.healths[index].fail();
                    self.record_failure(index as u16).await;
                }
            }
        }
        if good == 0 {
            return Err(self.error(ErrorKind::Io, "no disk took the superblock"));
        }
        self.generation.set(generation);
        Ok(())
    }

    /// Disks in service, spare ones too.
    pub fn online(&self) -> Vec<(usize, Disk)> {
        let disks = self.disks.borrow();
        let healthy = |index: &usize| !self.shared.healths[*index].is_failed();
        let disk = |index: usize| disks[index].disk.clone().map(|disk| (index, disk));
        (0..disks.len()).filter(healthy).filter_map(disk).collect()
    }

    /// Records on every disk in service that `disk` is out, so that no import ever takes it for current. Completes when that
    /// is durable: until then nothing that the disk lacks may be acknowledged.
    ///
    /// A disk that its group cannot lose is not recorded: the pool suspends, so that nothing is acknowledged
    /// that the disk lacks, and an import that finds it working again finds everything.
    pub async fn record_failure(&self, disk: u16) {
        // Whoever is at the label may be waiting for this very disk.
        self.give_up(usize::from(disk)).await;
        self.begin_relabel().await;
        if active(Bug::FailureNotRecorded) {
            return self.end_relabel();
        }
        if !self.shared.recorded[usize::from(disk)].load(Ordering::Acquire) {
            self.write_labels().await;
        }
        self.end_relabel();
    }

    /// Changes what the label says, on every disk in service. An error when too few are left.
    pub async fn relabel(&self, change: impl FnOnce(&mut Label)) -> Result<(), Error> {
        self.begin_relabel().await;
        change(&mut self.label.borrow_mut());
        self.write_labels().await;
        self.end_relabel();
        if self.shared.is_suspended() {
            return Err(self.error(ErrorKind::Suspended, "writing has stopped after a disk failure"));
        }
        Ok(())
    }

    /// One at a time.
    async fn begin_relabel(&self) {
        self.turnstile.until(|| !self.labelling.replace(true)).await;
    }

    fn end_relabel(&self) {
        self.labelling.set(false);
        self.turnstile.changed();
    }

    /// Writes the label everywhere, with those disks out that failed until now or do not take it.
    async fn write_labels(&self) {
        let written = loop {
            if self.is_lost() {
                return self.suspend_lost();
            }
            let label = {
                let mut label = self.label.borrow_mut();
                label.generation += 1;
                for (disk, health) in label.disks.iter_mut().zip(&self.shared.healths) {
                    if health.is_failed() && disk.status.in_service() {
                        // Nothing is lost with one that has no slots.
                        disk.status = if disk.has_slots() { DiskStatus::Failed } else { DiskStatus::Empty };
                        disk.stale_since = self.generation.get();
                    }
                }
                label.clone()
            };
            let mut again = false;
            for (index, handle) in self.online() {
                let own = Label { disk: index as u16, ..label.clone() };
                if write_label(&self.rt, &handle, Some(&own)).await.is_err() {
                    again |= self.shared.healths[index].fail();
                }
            }
            if !again {
                break label;
            }
        };
        for (index, disk) in written.disks.iter().enumerate() {
            // One that has failed since then is not recorded; who takes a disk offline says so himself.
            let is_out = matches!(disk.status, DiskStatus::Failed | DiskStatus::Offline | DiskStatus::Empty)
                || (self.shared.healths[index].is_failed() && active(Bug::FailureCountsAsRecorded));
            let is_new = is_out && !self.shared.recorded[index].swap(true, Ordering::AcqRel);
            let lost = match disk.status {
                DiskStatus::Failed => "its contents are stale",
                _ => "nothing is lost with it",
            };
            if is_new && disk.status != DiskStatus::Offline {
                let path = self.disks.borrow()[index].path.clone();
                let message = format!("disk {index} ({path}) failed and is out of service; {lost}");
                self.event(Severity::Error, "disk.failed", &self.disk_name(index), message);
            }
        }
        self.slots.borrow_mut().update(&self.label.borrow());
        self.wake_healer();
    }

    pub fn disk_name(&self, index: usize) -> String {
        format!("{}/{index}", self.name())
    }

    fn suspend_lost(&self) {
        if self.shared.suspend() {
            self.shared.wake_all();
            let message = "writing has stopped: more disks failed than the layout can lose. Reads go on where copies are left";
            self.event(Severity::Error, "pool.suspended", self.name(), message.into());
        }
    }

    pub fn is_lost(&self) -> bool {
        self.is_lost_without(None)
    }

    /// Whether some chunk may have lost more slots than it can; or would have, without this disk.
    pub fn is_lost_without(&self, disk: Option<usize>) -> bool {
        let label = self.label.borrow();
        let crowd = |group: usize| usize::from(self.shared.crowds[group].load(Ordering::Acquire));
        let out = |group: usize| {
            let disks = label.disks.iter().zip(&self.shared.healths).enumerate();
            let is_out = move |(index, (entry, health)): &(usize, (&DiskEntry, &Arc<Health>))| {
                let out = health.is_failed() || disk == Some(*index);
                usize::from(entry.group) == group && entry.counts() && out
            };
            disks.filter(is_out).map(|(_, (entry, _))| entry.enclosure)
        };
        let mut groups = label.groups.iter().enumerate();
        groups.any(|(nth, group)| most_lacking(out(nth), crowd(nth)) > usize::from(group.redundancy))
    }
}
