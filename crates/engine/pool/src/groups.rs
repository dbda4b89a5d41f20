//! A running pool gets another group of disks.
//!
//! Several disks join at once, or none does. First each of them gets a label that says all of it and decides nothing
//! ([`JOINING`]); then the cores learn of the group and its disks; then the label is written everywhere. The first of
//! these labels that is durable makes the group a part of the pool: an import that finds one finds all its disks, and one that
//! finds none leaves them alone. No chunk is granted from the group before that.
//!
//! All groups survive as many losses, since a volume's blocks lie in all of them; and all have lines with parity, or none
//! has, since that decides which way a write goes.

use crate::assembly::JOINING;
use crate::control::{Control, ControlDisk};
use crate::create::{check_enclosures, check_layout, plan_group, put_in_boxes};
use crate::error::{Error, ErrorKind};
use crate::import::lines_of;
use crate::members::put;
use crate::sectors::{check_sectors, given, put_sectors, sector_of};
use crate::shard::Shard;
use crate::slots::{DATA, SlotMap};
use crate::spec::{Layout, Severity};
use forebay_base::planted::{Bug, active};
use forebay_device::{DiskEntry, DiskStatus, GROUPS_MAX, GroupEntry, Label, UNIT};
use forebay_runtime::{Disk, Vitals};
use std::rc::Rc;

/// A group to add to a pool.
#[derive(Clone, Debug)]
pub struct GroupAdd {
    pub layout: Layout,
    /// Paths of its disks.
    pub disks: Vec<String>,
    /// Names of the boxes that disks are in, by path.
    pub enclosures: Vec<(String, String)>,
    /// Physical sectors in bytes, by path, of disks that do not say them right.
    pub sectors: Vec<(String, u32)>,
    /// Take disks that are not empty, whatever is on them; never such as are in use.
    pub force: bool,
}

/// A group that nothing speaks against.
struct Planned {
    disks: Vec<Disk>,
    group: GroupEntry,
    entries: Vec<DiskEntry>,
    /// Of the disks in the pool.
    numbers: Vec<usize>,
}

impl Control {
    /// Has new chunks go where the disks have time for them, by what each disk served in the last second.
    pub fn note_loads(&self, vitals: &[Vitals]) {
        let label = self.label.borrow();
        let mut slots = self.slots.borrow_mut();
        for group in 0..label.groups.len() {
            let members = || {
                vitals
                    .iter()
                    .zip(&label.disks)
                    .filter(|(_, disk)| usize::from(disk.group) == group && disk.counts())
            };
            let nanos: u64 =
                members().flat_map(|(vitals, _)| &vitals.served).map(|served| served.nanos).sum();
            slots.note_load(group as u16, nanos / members().count().max(1) as u64);
        }
    }

    /// What [`Control::group_add`] would refuse, and how many bytes of data the group would hold. Writes nothing.
    pub async fn group_add_check(&self, add: &GroupAdd) -> Result<u64, Error> {
        let Planned { group, entries, .. } = self.plan_group_add(add).await?;
        let mut label = self.label.borrow().clone();
        let number = self.vacant_group();
        put(&mut label.groups, number, group);
        label.disks.extend(entries);
        let number = number as u16;
        let slots = SlotMap::new(&label);
        Ok(slots.chunks(number).0 * u64::from(slots.units(number, DATA)) * UNIT)
    }

    /// Adds a group; new chunks come from it as well.
    pub async fn group_add(self: &Rc<Self>, add: &GroupAdd) -> Result<(), Error> {
        self.turnstile.until(|| !self.joining.replace(true)).await;
        let added = self.group_add_alone(add).await;
        self.joining.set(false);
        self.turnstile.changed();
        added
    }

    async fn group_add_alone(self: &Rc<Self>, add: &GroupAdd) -> Result<(), Error> {
        let Planned { disks, group, mut entries, numbers } = self.plan_group_add(add).await?;
        let number = self.vacant_group();
        let mut label = self.label.borrow().clone();
        enter(&mut label, (number, group), &numbers, &entries);
        label.generation = if active(Bug::JoiningDisksDecide) { label.generation + 1 } else { JOINING };
        for ((disk, path), index) in disks.iter().zip(&add.disks).zip(&numbers) {
            label.disk = *index as u16;
            self.prepare(disk, path, &label).await?;
        }
        let attached = self.attach_group(&label, number as u16, &numbers, &add.disks).await;
        if attached.is_err() {
            // The cores know the numbers; they stay unused in this run.
            entries.iter_mut().for_each(|entry| entry.status = DiskStatus::Removed);
            for index in &numbers {
                self.shared.out_of_service(*index);
                self.shared.healths[*index].emptied();
            }
        }
        self.relabel(|label| {
            enter(label, (number, group), &numbers, &entries);
            let mut known = self.disks.borrow_mut();
            for ((disk, path), index) in disks.into_iter().zip(&add.disks).zip(&numbers) {
                let new = ControlDisk { disk: Some(disk), path: path.clone(), served: true };
                put(&mut known, *index, new);
            }
        })
        .await?;
        attached?;
        let message = format!("group {number} ({}, {} disks) joined the pool", add.layout, numbers.len());
        self.event(Severity::Info, "group.added", self.name(), message);
        Ok(())
    }

    /// The number of the next group: that of one that has left, unless the cores still know it.
    fn vacant_group(&self) -> usize {
        let (label, disks) = (self.label.borrow(), self.disks.borrow());
        let is_known = |group: usize| {
            let served = label.disks.iter().zip(&*disks).filter(|(_, disk)| disk.served);
            served.map(|(entry, _)| usize::from(entry.group)).any(|served| served == group)
        };
        let is_vacant = |group: &usize| !label.is_inhabited(*group) && !is_known(*group);
        (0..label.groups.len()).find(is_vacant).unwrap_or(label.groups.len())
    }

    /// Finds what speaks against a group, and what it would be.
    async fn plan_group_add(&self, add: &GroupAdd) -> Result<Planned, Error> {
        check_layout(self.name(), add.layout, &add.disks)?;
        check_enclosures(self.name(), &add.enclosures, |path| add.disks.contains(path))?;
        check_sectors(self.name(), &add.sectors, |path| add.disks.contains(path))?;
        let (first, number) = {
            let label = self.label.borrow();
            let first = label.groups.iter().enumerate();
            let first = first.filter(|(index, group)| group.role == 0 && label.is_inhabited(*index));
            let first = first.map(|(_, group)| *group).next();
            (first.expect("every pool has a data group"), self.vacant_group())
        };
        let there = Layout::of(first.data, first.redundancy);
        if add.layout.redundancy() != there.redundancy() {
            let losses = |layout: Layout| match layout.redundancy() {
                0 => "no disk".to_string(),
                1 => "one disk".to_string(),
                many => format!("{many} disks"),
            };
            let message = format!(
                "a {} group can lose {}, and the pool's {there} group can lose {}: a volume uses all groups, so all must be \
                 able to lose as many",
                add.layout,
                losses(add.layout),
                losses(there)
            );
            let remedy = format!("Give a layout that can lose {}", losses(there));
            return Err(self.invalid("layout", message, &remedy));
        }
        if (add.layout.data() > 1) != (there.data() > 1) {
            let message = format!(
                "a {} group cannot join the pool's {there} group: either all groups of a pool have parity, or none",
                add.layout
            );
            let remedy = match there.data() {
                1 => format!("Give the layout {there}"),
                _ => format!("Give a layout D+{}", there.redundancy()),
            };
            return Err(self.invalid("layout", message, &remedy));
        }
        if number >= GROUPS_MAX {
            let message = format!("a pool has at most {GROUPS_MAX} groups");
            return Err(self.invalid("layout", message, "Add the disks to an existing group"));
        }
        let numbers = self.vacant_numbers(add.disks.len())?;
        let mut disks: Vec<Disk> = Vec::with_capacity(add.disks.len());
        for path in &add.disks {
            let disk = self.open_new(path, add.force).await?;
            if disks.iter().any(|other| other.geometry().identity == disk.geometry().identity) {
                let message = format!("{path} is given twice");
                return Err(self.invalid("disks", message, "Give each disk once"));
            }
            sector_of(path, &disk, given(&add.sectors, path))?;
            disks.push(disk);
        }
        let (group, mut entries) = plan_group(&self.rt, 0, add.layout, number as u16, &disks);
        put_in_boxes(&mut entries, add.disks.iter(), &add.enclosures);
        put_sectors(&mut entries, add.disks.iter(), &add.sectors);
        self.check_lines(&group).await?;
        Ok(Planned { disks, group, entries, numbers })
    }

    /// Refuses lines of which a part could not pass through the log.
    async fn check_lines(&self, group: &GroupEntry) -> Result<(), Error> {
        let line = u64::from(lines_of(group).units) * UNIT;
        for index in 0..self.shard_count() {
            let fits = move |shard: Rc<Shard>| async move { shard.fits_into_log(1, line as usize) };
            if !self.on_shard(index, fits).await? {
                let message = format!(
                    "a stripe of this group would have {line} bytes, too many for the pool's log, which was created for smaller disks"
                );
                let remedy = "Give fewer data disks, or create another pool from these disks";
                return Err(self.error(ErrorKind::NoSpace, message).remedy(remedy));
            }
        }
        Ok(())
    }

    /// Makes a group and its disks known on every core, as `label` describes them.
    async fn attach_group(
        &self,
        label: &Label,
        number: u16,
        numbers: &[usize],
        paths: &[String],
    ) -> Result<(), Error> {
        let group = label.groups[usize::from(number)];
        for shard in 0..self.shard_count() {
            let learn = move |shard: Rc<Shard>| async move {
                shard.array.add_group(number, &group);
                shard.space.borrow_mut().set_lines(number, lines_of(&group));
            };
            self.on_shard(shard, learn).await?;
        }
        let mut attached = Ok(());
        for (index, path) in numbers.iter().zip(paths) {
            attached = attached.and(self.attach(label, *index as u16, path).await);
        }
        attached
    }
}

/// Enters a group under its number, and its disks.
fn enter(label: &mut Label, (number, group): (usize, GroupEntry), numbers: &[usize], entries: &[DiskEntry]) {
    put(&mut label.groups, number, group);
    for (index, entry) in numbers.iter().zip(entries) {
        put(&mut label.disks, *index, *entry);
    }
}
