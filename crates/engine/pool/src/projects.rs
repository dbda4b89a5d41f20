//! Projects: volumes that have properties in common.
//!
//! A volume belongs to the project that its name begins with: `PROJECT/NAME`. So there is nothing to keep in step, and a volume in the trash,
//! or one that is being received, belongs to a project as well. A project is a dataset of kind *project* on shard 0, without blocks; what it
//! says is in its record. Volumes have no copy of that on disk, only a mark for each property that is not their own: after a
//! crash, what a project says is old or new for all its volumes at once.
//!
//! Each shard knows what all projects say, and keeps it with each of its volumes, so that a write asks nobody. A change is durable first, and
//! then told to the shards one after the other; who waits for it waits for all.

use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::names::Place;
use crate::quota::Said;
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use crate::registry::registry;
use crate::shard::Shard;
use crate::spec::{ProjectChange, ProjectInfo, ProjectProperties, Setting, Source, Sources};
use crate::volumes::{check_block_size, check_name};
use crate::{Engine, controls_of, find_pool};
use async_recursion::async_recursion as boxed;
use forebay_base::planted::{Bug, active};
use forebay_base::{Id, MIB, WallTime};
use forebay_runtime::Rt;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

/// Where projects are.
pub(crate) const SHARD: usize = 0;
/// Each is a dataset of one shard, and all shards know all of them.
const PROJECTS_MAX: usize = 1000;
/// Longest name in bytes: it leaves room for those of volumes.
const NAME_MAX: usize = 63;
const QUOTA_MIN: u64 = MIB;
/// log2 of the bytes of a block, where a project does not say it: 4 KiB is always possible.
pub(crate) const SHIFT_UNSAID: u8 = 12;

/// Properties that a dataset does not have of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Inherits(pub u8);

impl Inherits {
    pub const SYNC: Inherits = Inherits(1);
    pub const COMPRESSION: Inherits = Inherits(2);
    pub const SCHEDULE: Inherits = Inherits(4);
    const BLOCK_SIZE: Inherits = Inherits(8);
    const FORMAT: Inherits = Inherits(16);
    /// Of a volume: to which hosts it is mapped. Which those are is kept elsewhere, so a project's record does not have it.
    pub const HOSTS: Inherits = Inherits(32);
    pub const LEVEL: Inherits = Inherits(64);

    pub fn has(self, property: Inherits) -> bool {
        self.0 & property.0 != 0
    }

    pub fn and(self, property: Inherits) -> Inherits {
        Inherits(self.0 | property.0)
    }

    pub fn without(self, property: Inherits) -> Inherits {
        Inherits(self.0 & !property.0)
    }

    /// The same, and `property` where `value` is absent.
    pub fn unless<T>(self, value: Option<T>, property: Inherits) -> Inherits {
        if value.is_none() { self.and(property) } else { self }
    }

    /// Changes the value of `property`, or whether it counts.
    pub fn set<T>(&mut self, property: Inherits, value: &mut T, setting: Setting<T>) {
        match setting {
            Setting::Keep => {}
            Setting::Own(new) => {
                *value = new;
                self.0 &= !property.0;
            }
            Setting::Inherit => self.0 |= property.0,
        }
    }
}

/// The name of the project that a volume of this name belongs to, if there is one.
pub(crate) fn project_of(volume: &str) -> Option<&str> {
    volume.split_once('/').map(|(project, _)| project)
}

/// A project, as the coordinator knows it.
#[derive(Clone, Copy)]
pub(crate) struct Project {
    pub id: Id,
    pub created: WallTime,
    pub properties: ProjectProperties,
    /// The project with this id is about to get this name ([`crate::project_rename`]).
    pub stands_in: bool,
}

/// All projects of a pool by name.
pub(crate) type Projects = BTreeMap<String, Project>;

impl<T: Copy> Setting<T> {
    fn applied_to(self, value: &mut Option<T>) {
        match self {
            Setting::Keep => {}
            Setting::Own(new) => *value = Some(new),
            Setting::Inherit => *value = None,
        }
    }
}

impl Setting<u64> {
    /// Zero is none.
    fn replaces(self, value: &mut u64) {
        if let Some(new) = self.said() {
            *value = new.unwrap_or(0);
        }
    }
}

impl ProjectProperties {
    fn changed(mut self, change: ProjectChange) -> ProjectProperties {
        change.sync.applied_to(&mut self.sync);
        change.compression.applied_to(&mut self.compression);
        change.schedule.applied_to(&mut self.schedule);
        change.level.applied_to(&mut self.level);
        change.block_size.applied_to(&mut self.block_size);
        change.format.applied_to(&mut self.format);
        change.quota.applied_to(&mut self.quota);
        change.max_iops.replaces(&mut self.ceiling.iops);
        change.ceiling_bytes.replaces(&mut self.ceiling.bytes);
        self
    }

    fn of(record: &DatasetRecord) -> ProjectProperties {
        let inherits = record.inherits;
        ProjectProperties {
            sync: (!inherits.has(Inherits::SYNC)).then_some(record.sync),
            compression: (!inherits.has(Inherits::COMPRESSION)).then_some(record.compression),
            schedule: (!inherits.has(Inherits::SCHEDULE)).then_some(record.schedule),
            level: Some(record.level).filter(|level| level.0 > 0),
            block_size: (!inherits.has(Inherits::BLOCK_SIZE)).then_some(1 << record.block_shift),
            format: (!inherits.has(Inherits::FORMAT)).then_some(record.format),
            quota: (record.quota > 0).then_some(record.quota),
            ceiling: record.ceiling,
        }
    }

    pub(crate) fn put_into(&self, record: DatasetRecord) -> DatasetRecord {
        let inherits = Inherits::default()
            .unless(self.sync, Inherits::SYNC)
            .unless(self.compression, Inherits::COMPRESSION)
            .unless(self.schedule, Inherits::SCHEDULE)
            .unless(self.block_size, Inherits::BLOCK_SIZE)
            .unless(self.format, Inherits::FORMAT);
        DatasetRecord {
            sync: self.sync.unwrap_or_default(),
            compression: self.compression.unwrap_or_default(),
            schedule: self.schedule.unwrap_or_default(),
            level: self.level.unwrap_or(Id(0)),
            block_shift: self.block_size.map_or(SHIFT_UNSAID, |bytes| bytes.trailing_zeros() as u8),
            format: self.format.unwrap_or_default(),
            quota: self.quota.unwrap_or(0),
            ceiling: self.ceiling,
            inherits,
            ..record
        }
    }
}

impl Shard {
    /// What is on this shard of projects.
    pub fn own_projects(&self) -> Projects {
        let datasets = self.datasets.borrow();
        let records = datasets.values().map(|dataset| dataset.record.borrow());
        let is_project = |record: &std::cell::Ref<DatasetRecord>| {
            record.kind == DatasetKind::Project && record.state == DatasetState::Live
        };
        let told = |record: std::cell::Ref<DatasetRecord>| {
            let stands_in = record.origin != Id(0) && self.project(record.origin).is_some();
            let id = if stands_in { record.origin } else { record.id };
            // A stand-in's record may be older than what the project says now.
            let said = self.project(id).map(|said| ProjectProperties::of(&said.record.borrow()));
            let (created, properties) = (record.created, said.unwrap_or_default());
            (record.name.clone(), Project { id, created, properties, stands_in })
        };
        records.filter(is_project).map(told).collect()
    }

    /// Has all volumes inherit from these.
    pub fn set_projects(&self, projects: BTreeMap<String, Said>) {
        *self.projects.borrow_mut() = projects;
        self.datasets.borrow().values().for_each(|dataset| self.note_project(dataset));
    }

    /// Gives a dataset what its project says, which follows from its name.
    pub fn note_project(&self, dataset: &Dataset) {
        let (record, projects) = (dataset.record.borrow(), self.projects.borrow());
        let project = project_of(&record.name).and_then(|project| projects.get(project));
        let Said { properties, is_full, ceiling, .. } = project.cloned().unwrap_or_default();
        dataset.project.set(properties);
        dataset.is_full.set(is_full);
        *dataset.ceiling.borrow_mut() = ceiling;
        drop(record);
        self.note_level(dataset);
    }

    /// The project that a dataset belongs to, and where its properties come from.
    pub fn project_info(&self, dataset: &Dataset) -> (Option<(String, Id)>, Sources) {
        let (record, project) = (dataset.record.borrow(), dataset.project.get());
        let source = |property: Inherits, is_said: bool| match (record.inherits.has(property), is_said) {
            (false, _) => Source::Own,
            (true, true) => Source::Project,
            (true, false) => Source::Default,
        };
        let belongs = project_of(&record.name)
            .and_then(|name| Some((name.to_string(), self.projects.borrow().get(name)?.id)));
        let sources = Sources {
            sync: source(Inherits::SYNC, project.sync.is_some()),
            compression: source(Inherits::COMPRESSION, project.compression.is_some()),
            schedule: source(Inherits::SCHEDULE, project.schedule.is_some()),
            level: source(Inherits::LEVEL, project.level.is_some()),
            hosts: source(Inherits::HOSTS, belongs.is_some()),
        };
        (belongs, sources)
    }

    fn parts_of(&self, project: &str) -> usize {
        let datasets = self.datasets.borrow();
        let is_its = |dataset: &&Rc<Dataset>| {
            let record = dataset.record.borrow();
            let is_part = matches!(
                record.state,
                DatasetState::Receiving | DatasetState::Arriving | DatasetState::Moved
            );
            is_part && project_of(&record.name) == Some(project)
        };
        datasets.values().filter(is_its).count()
    }

    async fn put_project(self: &Rc<Self>, id: Id, properties: ProjectProperties) -> Result<(), IoError> {
        let dataset = self.project(id).ok_or(IoError::Gone)?;
        let record = properties.put_into(dataset.record.borrow().clone());
        self.put_all(vec![record]).await
    }

    pub(crate) fn project(&self, id: Id) -> Option<Rc<Dataset>> {
        let datasets = self.datasets.borrow();
        let mut projects =
            datasets.values().filter(|dataset| dataset.record.borrow().kind == DatasetKind::Project);
        projects.find(|dataset| dataset.id() == id).cloned()
    }
}

fn check_properties(object: &str, properties: &ProjectProperties) -> Result<(), Error> {
    if let Some(quota) = properties.quota
        && quota < QUOTA_MIN
    {
        let message = format!("a quota of {quota} bytes is not possible");
        return Err(
            Error::new(ErrorKind::Invalid("quota"), object, message).remedy("Give 1M or more, or no quota")
        );
    }
    properties.block_size.map_or(Ok(()), |bytes| check_block_size(object, bytes))
}

impl Control {
    /// Refuses a name that a new volume cannot have, whether or not another volume has it.
    pub fn check_new_name(&self, name: &str) -> Result<(), Error> {
        let object = self.object(name);
        check_name(&object, name, "name")?;
        if self.projects.borrow().contains_key(name) {
            let error = Error::new(ErrorKind::Conflict, object, "a project has this name");
            return Err(error.remedy(format!("Choose another name, or name it {}/…", self.object(name))));
        }
        // It would be taken for the volume with this UUID.
        if name.parse::<Id>().is_ok() {
            let message = "a volume's name cannot be a UUID";
            return Err(Error::new(ErrorKind::Invalid("name"), object, message).remedy("Choose another name"));
        }
        let Some(project) = project_of(name) else { return Ok(()) };
        if name[project.len() + 1..].contains('/') {
            let message = "a project cannot contain another project";
            return Err(Error::new(ErrorKind::Invalid("name"), object, message)
                .remedy("Name the volume POOL/NAME or POOL/PROJECT/NAME"));
        }
        let known = self.projects.borrow().get(project).copied();
        if let Some(known) = known {
            self.refuse_while_renaming(project, known.id)?;
        } else {
            let full = self.object(project);
            let message = format!("there is no project {full}");
            return Err(Error::new(ErrorKind::NotFound, object, message)
                .remedy(format!("Create it with: forebay project create {full}")));
        }
        Ok(())
    }

    /// Refuses a name that a new project cannot have.
    pub(crate) fn check_project_name(&self, name: &str) -> Result<(), Error> {
        let object = self.object(name);
        check_name(&object, name, "name")?;
        if name.len() > NAME_MAX || name.contains('/') {
            let message = format!("the name '{name}' cannot be used for a project");
            return Err(Error::new(ErrorKind::Invalid("name"), object, message)
                .remedy(format!("Use 1 to {NAME_MAX} letters, digits and . _ -")));
        }
        let is_taken = |what: &str| {
            Err(Error::new(ErrorKind::Conflict, object.clone(), format!("a {what} of this name exists"))
                .remedy("Choose another name"))
        };
        if self.projects.borrow().contains_key(name) {
            return is_taken("project");
        }
        if self.names.borrow().contains_key(name) {
            return is_taken("volume");
        }
        Ok(())
    }

    /// The same, where that makes one more.
    fn check_new_project(&self, name: &str) -> Result<(), Error> {
        self.check_project_name(name)?;
        if self.projects.borrow().len() < PROJECTS_MAX {
            return Ok(());
        }
        let message = format!("the pool has {PROJECTS_MAX} projects, which is the maximum");
        Err(Error::new(ErrorKind::NoSpace, self.object(name), message).remedy("Delete a project first"))
    }

    /// A project by name or id.
    fn find_project(&self, name: &str) -> Option<(String, Project)> {
        let projects = self.projects.borrow();
        let id: Option<Id> = projects.get(name).map(|project| project.id).or_else(|| name.parse().ok());
        let found = projects.iter().find(|(_, project)| !project.stands_in && Some(project.id) == id);
        found.map(|(name, project)| (name.clone(), *project))
    }

    pub(crate) fn existing_project(&self, name: &str) -> Result<(String, Project), Error> {
        self.find_project(name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, self.object(name), "no such project")
                .remedy("List them with: forebay project list")
        })
    }

    async fn project_create(&self, name: &str, properties: ProjectProperties) -> Result<ProjectInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        self.check_catalog(&self.object(name), SHARD, 1).await?;
        self.check_new_project(name)?;
        check_properties(&self.object(name), &properties)?;
        let id = Id::from_random(self.rt.random(), self.rt.random());
        let created = self.rt.wall();
        // No volume gets the name meanwhile, and none gets into the project before that is durable.
        self.names.borrow_mut().insert(name.to_string(), Place { shard: SHARD, id });
        let fresh = DatasetRecord::new(DatasetKind::Project, id, SHIFT_UNSAID, 0, name.to_string());
        let record = properties.put_into(DatasetRecord { created, ..fresh });
        let create =
            move |shard: Rc<Shard>| async move { shard.create_dataset(record, None).await.map(drop) };
        let done = self.on_shard(SHARD, create).await;
        self.names.borrow_mut().remove(name);
        done?.map_err(|error| self.io_error(name, error))?;
        self.projects
            .borrow_mut()
            .insert(name.to_string(), Project { id, created, properties, stands_in: false });
        self.tell_projects().await?;
        self.project_info(name).await
    }

    async fn project_set(self: &Rc<Self>, name: &str, change: ProjectChange) -> Result<ProjectInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let (name, project) = self.existing_project(name)?;
        let properties = project.properties.changed(change);
        check_properties(&self.object(&name), &properties)?;
        let put = move |shard: Rc<Shard>| async move { shard.put_project(project.id, properties).await };
        self.on_shard(SHARD, put).await?.map_err(|error| self.io_error(&name, error))?;
        {
            let mut projects = self.projects.borrow_mut();
            let same = projects.values_mut().filter(|known| known.id == project.id);
            same.for_each(|known| known.properties = properties);
        }
        self.tell_projects().await?;
        if change.sync != Setting::Keep && !active(Bug::FlushTrustsPolicy) {
            self.flush_all().await?;
        }
        self.look_at_promises().await;
        self.enforce_quotas().await?;
        self.project_info(&name).await
    }

    /// Makes everything that was acknowledged so far durable, on every shard.
    async fn flush_all(&self) -> Result<(), Error> {
        let settling = (0..self.shard_count())
            .map(|index| self.on_shard(index, |shard| async move { shard.flush_queued().await }));
        for settled in join_all(settling).await {
            settled?.map_err(|error| self.io_error(self.name(), error))?;
        }
        Ok(())
    }

    async fn project_delete(&self, name: &str) -> Result<(), Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let (name, project) = self.existing_project(name)?;
        self.refuse_while_renaming(&name, project.id)?;
        // No volume gets into it from here on, nor gets its name.
        self.projects.borrow_mut().remove(&name);
        self.names.borrow_mut().insert(name.clone(), Place { shard: SHARD, id: project.id });
        let delete = move |shard: Rc<Shard>| async move {
            let dataset = shard.project(project.id).ok_or(IoError::Gone)?;
            let record = dataset.record.borrow().clone();
            shard.put_all(vec![DatasetRecord { state: DatasetState::Deleting, ..record }]).await
        };
        let done = match self.refuse_if_used(&name).await {
            Ok(()) => {
                let deleted = self.on_shard(SHARD, delete).await;
                deleted.and_then(|result| result.map_err(|error| self.io_error(&name, error)))
            }
            used => used,
        };
        self.names.borrow_mut().remove(&name);
        if let Err(error) = done {
            self.projects.borrow_mut().insert(name, project);
            return Err(error);
        }
        self.tell_projects().await
    }

    /// Refuses to delete a project with volumes.
    async fn refuse_if_used(&self, project: &str) -> Result<(), Error> {
        let refused = |message: String, remedy: &str| {
            Err(Error::new(ErrorKind::Conflict, self.object(project), message).remedy(remedy))
        };
        let volumes = self.names.borrow().keys().filter(|name| project_of(name) == Some(project)).count();
        if volumes > 0 {
            return refused(format!("the project has {volumes} volumes"), "Delete them first");
        }
        let trashed = self.trash.count_of(project);
        if trashed > 0 {
            let remedy = "Purge them with 'forebay volume purge VOLUME', or restore them under other names";
            return refused(format!("{trashed} volumes of the project are in the trash"), remedy);
        }
        let parts = self.parts_of(project).await?;
        if parts > 0 {
            let remedy = "Wait until that is complete, or abandon it with 'forebay snapshot abandon VOLUME' or 'forebay volume abandon VOLUME'";
            return refused(format!("{parts} volumes of the project are being received or moved"), remedy);
        }
        Ok(())
    }

    /// How many volumes of a project are being received, or are halves of moves.
    pub(crate) async fn parts_of(&self, project: &str) -> Result<usize, Error> {
        let mut all = 0;
        for index in 0..self.shard_count() {
            let project = project.to_string();
            let count = move |shard: Rc<Shard>| async move { shard.parts_of(&project) };
            all += self.on_shard(index, count).await?;
        }
        Ok(all)
    }

    pub(crate) async fn project_info(&self, name: &str) -> Result<ProjectInfo, Error> {
        let (name, project) = self.existing_project(name)?;
        let mut found = self.describe_projects([(name, project)].into()).await?;
        Ok(found.pop().expect("one was asked for"))
    }

    /// These, with what their volumes have.
    async fn describe_projects(&self, projects: Projects) -> Result<Vec<ProjectInfo>, Error> {
        let empty = |(name, project): (String, Project)| {
            let info = ProjectInfo {
                id: project.id,
                pool: self.name().into(),
                name: name.clone(),
                properties: project.properties,
                volumes: 0,
                trashed: self.trash.count_of(&name),
                size: 0,
                mapped: 0,
                used: 0,
                created: project.created,
            };
            (name, info)
        };
        let charges = self.charges(projects.keys().cloned()).await?;
        let mut all: BTreeMap<String, ProjectInfo> = projects.into_iter().map(empty).collect();
        all.iter_mut().for_each(|(name, info)| info.used = charges[name].bytes());
        for volume in self.volume_list().await? {
            if let Some(info) = project_of(&volume.name).and_then(|project| all.get_mut(project)) {
                info.volumes += 1;
                info.size += volume.size;
                info.mapped += volume.mapped;
            }
        }
        Ok(all.into_values().collect())
    }
}

impl Engine {
    /// All projects, of one pool or of all.
    #[boxed]
    pub async fn projects(&self, pool: Option<&str>) -> Result<Vec<ProjectInfo>, Error> {
        let pool = pool.map(str::to_string);
        let gather = |rt: Rt| async move {
            let mut all = Vec::new();
            for control in controls_of(&rt, pool.as_deref())? {
                let mut projects = control.projects.borrow().clone();
                projects.retain(|_, project| !project.stands_in);
                all.extend(control.describe_projects(projects).await?);
            }
            Ok(all)
        };
        self.on_core_0(gather).await
    }

    /// Runs `work` with the coordinator of the pool of `POOL/PROJECT`, or of the project with that UUID.
    async fn on_project<T, F, W>(&self, project: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Control>, String) -> W + Send + 'static,
        W: Future<Output = Result<T, Error>> + 'static,
    {
        let project = project.to_string();
        let found = move |rt: Rt| async move {
            if let Some((pool, name)) = project.split_once('/') {
                return work(find_pool(&rt, pool)?, name.to_string()).await;
            }
            let has_it = |control: &Rc<Control>| control.find_project(&project).is_some();
            let owner = registry(&rt).controls().into_iter().find(has_it).ok_or_else(|| {
                Error::new(ErrorKind::NotFound, &*project, "no imported pool has a project with this id")
                    .remedy("Name it POOL/PROJECT or by its UUID; list projects with: forebay project list")
            })?;
            work(owner, project.clone()).await
        };
        self.on_core_0(found).await
    }

    /// The same for what changes something.
    pub(crate) async fn on_writable_project<T, F, W>(&self, project: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Control>, String) -> W + Send + 'static,
        W: Future<Output = Result<T, Error>> + 'static,
    {
        self.on_project(project, |control, name| async move {
            control.writable()?;
            work(control, name).await
        })
        .await
    }

    /// A project by `POOL/PROJECT` or UUID.
    #[boxed]
    pub async fn project(&self, name: &str) -> Result<ProjectInfo, Error> {
        self.on_project(name, |control, name| async move { control.project_info(&name).await }).await
    }

    /// Makes a project, `POOL/PROJECT`.
    #[boxed]
    pub async fn project_create(
        &self,
        name: &str,
        properties: ProjectProperties,
    ) -> Result<ProjectInfo, Error> {
        self.on_writable_project(name, move |control, name| async move {
            control.project_create(&name, properties).await
        })
        .await
    }

    /// Changes what a project's volumes inherit; when it is done, all of them do.
    #[boxed]
    pub async fn project_set(&self, name: &str, change: ProjectChange) -> Result<ProjectInfo, Error> {
        self.on_writable_project(name, move |control, name| async move {
            control.project_set(&name, change).await
        })
        .await
    }

    /// Deletes a project without volumes.
    #[boxed]
    pub async fn project_delete(&self, name: &str) -> Result<(), Error> {
        self.on_writable_project(name, |control, name| async move { control.project_delete(&name).await })
            .await
    }

    /// What [`Engine::project_delete`] would refuse, without deleting anything.
    #[boxed]
    pub async fn project_delete_check(&self, name: &str) -> Result<(), Error> {
        self.on_writable_project(name, |control, name| async move {
            let (name, _) = control.existing_project(&name)?;
            control.refuse_if_used(&name).await
        })
        .await
    }

    /// What [`Engine::project_create`] would refuse, without making anything.
    #[boxed]
    pub async fn project_create_check(&self, name: &str, properties: ProjectProperties) -> Result<(), Error> {
        self.on_writable_project(name, move |control, name| async move {
            control.check_new_project(&name)?;
            check_properties(&control.object(&name), &properties)
        })
        .await
    }

    /// Refuses a volume's name (within the pool) as its creation would, whether or not another volume has it.
    #[boxed]
    pub async fn volume_name_check(&self, pool: &str, name: &str) -> Result<(), Error> {
        let name = name.to_string();
        self.on_pool(pool, |control| async move { control.check_new_name(&name) }).await
    }
}
