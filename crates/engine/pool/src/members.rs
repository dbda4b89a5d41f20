//! Disks come, go, and come back: what an administrator does with the disks of a running pool.
//!
//! A disk that joins gets a number of its own; the healer moves slots to it. So a replacement is a disk that joins and one that
//! leaves, and a disk that comes back after it was out of service joins under a new number, with the slots it had: of those, only
//! chunks that changed since are copied ([`forebay_device::DiskEntry::heir_of`]). What is written first is the label of the
//! disk that joins: until the others know it, it is nobody's.

use crate::assembly::has_parted;
use crate::candidate::{check_new, open_disk};
use crate::control::{Control, ControlDisk};
use crate::create::{check_cache_disk, describe, slots_of};
use crate::error::{Error, ErrorKind};
use crate::import::{Probe, lanes, layout_of, open_error, place_of, probe};
use crate::sectors::sector_of;
use crate::shard::Shard;
use crate::spec::Severity;
use forebay_base::{Id, MIB};
use forebay_device::{
    DISKS_MAX, DiskEntry, DiskLayout, DiskStatus, ENCLOSURE_BYTES, Enclosure, Label, SUPERBLOCKS_BYTES,
    write_label,
};
use forebay_raid::{DiskSet, Place};
use forebay_runtime::{Disk, OpenMode};
use std::rc::Rc;
use std::time::Duration;

/// What a disk joins for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// It serves at once.
    #[default]
    Data,
    /// It waits for another disk to fail.
    Spare,
    /// It holds copies of what is read at random, and nothing else.
    Cache,
}

/// What a disk that joins becomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskAdd {
    pub purpose: Purpose,
    /// Number of the group it joins; may be left out where there is one for data only. Spare and cache disks are for all.
    pub group: Option<u16>,
    /// Name of the box it is in.
    pub enclosure: String,
    /// Its physical sector in bytes, where it does not say it right.
    pub sector: Option<u32>,
    /// Take a disk that is not empty, whatever is on it; never one that is in use.
    pub force: bool,
}

/// What takes a disk's place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskReplace {
    /// Path of the new disk; without one, a spare disk of the pool.
    pub new: Option<String>,
    /// Its physical sector in bytes, where it does not say it right.
    pub sector: Option<u32>,
    /// Take a disk that is not empty, whatever is on it; never one that is in use.
    pub force: bool,
}

impl Control {
    pub fn invalid(&self, field: &'static str, message: impl Into<String>, remedy: &str) -> Error {
        self.error(ErrorKind::Invalid(field), message).remedy(remedy)
    }

    fn refused(&self, index: usize, message: impl Into<String>, remedy: &str) -> Error {
        Error::new(ErrorKind::Unsafe, self.disk_name(index), message).remedy(remedy)
    }

    /// The index of a disk by number, UUID or path.
    fn find_disk(&self, name: &str) -> Result<usize, Error> {
        let id: Option<Id> = name.parse().ok();
        let (label, disks) = (self.label.borrow(), self.disks.borrow());
        let is_it = |index: &usize| {
            let entry = &label.disks[*index];
            entry.status != DiskStatus::Removed
                && (name.parse() == Ok(*index) || id == Some(entry.id) || disks[*index].path == name)
        };
        (0..disks.len()).find(is_it).ok_or_else(|| {
            self.error(ErrorKind::NotFound, format!("the pool has no disk '{name}'")).remedy(format!(
                "'forebay disk list --pool {}' shows its disks; name one by number, path or id",
                self.name()
            ))
        })
    }

    /// Adds disks to a data group, or such as belong to none.
    pub async fn disk_add(self: &Rc<Self>, paths: &[String], add: &DiskAdd) -> Result<(), Error> {
        for path in paths {
            let (disk, entry) = self.plan_add(path, add).await?;
            self.join(entry, path, disk, |_| {}).await?;
        }
        self.wake_healer();
        Ok(())
    }

    /// What [`Control::disk_add`] would refuse of disks at these paths. Changes nothing.
    pub async fn disk_add_check(&self, adds: &[(String, DiskAdd)]) -> Result<Vec<u64>, Error> {
        let mut disks: Vec<Disk> = Vec::new();
        for (path, add) in adds {
            let (disk, _) = self.plan_add(path, add).await?;
            check_new(path, &disk, &disks)?;
            disks.push(disk);
        }
        Ok(disks.iter().map(|disk| disk.geometry().size).collect())
    }

    async fn plan_add(&self, path: &str, add: &DiskAdd) -> Result<(Disk, DiskEntry), Error> {
        let enclosure = self.enclosure(&add.enclosure)?;
        let group = self.group_for(add)?;
        let disk = self.open_new(path, add.force).await?;
        let (status, entry) = match add.purpose {
            Purpose::Cache => {
                check_cache_disk(path, &disk, self.shard_count())?;
                let sector_physical = sector_of(path, &disk, add.sector)?;
                (DiskStatus::Cache, DiskEntry { sector_physical, ..describe(&self.rt, group, &disk) })
            }
            Purpose::Spare => (DiskStatus::Spare, self.entry_for(group, path, &disk, add.sector)?),
            Purpose::Data => (DiskStatus::Online, self.entry_for(group, path, &disk, add.sector)?),
        };
        // A spare disk gets slots when it serves.
        let slots = if status == DiskStatus::Spare { 0 } else { entry.slots };
        Ok((disk, DiskEntry { status, enclosure, slots, ..entry }))
    }

    /// The group that disks are to join.
    fn group_for(&self, add: &DiskAdd) -> Result<u16, Error> {
        let slots = self.slots.borrow();
        let groups: Vec<u16> = slots.data_groups().collect();
        match (add.group, &groups[..]) {
            (Some(group), _) if groups.contains(&group) => Ok(group),
            (Some(group), _)
                if self.label.borrow().groups.get(usize::from(group)).is_some_and(|g| g.leaving) =>
            {
                Err(self.error(ErrorKind::Conflict, format!("group {group} is being removed from the pool")))
            }
            (Some(group), _) => {
                let message = format!("the pool has no data group {group}");
                Err(self.invalid("group", message, "See its groups with 'forebay pool status'"))
            }
            (None, [first, rest @ ..]) if add.purpose != Purpose::Data || rest.is_empty() => Ok(*first),
            (None, _) => {
                let names: Vec<String> = groups.iter().map(u16::to_string).collect();
                let message = format!("the pool has several data groups: {}", names.join(", "));
                Err(self.invalid("group", message, "Choose the group that the disks join, with --group"))
            }
        }
    }

    fn enclosure(&self, name: &str) -> Result<Enclosure, Error> {
        let message = || format!("an enclosure's name has at most {ENCLOSURE_BYTES} bytes");
        Enclosure::new(name).ok_or_else(|| self.invalid("enclosure", message(), "Choose a shorter name"))
    }

    /// Opens a disk that is not one of the pool's in service.
    pub async fn open_new(&self, path: &str, force: bool) -> Result<Disk, Error> {
        // Before anything is written to the disk: it may be somebody's.
        self.writing()?;
        open_disk(&self.rt, path, force, Some(self)).await
    }

    fn entry_for(
        &self,
        group: u16,
        path: &str,
        disk: &Disk,
        sector: Option<u32>,
    ) -> Result<DiskEntry, Error> {
        let sector_physical = sector_of(path, disk, sector)?;
        let slots = slots_of(disk, &self.label.borrow().groups[usize::from(group)]);
        let slots = slots.map_err(|_| {
            let message =
                format!("the disk has {} bytes, which is too small for the group", disk.geometry().size);
            Error::new(ErrorKind::Invalid("disks"), path, message).remedy("Give a larger disk")
        })?;
        Ok(DiskEntry { slots, sector_physical, ..describe(&self.rt, group, disk) })
    }

    /// Makes a disk one of the pool's; `change` is made to the label with it. Gives its number.
    async fn join(
        self: &Rc<Self>,
        entry: DiskEntry,
        path: &str,
        disk: Disk,
        change: impl FnOnce(&mut Label),
    ) -> Result<u16, Error> {
        self.turnstile.until(|| !self.joining.replace(true)).await;
        let joined = self.join_alone(entry, path, disk, change).await;
        self.joining.set(false);
        self.turnstile.changed();
        joined
    }

    async fn join_alone(
        self: &Rc<Self>,
        entry: DiskEntry,
        path: &str,
        disk: Disk,
        change: impl FnOnce(&mut Label),
    ) -> Result<u16, Error> {
        let index = self.vacant_numbers(1)?[0];
        let mut label = self.label.borrow().clone();
        put(&mut label.disks, index, entry);
        (label.disk, label.generation) = (index as u16, label.generation + 1);
        self.prepare(&disk, path, &label).await?;
        // The cores know it before a chunk can have a slot there. When one cannot open it, its number stays unused in this run.
        let attached = match entry.status {
            DiskStatus::Cache => self.attach_cache(index as u16, path).await,
            _ if entry.has_slots() => self.attach(&label, index as u16, path).await,
            _ => Ok(()),
        };
        let entry = match attached {
            Ok(()) => entry,
            Err(_) => DiskEntry { status: DiskStatus::Removed, heir_of: None, ..entry },
        };
        self.relabel(|label| {
            put(&mut label.disks, index, entry);
            put(
                &mut self.disks.borrow_mut(),
                index,
                ControlDisk { disk: Some(disk), path: path.into(), served: true },
            );
            if attached.is_ok() {
                change(label);
            }
        })
        .await?;
        attached?;
        let what = match entry.status {
            DiskStatus::Spare => "as a spare",
            DiskStatus::Cache => "as a cache",
            _ => "and is in service",
        };
        let message = format!("disk {index} ({path}) joined the pool {what}");
        self.event(Severity::Info, "disk.added", &self.disk_name(index), message);
        Ok(index as u16)
    }

    /// Numbers for so many new disks.
    pub fn vacant_numbers(&self, count: usize) -> Result<Vec<usize>, Error> {
        let (label, disks) = (self.label.borrow(), self.disks.borrow());
        // A number whose disk served in this run is still known on the cores.
        let is_vacant = |index: &usize| {
            *index >= disks.len()
                || (label.disks[*index].status == DiskStatus::Removed && !disks[*index].served)
        };
        let numbers: Vec<usize> = (0..DISKS_MAX).filter(is_vacant).take(count).collect();
        if numbers.len() < count {
            let message = format!(
                "a pool has at most {DISKS_MAX} disks; numbers are free for {} more disks, and {count} are given",
                numbers.len()
            );
            return Err(self
                .error(ErrorKind::NoSpace, message)
                .remedy("Export and import the pool: that frees the numbers of removed disks"));
        }
        Ok(numbers)
    }

    /// Erases the superblocks that a disk may have from elsewhere, and writes its label.
    pub async fn prepare(&self, disk: &Disk, path: &str, label: &Label) -> Result<(), Error> {
        let failed = |error| Error::new(ErrorKind::Io, path, format!("writing failed: {error}"));
        let zeros = self.rt.arena().take_zeroed(SUPERBLOCKS_BYTES).freeze();
        disk.write(DiskLayout::superblock_at(0, 0), vec![zeros]).await.map_err(failed)?;
        disk.flush().await.map_err(failed)?;
        write_label(&self.rt, disk, Some(label)).await.map_err(failed)
    }

    /// Opens a disk on every core, as `label` describes it.
    pub async fn attach(&self, label: &Label, index: u16, path: &str) -> Result<(), Error> {
        let entry = label.disks[usize::from(index)];
        let (layout, place, lanes) = (layout_of(label, &entry), place_of(label, index), lanes(label));
        let mut attached = Ok(());
        for shard in 0..self.shard_count() {
            let (path, health) = (path.to_string(), self.shared.healths[usize::from(index)].clone());
            let attach = move |shard: Rc<Shard>| async move {
                let opened = shard.rt.open_disk(&path, OpenMode::ReadWrite);
                let result = opened.as_ref().map(drop).map_err(|error| open_error(&path, error));
                // The first number may have left the label since the earlier one was added.
                let line = entry.heir_of.and_then(|old| shard.array.line(old)).unwrap_or(place.line);
                let place = Place { line, ..place };
                shard.array.add_disk(index, place, health, opened.ok().map(|disk| (disk, layout)));
                shard.space.borrow_mut().set_lanes(lanes);
                result
            };
            attached = attached.and(self.on_shard(shard, attach).await?);
        }
        self.unless_failed(index, attached)
    }

    /// Opens a cache disk on every core.
    async fn attach_cache(&self, index: u16, path: &str) -> Result<(), Error> {
        let (mut attached, shards) = (Ok(()), self.shard_count());
        for shard in 0..shards {
            let (path, health) = (path.to_string(), self.shared.healths[usize::from(index)].clone());
            let attach = move |shard: Rc<Shard>| async move {
                let handle = shard.rt.open_disk(&path, OpenMode::ReadWrite);
                shard.add_flash(index, handle.map_err(|error| open_error(&path, &error))?, health, shards);
                shard.spawn(shard.clone().look_through_flash());
                Ok(())
            };
            attached = attached.and(self.on_shard(shard, attach).await?);
        }
        self.unless_failed(index, attached)
    }

    /// A disk that some core could not open is out of service, with nothing on it.
    fn unless_failed(&self, index: u16, attached: Result<(), Error>) -> Result<(), Error> {
        if attached.is_err() {
            self.shared.out_of_service(usize::from(index));
            self.shared.healths[usize::from(index)].emptied();
        }
        attached
    }

    /// Puts a new disk, or a spare one, in place of another; that one serves, if it can, until nothing is left on it.
    pub async fn disk_replace(self: &Rc<Self>, old: &str, with: &DiskReplace) -> Result<(), Error> {
        let index = self.find_replaced(old)?;
        let Some(path) = &with.new else {
            if !self.activate_spare_for(index as u16).await? {
                let message = "the pool has no spare disk that is large enough";
                return Err(self.refused(index, message, "Name the new disk"));
            }
            return self.take_out(index).await;
        };
        let (disk, new) = self.plan_replacement(index, path, with).await?;
        self.join(new, path, disk, |_| {}).await?;
        self.take_out(index).await
    }

    /// What [`Control::disk_replace`] would refuse. Changes nothing.
    pub async fn disk_replace_check(&self, old: &str, with: &DiskReplace) -> Result<Option<u64>, Error> {
        let index = self.find_replaced(old)?;
        match &with.new {
            Some(path) => {
                let (disk, _) = self.plan_replacement(index, path, with).await?;
                Ok(Some(disk.geometry().size))
            }
            None => Ok(None),
        }
    }

    /// The index of a disk that can be replaced.
    fn find_replaced(&self, old: &str) -> Result<usize, Error> {
        let index = self.find_disk(old)?;
        let entry = self.label.borrow().disks[index];
        if !entry.has_slots() || entry.slots == 0 {
            let remedy =
                "Remove it, and add the new disk with 'forebay pool add POOL DISK', with --spare or --cache";
            return Err(self.refused(index, "only a disk with data of its own can be replaced", remedy));
        }
        self.check_group_stays(index)?;
        Ok(index)
    }

    async fn plan_replacement(
        &self,
        index: usize,
        path: &str,
        with: &DiskReplace,
    ) -> Result<(Disk, DiskEntry), Error> {
        let old = self.label.borrow().disks[index];
        let disk = self.open_new(path, with.force).await?;
        let new = self.entry_for(old.group, path, &disk, with.sector)?;
        let new = DiskEntry { enclosure: old.enclosure, ..new };
        self.check_large_enough(index, &new)?;
        Ok((disk, new))
    }

    fn check_large_enough(&self, old: usize, new: &DiskEntry) -> Result<(), Error> {
        let used = self.slots.borrow().used(old as u16);
        if used <= u64::from(new.slots) {
            return Ok(());
        }
        let message = format!("the new disk has {} slots, and {used} are in use on this one", new.slots);
        Err(self.refused(old, message, "Give a disk at least as large"))
    }

    /// What is on a disk is to go elsewhere.
    async fn leave(&self, index: usize) -> Result<(), Error> {
        self.relabel(|label| match &mut label.disks[index].status {
            status @ DiskStatus::Online => *status = DiskStatus::Leaving,
            status @ DiskStatus::Offline => *status = DiskStatus::Failed,
            _ => {}
        })
        .await?;
        self.wake_healer();
        Ok(())
    }

    fn check_group_stays(&self, disk: usize) -> Result<(), Error> {
        let label = self.label.borrow();
        let group = label.disks[disk].group;
        if label.groups[usize::from(group)].leaving {
            let message = format!("its group {group} is being removed from the pool, and the disk with it");
            return Err(Error::new(ErrorKind::Conflict, self.disk_name(disk), message));
        }
        Ok(())
    }

    /// What [`Control::disk_remove`] would refuse; how many bytes of the disk would move. Changes nothing.
    pub async fn disk_remove_check(self: &Rc<Self>, disk: &str) -> Result<u64, Error> {
        let index = self.find_disk(disk)?;
        let (entry, group) = {
            let label = self.label.borrow();
            let entry = label.disks[index];
            (entry, label.groups[usize::from(entry.group)])
        };
        if !entry.counts() {
            return Ok(0);
        }
        self.check_group_stays(index)?;
        let width = usize::from(group.data) + usize::from(group.redundancy);
        let others = self.slots.borrow().others(index as u16);
        if others < width {
            let message = format!("its group would have {others} disks, and the layout needs {width}");
            return Err(self.refused(index, message, "Add a disk first, or replace this one"));
        }
        let mut own = DiskSet::default();
        own.insert(index as u16);
        let chunks: Vec<_> = self.chunks_on(own).await?.into_iter().map(|(_, chunk)| chunk).collect();
        let stranded = self.slots.borrow().stranded(index as u16, &chunks);
        if stranded > 0 {
            let mib = |slots: usize| (slots as u64 * group.slot_bytes).div_ceil(MIB);
            let message = format!(
                "{} MiB of the disk are in use, and the other disks of its group have no room for {} MiB of that",
                mib(chunks.len()),
                mib(stranded)
            );
            return Err(self.refused(index, message, "First add a disk to the group, or delete volumes"));
        }
        Ok(chunks.len() as u64 * group.slot_bytes)
    }

    /// Has a disk leave the pool: its slots move to the others of its group.
    pub async fn disk_remove(self: &Rc<Self>, disk: &str) -> Result<(), Error> {
        let index = self.find_disk(disk)?;
        self.disk_remove_check(disk).await?;
        self.take_out(index).await
    }

    async fn take_out(self: &Rc<Self>, index: usize) -> Result<(), Error> {
        if self.label.borrow().disks[index].counts() {
            return self.leave(index).await;
        }
        // Nothing is on it: it goes at once.
        self.relabel(|label| label.take_out(index)).await?;
        for shard in 0..self.shard_count() {
            self.on_shard(shard, move |shard| async move { shard.remove_flash(index as u16) }).await?;
        }
        self.let_go(index).await;
        let message = format!("disk {index} ({}) has left the pool", self.disks.borrow()[index].path);
        self.event(Severity::Info, "disk.removed", &self.disk_name(index), message);
        Ok(())
    }

    /// Erases the label of a disk that left, and closes it.
    pub async fn let_go(&self, index: usize) {
        let handle = self.disks.borrow_mut()[index].disk.take();
        if let Some(handle) = handle {
            // One that cannot be erased says by its generation that it is older than the pool.
            let _ = write_label(&self.rt, &handle, None).await;
        }
    }

    /// Takes a disk out of service, to come back later.
    pub async fn disk_offline(self: &Rc<Self>, disk: &str) -> Result<(), Error> {
        let index = self.find_disk(disk)?;
        {
            let label = self.label.borrow();
            let entry = &label.disks[index];
            if entry.status == DiskStatus::Cache {
                let message = format!("disk {index} is a cache disk with copies only, and cannot go offline");
                return Err(self.error(ErrorKind::Conflict, message).remedy(
                    "Remove it with 'forebay disk remove DISK'; 'forebay pool add POOL DISK --cache' adds it again",
                ));
            }
            if !matches!(entry.status, DiskStatus::Online | DiskStatus::Leaving) {
                return Err(self.error(ErrorKind::Conflict, format!("disk {index} is not in service")));
            }
            let group = &label.groups[usize::from(entry.group)];
            let is_out = |other: &&DiskEntry| {
                other.group == entry.group && other.counts() && !other.status.in_service()
            };
            let out = label.disks.iter().filter(is_out).count();
            if out >= usize::from(group.redundancy) {
                let message = format!(
                    "{out} disks of its group are already out of service, and the layout can lose {}",
                    group.redundancy
                );
                return Err(self.refused(
                    index,
                    message,
                    "Bring the others back, or wait until they are rebuilt",
                ));
            }
        }
        {
            // What is recorded from here on says offline, not failed.
            let mut label = self.label.borrow_mut();
            let entry = &mut label.disks[index];
            (entry.status, entry.stale_since) = (DiskStatus::Offline, self.generation.get());
            self.shared.healths[index].fail();
        }
        self.tell_offline(index).await;
        self.record_failure(index as u16).await;
        if self.shared.is_suspended() {
            return Err(self.suspended());
        }
        let message = format!("disk {index} was taken out of service and misses all writes from now on");
        self.event(Severity::Warning, "disk.offline", &self.disk_name(index), message);
        Ok(())
    }

    /// Forgets the errors that were counted of a disk: what comes from here on is judged by itself.
    pub fn disk_clear(&self, disk: &str) -> Result<(), Error> {
        let index = self.find_disk(disk)?;
        self.shared.healths[index].clear();
        self.faulty.forget(index);
        Ok(())
    }

    /// Brings a disk back that was out of service, at `path` or where it was.
    pub async fn disk_online(self: &Rc<Self>, disk: &str, path: Option<&str>) -> Result<(), Error> {
        let (index, path) = self.returning(disk, path)?;
        self.come_back(index, &path).await
    }

    /// What [`Control::disk_online`] would refuse, without changing anything.
    pub async fn disk_online_check(self: &Rc<Self>, disk: &str, path: Option<&str>) -> Result<(), Error> {
        let (index, path) = self.returning(disk, path)?;
        self.check_returning(index, &path).await.map(drop)
    }

    /// A disk that is out of service, and where it is to be found.
    fn returning(&self, disk: &str, path: Option<&str>) -> Result<(usize, String), Error> {
        let index = self.find_disk(disk)?;
        if self.label.borrow().disks[index].status.in_service() {
            return Err(self.error(ErrorKind::Conflict, format!("disk {index} is already in service")));
        }
        let path = path.map_or_else(|| self.disks.borrow()[index].path.clone(), str::to_string);
        if path.is_empty() {
            let remedy =
                format!("Give its current path: forebay disk online {} --path PATH", self.disk_name(index));
            return Err(self
                .error(ErrorKind::Conflict, format!("disk {index} was not found when the pool was imported"))
                .remedy(remedy));
        }
        Ok((index, path))
    }

    /// Refuses a disk with requests from before: a write that it carries out later would undo what it is given now.
    async fn check_owed(&self, index: usize, identity: u64) -> Result<(), Error> {
        if !self.owes(identity).await {
            return Ok(());
        }
        let message = "the disk still owes answers to requests from before it was taken out of service";
        let remedy = "Try again when it has answered them, or replace it: 'forebay disk replace DISK NEW'";
        Err(self.refused(index, message, remedy))
    }

    /// Opens a disk that is back at `path`, if it is the one of this number and can serve again.
    async fn check_returning(&self, index: usize, path: &str) -> Result<Disk, Error> {
        let old = self.label.borrow().disks[index];
        if old.slots == 0 {
            let message = "it was a spare or a cache disk, and held no data of its own";
            return Err(self.refused(
                index,
                message,
                "Remove it, and add it again with 'forebay pool add POOL DISK --force'",
            ));
        }
        let known = self.disks.borrow()[index].disk.as_ref().map(|disk| disk.geometry().identity);
        if let Some(identity) = known {
            self.check_owed(index, identity).await?;
        }
        let found = match probe(&self.rt, path, OpenMode::ReadWrite).await {
            Probe::Labelled(found) => found,
            Probe::Unopened(error) => return Err(open_error(path, &error)),
            Probe::Blank(..) => {
                let message = format!("{path} has no pool label: it is another disk, or was overwritten");
                return Err(self.refused(index, message, "Use it as new: 'forebay disk replace DISK NEW'"));
            }
        };
        let own = found.label.disks.get(usize::from(found.label.disk)).map(|own| own.id);
        if found.label.pool != self.id() || own != Some(old.id) {
            let message = format!("{path} is another disk: {}/{}", found.label.pool_name, found.label.disk);
            return Err(self.refused(index, message, "Give the current path of the disk"));
        }
        // After an import it is known by its label only.
        self.check_owed(index, found.disk.geometry().identity).await?;
        if found.disk.geometry().size < old.size {
            let message = format!(
                "{path} has shrunk: it has {} bytes, and the pool uses {}",
                found.disk.geometry().size,
                old.size
            );
            return Err(self.refused(index, message, "Replace it: 'forebay disk replace DISK NEW'"));
        }
        if has_parted(&found.label, &self.label.borrow()) {
            let message = format!("{path} and the pool were used separately: their contents have diverged");
            let remedy = "To keep this disk's data, export the pool and import it from this disk, without the disks in service now. \
                          To discard its data, use it as a new disk: 'forebay disk replace DISK NEW --force'";
            return Err(self.refused(index, message, remedy));
        }
        Ok(found.disk)
    }

    /// A disk that is out of service is back at `path`: it joins under a new number with what it has.
    pub async fn come_back(self: &Rc<Self>, index: usize, path: &str) -> Result<(), Error> {
        self.writing()?;
        let disk = self.check_returning(index, path).await?;
        let old = self.label.borrow().disks[index];
        let is_empty = old.status == DiskStatus::Empty;
        let heir_of = if is_empty { old.heir_of } else { Some(index as u16) };
        let id = Id::from_random(self.rt.random(), self.rt.random());
        let new = DiskEntry { id, status: DiskStatus::Online, heir_of, stale_since: 0, ..old };
        let gone = if is_empty { DiskStatus::Removed } else { DiskStatus::Failed };
        self.disks.borrow_mut()[index].disk = None;
        self.join(new, path, disk, |label| label.disks[index].status = gone).await?;
        self.wake_healer();
        Ok(())
    }

    /// Reads from a disk in a rhythm, a second on and a second off, so that whoever stands before it sees which one it is.
    pub async fn disk_locate(&self, disk: &str, duration: Duration) -> Result<(), Error> {
        let index = self.find_disk(disk)?;
        let handle = self.disks.borrow()[index].disk.clone();
        let handle =
            handle.ok_or_else(|| self.error(ErrorKind::NotFound, format!("disk {index} is missing")))?;
        let (begin, second) = (self.rt.now(), Duration::from_secs(1));
        let places = (handle.geometry().size / MIB).max(1);
        while self.rt.now().since(begin) < duration.as_nanos() as u64 && !self.closing.get() {
            let lit = self.rt.now();
            while self.rt.now().since(lit) < second.as_nanos() as u64 {
                let at = self.rt.random() % places * MIB;
                // Whether it can be read is not the question here.
                let _ = handle.read(at, self.rt.buffer(MIB as usize)).await;
            }
            self.rt.sleep(second).await;
        }
        Ok(())
    }

    /// Has a spare disk take part where a disk is vacated and the others have no room. False when there is none.
    pub async fn activate_spare(self: &Rc<Self>) -> Result<bool, Error> {
        let vacating: Vec<u16> = {
            let label = self.label.borrow();
            let is_vacating = |(_, disk): &(usize, &DiskEntry)| {
                matches!(disk.status, DiskStatus::Failed | DiskStatus::Leaving)
                    && !label.groups[usize::from(disk.group)].leaving
            };
            label.disks.iter().enumerate().filter(is_vacating).map(|(index, _)| index as u16).collect()
        };
        for disk in vacating {
            if self.activate_spare_for(disk).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn activate_spare_for(self: &Rc<Self>, old: u16) -> Result<bool, Error> {
        let group = self.label.borrow().disks[usize::from(old)].group;
        let used = self.slots.borrow().used(old);
        for (index, disk) in self.online() {
            if self.label.borrow().disks[index].status != DiskStatus::Spare {
                continue;
            }
            let slots = slots_of(&disk, &self.label.borrow().groups[usize::from(group)]).unwrap_or(0);
            if slots == 0 || u64::from(slots) < used {
                continue;
            }
            let mut label = self.label.borrow().clone();
            let entry = &mut label.disks[index];
            (entry.group, entry.slots, entry.status) = (group, slots, DiskStatus::Online);
            let entry = *entry;
            let path = self.disks.borrow()[index].path.clone();
            self.attach(&label, index as u16, &path).await?;
            self.disks.borrow_mut()[index].served = true;
            self.relabel(|label| label.disks[index] = entry).await?;
            let message = format!("spare disk {index} takes the place of disk {old}");
            self.event(Severity::Warning, "disk.spare_used", &self.disk_name(index), message);
            self.wake_healer();
            return Ok(true);
        }
        Ok(false)
    }
}

/// Sets an element, or adds it at the end.
pub(crate) fn put<T>(list: &mut Vec<T>, index: usize, value: T) {
    match list.get_mut(index) {
        Some(place) => *place = value,
        None => list.push(value),
    }
}
