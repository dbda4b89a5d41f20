//! Volumes as management sees them: create, list, change, delete.

use crate::control::Control;
use crate::dataset::Dataset;
use crate::entry::{Change, Entry};
use crate::error::{Error, ErrorKind, IoError};
use crate::locks::RangeGuard;
use crate::names::Place;
use crate::projects::Inherits;
use crate::record::{DatasetKind, DatasetRecord, DatasetState, NAME_MAX};
use crate::reserve::{Attempt, Claim, Refusal};
use crate::shard::Shard;
use crate::spec::{Setting, Severity, VolumeChange, VolumeDelete, VolumeFormat, VolumeInfo, VolumeSpec};
use crate::steps::Steps;
use crate::tables::DATASETS_MAX;
use crate::volume::LocalVolume;
use forebay_base::planted::{Bug, active};
use forebay_base::{Id, MIB, TIB};
use forebay_device::UNIT;
use forebay_tree::Tree;
use std::rc::Rc;
use std::sync::atomic::Ordering;

const SIZE_MIN: u64 = MIB;
const SIZE_MAX: u64 = 64 * TIB;
/// Per shard: one dataset is for attributes.
const VOLUMES_MAX: usize = DATASETS_MAX - 1;

/// Checks a volume name: what the command line, URLs and export names can carry without quoting.
pub(crate) fn check_name(object: &str, name: &str, field: &'static str) -> Result<(), Error> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let parts_fine = name.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(fine) || !parts_fine {
        let message = format!("the name '{}' cannot be used", name.escape_default());
        let remedy = format!("Use 1 to {NAME_MAX} letters, digits and . _ - with / between project and name");
        return Err(Error::new(ErrorKind::Invalid(field), object, message).remedy(remedy));
    }
    Ok(())
}

pub(crate) fn check_block_size(object: &str, bytes: u32) -> Result<(), Error> {
    if bytes.is_power_of_two() && (4096..=131072).contains(&bytes) {
        return Ok(());
    }
    let message = format!("a block size of {bytes} bytes is not possible");
    let remedy = "Use 4K, 8K, 16K, 32K, 64K or 128K";
    Err(Error::new(ErrorKind::Invalid("block_size"), object, message).remedy(remedy))
}

pub(crate) fn check_size(object: &str, size: u64, block_size: u32) -> Result<(), Error> {
    let invalid = |message: String, remedy: String| {
        Err(Error::new(ErrorKind::Invalid("size"), object, message).remedy(remedy))
    };
    if !(SIZE_MIN..=SIZE_MAX).contains(&size) {
        return invalid(
            format!("a volume of {size} bytes is not possible"),
            "Give a size from 1M to 64T".into(),
        );
    }
    if !size.is_multiple_of(u64::from(block_size)) {
        let next = size.next_multiple_of(u64::from(block_size));
        return invalid(
            format!("{size} bytes are not a multiple of the block size of {block_size}"),
            format!("The next possible size: {next} bytes"),
        );
    }
    Ok(())
}

impl Shard {
    pub(crate) async fn info(&self, dataset: &Dataset) -> VolumeInfo {
        let staged = dataset.blocks_staged().await;
        let damaged = self.damaged_bytes(dataset.id()).await;
        let (record, tree) = (dataset.record.borrow(), dataset.tree.borrow().mapped());
        let shift = record.block_shift;
        let mapped = (tree.blocks as u64 + staged) << shift;
        let (project, sources) = self.project_info(dataset);
        let (project, project_id) = project.unzip();
        VolumeInfo {
            id: record.id,
            pool: self.shared.name.clone(),
            name: record.name.clone(),
            size: record.size,
            block_size: 1 << record.block_shift,
            sync: dataset.sync(),
            compression: dataset.compression_wanted(),
            project,
            project_id,
            level: dataset.level(),
            standing: self.wished(dataset).standing(self.shared.is_measured.load(Ordering::Relaxed)),
            sources,
            read_only: self.shared.import.read_only,
            shard: self.index,
            core: self.index % self.shared.cores.count(),
            stored: tree.units as u64 * UNIT,
            packing_nanos: dataset.packing_nanos.get(),
            unpacking_nanos: dataset.unpacking_nanos.get(),
            format: record.format,
            mapped,
            reserved: match record.format {
                VolumeFormat::ZeroedThick => dataset.owed().saturating_sub(staged) << shift,
                VolumeFormat::Thin | VolumeFormat::EagerZeroedThick => 0,
            },
            used: if record.format == VolumeFormat::EagerZeroedThick { record.size } else { mapped },
            created: record.created,
            origin: self.origin_of(dataset),
            snapshots: self.count_snapshots(record.number),
            snapshot_bytes: None,
            damaged,
            schedule: dataset.schedule(),
        }
    }

    pub(crate) async fn create_dataset(
        self: &Rc<Self>,
        record: DatasetRecord,
        tree: Option<Tree>,
    ) -> Result<Rc<Dataset>, IoError> {
        let number = self.new_number()?;
        self.put_new(DatasetRecord { number, ..record }, tree).await?;
        self.datasets.borrow().get(&number).cloned().ok_or(IoError::Gone)
    }

    async fn put_new(self: &Rc<Self>, record: DatasetRecord, tree: Option<Tree>) -> Result<(), IoError> {
        // What the others hold is not touched for long: the tree is empty, or another's.
        let nodes = self.reserve_nodes(2, Claim::Reserved).await?;
        let change = match tree {
            Some(tree) => Change::put_clone(record, tree),
            None => Change::put(record),
        };
        let mut entry = Entry::new(self.entry_id(), vec![change], true);
        entry.nodes = Some(nodes);
        let done = entry.awaited();
        self.submit(entry);
        done.await
    }
}

impl Control {
    pub fn object(&self, name: &str) -> String {
        format!("{}/{name}", self.name())
    }

    pub fn io_error(&self, name: &str, error: IoError) -> Error {
        let (kind, remedy) = match error {
            IoError::NoSpace if !self.trash.is_empty() => (
                ErrorKind::NoSpace,
                "Purge volumes in the trash ('forebay volume trash' lists them), then try again",
            ),
            IoError::NoSpace => (ErrorKind::NoSpace, "Delete volumes or discard data, then try again"),
            IoError::Suspended => {
                (ErrorKind::Suspended, "Restore the failed disks, then export and import the pool")
            }
            IoError::ReadOnly => (ErrorKind::Conflict, "Export the pool and import it without --read-only"),
            IoError::Gone if self.closing.get() => {
                return self.error(ErrorKind::Stopped, "the pool is being closed");
            }
            IoError::Gone => (ErrorKind::NotFound, ""),
            IoError::Corrupt => return self.damaged_error(name, error.to_string()),
            IoError::OutOfRange | IoError::Io | IoError::Cancelled => {
                (ErrorKind::Io, "See 'forebay event list'")
            }
        };
        Error::new(kind, self.object(name), error.to_string()).remedy(remedy)
    }

    /// Something cannot be done since stored data is lost.
    pub fn damaged_error(&self, name: &str, message: String) -> Error {
        let remedy = format!(
            "'forebay pool status {} --errors' lists the lost data. Restore it from a backup, then try again",
            self.name()
        );
        Error::new(ErrorKind::Io, self.object(name), message).remedy(remedy)
    }

    /// A live volume by name or id.
    pub fn find(&self, name: &str) -> Option<(String, Place)> {
        let names = self.names.borrow();
        if let Some(place) = names.get(name) {
            return Some((name.to_string(), *place));
        }
        let id: Id = name.parse().ok()?;
        names.of(id).map(|name| (name.clone(), names[name]))
    }

    pub fn existing(&self, name: &str) -> Result<(String, Place), Error> {
        let missing = || {
            Error::new(ErrorKind::NotFound, self.object(name), "no such volume")
                .remedy("List them with: forebay volume list")
        };
        self.find(name).ok_or_else(missing)
    }

    /// Refuses a volume that cannot be made, as far as that can be said without holding space for it; the shard where it would be.
    async fn check_create(&self, spec: &VolumeSpec) -> Result<usize, Error> {
        let object = self.object(&spec.name);
        check_block_size(&object, spec.block_size)?;
        check_size(&object, spec.size, spec.block_size)?;
        self.check_quota(&spec.name, if spec.format == VolumeFormat::Thin { 0 } else { spec.size }).await?;
        let shard = self.shard_for_volume(&object)?;
        self.check_catalog(&object, shard, 1).await?;
        self.check_new_name(&spec.name)?;
        self.refuse_taken(&spec.name)?;
        Ok(shard)
    }

    /// What [`Control::volume_create`] would refuse; what it would hold is held and let go of again.
    pub async fn volume_create_check(&self, spec: VolumeSpec) -> Result<(), Error> {
        let _turn = self.creation_turn(spec.format).await;
        let shard = self.check_create(&spec).await?;
        let (format, shift, size) = (spec.format, spec.block_size.trailing_zeros() as u8, spec.size);
        let secure =
            move |shard: Rc<Shard>| async move { shard.secure_new(format, shift, size).await.map(drop) };
        let secured = self.on_shard(shard, secure).await?;
        secured.map_err(|refusal| self.not_made(&spec.name, format, refusal))
    }

    fn not_made(&self, name: &str, format: VolumeFormat, refusal: Refusal) -> Error {
        let thin = "make it thin ('--format thin')";
        self.not_reserved(name, &format!("the volume cannot be made {}", format.name()), thin, refusal)
    }

    /// Two that each find all there is would both be refused, or both take what is left of a quota.
    async fn creation_turn(&self, format: VolumeFormat) -> Option<RangeGuard<'_>> {
        match format {
            VolumeFormat::Thin => None,
            _ => Some(self.lineage.lock(0, 0).await),
        }
    }

    pub async fn volume_create(&self, spec: VolumeSpec) -> Result<VolumeInfo, Error> {
        let object = self.object(&spec.name);
        let _turn = self.creation_turn(spec.format).await;
        let shard = self.check_create(&spec).await?;
        let id = Id::from_random(self.rt.random(), self.rt.random());
        // The name is taken from here on, so that two requests cannot both have it.
        self.names.borrow_mut().insert(spec.name.clone(), Place { shard, id });
        let shift = spec.block_size.trailing_zeros() as u8;
        let fresh = DatasetRecord::new(DatasetKind::Volume, id, shift, spec.size, spec.name.clone());
        let VolumeSpec { sync, compression, format, size, level, own_hosts, .. } = spec;
        let record = DatasetRecord {
            sync: sync.unwrap_or_default(),
            compression: compression.unwrap_or_default(),
            level: level.unwrap_or(Id(0)),
            inherits: Inherits::SCHEDULE
                .unless(sync, Inherits::SYNC)
                .unless(compression, Inherits::COMPRESSION)
                .unless(level, Inherits::LEVEL)
                .unless(own_hosts.then_some(()), Inherits::HOSTS),
            format,
            created: self.rt.wall(),
            ..fresh
        };
        let create = move |shard: Rc<Shard>| async move {
            let _pledge = shard.secure_new(format, shift, size).await?;
            let dataset = shard.create_dataset(record, None).await.map_err(Refusal::Failed)?;
            Ok(shard.info(&dataset).await)
        };
        let created = self.on_shard(shard, create).await;
        let created =
            created.and_then(|result| result.map_err(|refusal| self.not_made(&spec.name, format, refusal)));
        if created.is_err() {
            self.names.borrow_mut().remove(&spec.name);
        } else if let Some(message) = self.small_blocks(spec.block_size) {
            self.event(Severity::Warning, "volume.small_blocks", &object, message);
        }
        self.with_promise(created?).await
    }

    /// The shard that has the fewest volumes.
    pub fn shard_for_volume(&self, object: &str) -> Result<usize, Error> {
        let mut load = vec![0usize; self.shard_count()];
        load.iter_mut().enumerate().for_each(|(shard, load)| *load = self.names.borrow().on_shard(shard));
        self.trash.shards().into_iter().for_each(|shard| load[shard] += 1);
        let shard = (0..load.len()).min_by_key(|index| load[*index]).expect("a pool has a shard");
        if load[shard] >= VOLUMES_MAX {
            let message = format!("the pool has {} volumes, which is the maximum", VOLUMES_MAX * load.len());
            let remedy = match self.trash.is_empty() {
                true => "Delete volumes, or create another pool",
                false => "Purge volumes in the trash, which count too, or create another pool",
            };
            return Err(Error::new(ErrorKind::NoSpace, object, message).remedy(remedy));
        }
        Ok(shard)
    }

    pub async fn volume_list(&self) -> Result<Vec<VolumeInfo>, Error> {
        let mut all = Vec::new();
        for index in 0..self.shard_count() {
            let list = |shard: Rc<Shard>| async move {
                let (mut infos, mut from, mut steps) = (Vec::new(), 0, Steps::default());
                while let Some(dataset) = shard.next_dataset(from) {
                    from = dataset.number() + 1;
                    steps.take(1 + shard.count_snapshots(dataset.number()) as usize).await;
                    if dataset.is_live() {
                        infos.push(shard.info(&dataset).await);
                    }
                }
                infos
            };
            all.extend(self.on_shard(index, list).await?);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Runs `work` on the shard of a live volume.
    pub async fn on_volume<T, F, W>(&self, name: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Shard>, Rc<Dataset>) -> W + Send + 'static,
        W: Future<Output = Result<T, IoError>> + 'static,
    {
        let (name, place) = self.existing(name)?;
        let result = self.on_shard(place.shard, move |shard| async move {
            match shard.volume(place.id) {
                Some(dataset) => work(shard, dataset).await,
                None => Err(IoError::Gone),
            }
        });
        result.await?.map_err(|error| self.io_error(&name, error))
    }

    /// What there is to say of a volume without counting anything.
    pub async fn volume_brief(&self, name: &str) -> Result<VolumeInfo, Error> {
        self.on_volume(name, |shard, dataset| async move { Ok(shard.info(&dataset).await) }).await
    }

    pub async fn volume_info(&self, name: &str) -> Result<VolumeInfo, Error> {
        self.on_volume(name, |shard, dataset| async move {
            let mut bytes = Some(0);
            for snapshot in shard.snapshots_of(dataset.number()) {
                let kept = shard.kept_by(&snapshot).await.ok();
                bytes = bytes.zip(kept).map(|(bytes, kept)| bytes + kept.all);
            }
            Ok(VolumeInfo { snapshot_bytes: bytes, ..shard.info(&dataset).await })
        })
        .await
    }

    pub async fn volume_resize(&self, name: &str, size: u64, attempt: Attempt) -> Result<VolumeInfo, Error> {
        // A size from before the volume goes back to another would undo that.
        let _turn = self.lineage.lock(0, 0).await;
        let now = self.volume_brief(name).await?;
        check_size(&self.object(name), size, now.block_size)?;
        if size < now.size {
            let message = format!("shrinking from {} to {size} bytes would cut off data", now.size);
            let remedy = "Create a smaller volume and copy the data to it";
            return Err(Error::new(ErrorKind::Unsafe, self.object(name), message).remedy(remedy));
        }
        self.volume_grow(name, size, attempt).await
    }

    pub async fn volume_set(&self, name: &str, change: VolumeChange) -> Result<VolumeInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let is_promise = change.level != Setting::Keep;
        let set = move |shard: Rc<Shard>, dataset: Rc<Dataset>| async move {
            let volume = LocalVolume::of(shard.clone(), dataset.clone());
            let set = |record: &mut DatasetRecord| {
                let inherits = &mut record.inherits;
                inherits.set(Inherits::SYNC, &mut record.sync, change.sync);
                inherits.set(Inherits::COMPRESSION, &mut record.compression, change.compression);
                inherits.set(Inherits::SCHEDULE, &mut record.schedule, change.schedule);
                inherits.set(Inherits::LEVEL, &mut record.level, change.level);
                inherits.set(Inherits::HOSTS, &mut (), change.hosts);
            };
            volume.put(set).await?;
            if change.sync != Setting::Keep && !active(Bug::FlushTrustsPolicy) {
                // What was acknowledged on other terms until then is durable when the change is.
                shard.flush_queued().await?;
            }
            Ok(shard.info(&dataset).await)
        };
        let info = self.on_volume(name, set).await?;
        if !is_promise {
            return Ok(info);
        }
        self.look_at_promises().await;
        self.volume_brief(&info.id.to_string()).await
    }

    pub async fn volume_delete(&self, name: &str, how: VolumeDelete) -> Result<(), Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let (name, place) = self.existing(name)?;
        let VolumeDelete { with_snapshots, purge } = how;
        let (deleted, is_kept) = (self.rt.wall(), !purge && self.trash.keep_seconds.get() > 0);
        let refused = self.on_volume(&name, move |shard, dataset| async move {
            let _turn = dataset.properties.lock(0, 0).await;
            let (number, snapshots) = (dataset.number(), shard.snapshots_of(dataset.number()));
            if !with_snapshots && !snapshots.is_empty() {
                return Ok(Err(format!(
                    "the volume has {} snapshots, which would be lost with it",
                    snapshots.len()
                )));
            }
            let objections = shard.objections(number);
            if !objections.is_empty() {
                return Ok(Err(objections.join("; ")));
            }
            let volume = dataset.record.borrow().clone();
            if is_kept {
                let trashed = DatasetRecord { state: DatasetState::Trashed, deleted, ..volume };
                return shard.put_all(vec![trashed]).await.map(Ok);
            }
            shard.doom(&snapshots, Some(volume)).await.map(Ok)
        });
        refused.await?.map_err(|why| {
            let kind = if with_snapshots { ErrorKind::Conflict } else { ErrorKind::Unsafe };
            Error::new(kind, self.object(&name), format!("it cannot be deleted: {why}")).remedy(
                Self::remedy_of(
                    &why,
                    "Delete its snapshots first, or together with it ('--with-snapshots'). Promote or delete its clones first",
                ),
            )
        })?;
        self.names.borrow_mut().remove(&name);
        if is_kept {
            self.trash.add(&self.rt, place, name, deleted);
        }
        Ok(())
    }
}
