//! Who belongs to the pool: its label and superblock on every disk, and disks that go out of service.

use crate::control::Control;
use crate::error::{Error, ErrorKind};
use crate::format::{ShardRoot, Super};
use crate::spec::Severity;
use forebay_base::planted::{Bug, active};
use forebay_device::{
    DiskEntry, DiskStatus, Health, Label, Owner, SuperblockSlot, most_lacking, read_labels, write_label,
    write_superblock,
};
use forebay_runtime::{Disk, DiskError};
use futures_util::future::{join_all, select};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

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

/// What a disk that is taken out of service has for taking note of it.
const TOLD_MAX: Duration = Duration::from_secs(5);

impl Control {
    /// Writes a superblock to its disks and makes it durable.
    pub async fn write_super(
        &self,
        generation: u64,
        shards: Vec<ShardRoot>,
        exported: bool,
    ) -> Result<(), Error> {
        let (label_generation, disks) = {
            let label = self.label.borrow();
            (label.generation, label.disks.len())
        };
        let errors = self.shared.healths[..disks].iter().map(|health| health.errors(self.rt.now())).collect();
        let begun = self.rt.now();
        let pool = Super {
            incarnation: self.incarnation,
            epoch: self.epoch.get(),
            label_generation,
            exported,
            scrubs: self.scrub.schedule.get(),
            trash_keep_seconds: self.trash.keep_seconds.get(),
            speed: self.speed.get(),
            scrub: self.scrub_status().await?,
            errors,
            host: self.shared.host.clone(),
            clock: self.shared.clock.now(&self.rt),
            shards,
        };
        let (owner, payload) = (Owner::default(), pool.encode());
        let slot = SuperblockSlot { pool: self.id(), owner, generation, payload };
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
                    self.write_ended(index, Err(error));
                    self.record_failure(index as u16).await;
                }
            }
        }
        if good == 0 {
            return Err(self.error(ErrorKind::Io, "the superblock could not be written to any disk"));
        }
        self.generation.set(generation);
        self.clock_stored.set(begun);
        Ok(())
    }

    /// Disks in service, spare ones too.
    pub fn online(&self) -> Vec<(usize, Disk)> {
        let disks = self.disks.borrow();
        let healthy = |index: &usize| !self.shared.healths[*index].is_failed();
        let disk = |index: usize| disks[index].disk.clone().map(|disk| (index, disk));
        (0..disks.len()).filter(healthy).filter_map(disk).collect()
    }

    /// A disk has answered a write or a flush with an error. One that its group cannot lose is read from on: the pool suspends.
    pub async fn disk_failed(&self, disk: u16) {
        match self.is_lost() {
            true => self.suspend_lost(),
            false => self.record_failure(disk).await,
        }
    }

    /// Tells a disk that is taken out of service, and answers, that it is: found alone, it is not taken for the pool.
    pub async fn tell_offline(&self, index: usize) {
        self.begin_relabel().await;
        let label = {
            let mut label = self.label.borrow_mut();
            label.generation += 1;
            Label { disk: index as u16, ..label.clone() }
        };
        let disk = self.disks.borrow()[index].disk.clone();
        if let Some(disk) = disk {
            // What it does not take is recorded on the others all the same.
            let writing = pin!(write_label(&self.rt, &disk, Some(&label)));
            let _ = select(writing, self.rt.sleep(TOLD_MAX)).await;
        }
        self.end_relabel();
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
        if !self.shared.recorded[usize::from(disk)].load(Ordering::Acquire) && !self.write_labels().await {
            self.suspend_lost();
        }
        self.end_relabel();
    }

    /// Records what an import has found: disks that are missing, and those that failed while it was under way. A disk that does not
    /// take its label is one more of these.
    pub async fn record_import(&self) -> Result<(), Error> {
        self.begin_relabel().await;
        let before = self.online().len();
        let written = self.write_labels().await;
        self.end_relabel();
        if written && !(self.online().len() < before && active(Bug::ImportNeedsEveryLabel)) {
            return Ok(());
        }
        let disks = self.disks.borrow();
        let failed = (0..disks.len()).filter(|index| self.shared.healths[*index].is_failed());
        let named = |index: usize| format!("{index} {}", disks[index].path).trim_end().to_string();
        let failed: Vec<String> = failed.map(named).collect();
        let message = format!(
            "more of its disks are missing or failed than the layout can lose: {}",
            failed.join(", ")
        );
        Err(self
            .error(ErrorKind::Io, message)
            .remedy("Check these disks, or give the paths of the missing ones"))
    }

    /// Whether a disk has failed, and the labels do not say so.
    pub fn has_unrecorded(&self) -> bool {
        let label = self.label.borrow();
        let is_new = |index: &usize| {
            label.disks[*index].status.in_service()
                && self.shared.healths[*index].is_failed()
                && !self.shared.recorded[*index].load(Ordering::Acquire)
        };
        (0..label.disks.len()).any(|index| is_new(&index)) && !active(Bug::ImportForgetsFailures)
    }

    /// Changes what the label says, on every disk in service. An error when too few are left.
    pub async fn relabel(&self, change: impl FnOnce(&mut Label)) -> Result<(), Error> {
        self.begin_relabel().await;
        change(&mut self.label.borrow_mut());
        if !self.write_labels().await {
            self.suspend_lost();
        }
        self.end_relabel();
        if self.shared.is_suspended() {
            return Err(self.suspended());
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

    /// Writes the label everywhere, with those disks out that failed until now or do not take it. False, with nothing recorded, when
    /// too few are left.
    async fn write_labels(&self) -> bool {
        let written = loop {
            if self.is_lost() {
                return false;
            }
            let label = {
                let mut label = self.label.borrow_mut();
                label.generation += 1;
                for (disk, health) in label.disks.iter_mut().zip(&self.shared.healths) {
                    if health.is_failed() && disk.status.in_service() {
                        // Nothing is lost with one that has no slots.
                        disk.status = if disk.has_slots() { DiskStatus::Failed } else { DiskStatus::Empty };
                        // Of one that has shrunk nothing is to be trusted when it comes back.
                        disk.stale_since = if health.is_shrunk() { 0 } else { self.generation.get() };
                    }
                }
                label.clone()
            };
            // Side by side: writes wait meanwhile, and each disk takes several flushes.
            let online = self.online();
            let writes = online.iter().map(async |(index, handle)| {
                let own = Label { disk: *index as u16, ..label.clone() };
                (*index, write_label(&self.rt, handle, Some(&own)).await)
            });
            let mut written = Vec::new();
            match active(Bug::LabelsOneByOne) {
                false => written = join_all(writes).await,
                true => {
                    for write in writes {
                        written.push(write.await);
                    }
                }
            }
            let mut again = false;
            for (index, result) in written {
                again |= self.write_ended(index, result);
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
                DiskStatus::Failed if self.shared.healths[index].is_shrunk() => {
                    "restore its size and bring it back with 'forebay disk online DISK', or replace it"
                }
                DiskStatus::Failed => "its contents are stale",
                _ => "no data is lost with it",
            };
            if is_new && disk.status != DiskStatus::Offline {
                let path = self.disks.borrow()[index].path.clone();
                let why = self.shared.healths[index].cause().map(|error| format!(": {error}"));
                let why = why.unwrap_or_default();
                let message = format!("disk {index} ({path}) failed and is out of service{why}; {lost}");
                self.event(Severity::Error, "disk.failed", &self.disk_name(index), message);
            }
        }
        self.slots.borrow_mut().update(&self.label.borrow());
        self.wake_healer();
        true
    }

    /// Takes a disk out that did not take its label or superblock. True when that is new.
    fn write_ended(&self, index: usize, result: Result<(), DiskError>) -> bool {
        let Err(error) = result else { return false };
        self.shared.healths[index].failed_by(error)
    }

    /// Writes the label of every disk again of which a copy is bad.
    pub async fn scrub_labels(&self) {
        self.begin_relabel().await;
        let (label, online) = (self.label.borrow().clone(), self.online());
        let repairs = online.iter().map(async |(index, disk)| {
            let copies = read_labels(&self.rt, disk).await;
            if copies.iter().all(Result::is_ok) {
                return None;
            }
            let own = Label { disk: *index as u16, ..label.clone() };
            Some((*index, write_label(&self.rt, disk, Some(&own)).await))
        });
        let mut again = false;
        for (index, result) in join_all(repairs).await.into_iter().flatten() {
            if result.is_ok() {
                let message = format!("a bad copy of the label of disk {index} was repaired");
                self.event(Severity::Warning, "label.repaired", &self.disk_name(index), message);
            }
            again |= self.write_ended(index, result);
        }
        if again && !self.write_labels().await {
            self.suspend_lost();
        }
        self.end_relabel();
    }

    pub fn disk_name(&self, index: usize) -> String {
        format!("{}/{index}", self.name())
    }

    fn suspend_lost(&self) {
        if self.shared.suspend() {
            self.shared.wake_all();
            let message = "writing has stopped: more disks failed than the layout can lose. Data on the remaining disks can still be read. Restore the disks \
                 (make room where a file system under them is full), then export and import the pool";
            self.event(Severity::Error, "pool.suspended", self.name(), message.into());
        }
    }

    pub fn is_lost(&self) -> bool {
        self.is_lost_without(None)
    }

    /// Whether some chunk may have lost more slots than it can; or would have, without this disk.
    pub fn is_lost_without(&self, disk: Option<usize>) -> bool {
        let label = &*self.label.borrow();
        let crowd = |group: usize| usize::from(self.shared.crowds[group].load(Ordering::Acquire));
        let out = |group: usize| {
            let disks = label.disks.iter().zip(&self.shared.healths).enumerate();
            let is_out = move |(index, (entry, health)): &(usize, (&DiskEntry, &Arc<Health>))| {
                let out = health.is_failed() || disk == Some(*index);
                usize::from(entry.group) == group && entry.counts() && out
            };
            disks.filter(is_out).map(move |(index, (entry, _))| (label.line(index as u16), entry.enclosure))
        };
        let mut groups = label.groups.iter().enumerate();
        groups.any(|(nth, group)| most_lacking(out(nth), crowd(nth)) > usize::from(group.redundancy))
    }
}
