//! A new name for a project, and so for all its volumes.
//!
//! A volume belongs to a project by its name, and volumes are on all shards: no entry of one log has them all. So the new name is first a project of its own, the *stand-in*, which
//! says in its record whose it is. Volumes go to it one by one; then, in one entry, the project takes the name and the stand-in goes. An import after a
//! crash in between goes on before it ends. All the time both names are the same project: what it says counts under both, its quota holds for both
//! together, and no volume gets a name in either.

use crate::Engine;
use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::names::Place;
use crate::projects::{Project, SHARD, SHIFT_UNSAID, project_of};
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use crate::reserve::Attempt;
use crate::shard::Shard;
use crate::spec::{ProjectInfo, Severity};
use crate::volume::LocalVolume;
use crate::volumes::check_name;
use async_recursion::async_recursion as boxed;
use forebay_base::Id;
use forebay_base::planted::{Bug, active};
use futures_util::stream::{self, StreamExt};
use std::rc::Rc;

/// Volumes that are renamed at a time.
const AT_ONCE: usize = 64;

impl Shard {
    /// The volumes of a project, those in the trash too.
    fn volumes_of_project(&self, project: &str) -> Vec<Rc<Dataset>> {
        let datasets = self.datasets.borrow();
        let is_its = |dataset: &&Rc<Dataset>| {
            let record = dataset.record.borrow();
            let is_kept = matches!(record.state, DatasetState::Live | DatasetState::Trashed);
            record.kind == DatasetKind::Volume && is_kept && project_of(&record.name) == Some(project)
        };
        datasets.values().filter(is_its).cloned().collect()
    }

    /// Gives all volumes of a project their names in another.
    async fn bring_volumes(self: Rc<Self>, from: String, to: String) -> Result<(), IoError> {
        let (from, to) = (from.as_str(), to.as_str());
        let renaming = self.volumes_of_project(from).into_iter().map(async |dataset| {
            let record = dataset.record.borrow().clone();
            let name = record.name.replacen(from, to, 1);
            match record.state {
                DatasetState::Trashed => self.put_all(vec![DatasetRecord { name, ..record }]).await,
                _ => LocalVolume::of(self.clone(), dataset).put(|record| record.name = name).await,
            }
        });
        let done: Vec<Result<(), IoError>> = stream::iter(renaming).buffer_unordered(AT_ONCE).collect().await;
        done.into_iter().collect()
    }

    fn stand_in(&self, name: &str) -> Option<DatasetRecord> {
        let datasets = self.datasets.borrow();
        let mut records = datasets.values().map(|dataset| dataset.record.borrow());
        let found = records.find(|record| {
            let is_live = record.kind == DatasetKind::Project && record.state == DatasetState::Live;
            is_live && record.origin != Id(0) && record.name == name
        });
        found.map(|record| record.clone())
    }

    /// A project takes the name of its stand-in.
    async fn take_name(self: Rc<Self>, project: Id, name: String) -> Result<(), IoError> {
        let record = self.project(project).ok_or(IoError::Gone)?.record.borrow().clone();
        let stand_in = self.stand_in(&name).ok_or(IoError::Gone)?;
        let gone = DatasetRecord { state: DatasetState::Deleting, ..stand_in };
        self.put_all(vec![DatasetRecord { name, ..record }, gone]).await
    }
}

impl Control {
    async fn project_rename(
        self: &Rc<Self>,
        name: &str,
        new: &str,
        attempt: Attempt,
    ) -> Result<ProjectInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let (name, project) = self.existing_project(name)?;
        let is_begun = self.stand_in_of(project.id).as_deref() == Some(new);
        if !is_begun {
            self.refuse_while_renaming(&name, project.id)?;
            if name == new {
                return self.project_info(&name).await;
            }
            self.check_project_name(new)?;
            self.check_catalog(&self.object(new), SHARD, 1).await?;
        }
        if attempt == Attempt::Trial {
            self.check_volumes(&name, new).await?;
            return self.project_info(&name).await;
        }
        if !is_begun {
            // From here on no volume gets a name in either.
            let stand_in = Project { stands_in: true, ..project };
            self.projects.borrow_mut().insert(new.to_string(), stand_in);
            let added = match self.check_volumes(&name, new).await {
                Ok(()) => self.add_stand_in(new, &project).await,
                refused => refused,
            };
            if added.is_err() {
                self.projects.borrow_mut().remove(new);
            }
            added?;
        }
        self.end_rename(&name, new, project).await?;
        self.look_at_promises().await;
        self.enforce_quotas().await?;
        self.project_info(new).await
    }

    /// The name that a project is about to have, if it was to get one and did not.
    fn stand_in_of(&self, id: Id) -> Option<String> {
        let projects = self.projects.borrow();
        let found = projects.iter().find(|(_, project)| project.stands_in && project.id == id);
        found.map(|(name, _)| name.clone())
    }

    /// Refuses a change of a project that has parts of its volumes under another name.
    pub fn refuse_while_renaming(&self, name: &str, id: Id) -> Result<(), Error> {
        let Some(new) = self.stand_in_of(id) else { return Ok(()) };
        let (object, new) = (self.object(name), self.object(&new));
        let message = format!("the project is being renamed to {new}, and some of its volumes are not yet");
        Err(Error::new(ErrorKind::Conflict, &object, message)
            .remedy(format!("Complete it with: forebay project rename {object} {new}")))
    }

    /// Refuses a new name that some volume of the project cannot follow.
    async fn check_volumes(&self, project: &str, new: &str) -> Result<(), Error> {
        let coming = |volumes: usize| {
            let message = format!("{volumes} volumes of the project are being created, received or moved");
            let remedy = "Wait until that is complete, or abandon it with 'forebay snapshot abandon VOLUME' or 'forebay volume abandon VOLUME'";
            Error::new(ErrorKind::Conflict, self.object(project), message).remedy(remedy)
        };
        let parts = self.parts_of(project).await?;
        if parts > 0 {
            return Err(coming(parts));
        }
        // A name that no volume has yet is taken for one to come.
        let there = self.kept_volumes([project, new]).await?;
        let is_there = |name: &String| there.iter().any(|(_, known, trashed)| !trashed && known == name);
        let names = self.names_in(project);
        let missing = names.iter().filter(|name| !is_there(name)).count();
        if missing > 0 {
            return Err(coming(missing));
        }
        for name in &names {
            self.refuse_while_moving(name)?;
            if self.is_receiving(name) {
                return Err(self.reception_busy(name));
            }
        }
        for (_, name, _) in there.iter().filter(|(_, name, _)| project_of(name) == Some(project)) {
            check_name(&self.object(name), &name.replacen(project, new, 1), "name")?;
        }
        Ok(())
    }

    fn names_in(&self, project: &str) -> Vec<String> {
        let names = self.names.borrow();
        let its = names.range(format!("{project}/")..).map(|(name, _)| name);
        its.take_while(|name| project_of(name) == Some(project)).cloned().collect()
    }

    async fn add_stand_in(&self, name: &str, project: &Project) -> Result<(), Error> {
        let id = Id::from_random(self.rt.random(), self.rt.random());
        let fresh = DatasetRecord::new(DatasetKind::Project, id, SHIFT_UNSAID, 0, name.to_string());
        let record = DatasetRecord { created: project.created, origin: project.id, ..fresh };
        let record = project.properties.put_into(record);
        let create =
            move |shard: Rc<Shard>| async move { shard.create_dataset(record, None).await.map(drop) };
        self.on_shard(SHARD, create).await?.map_err(|error| self.io_error(name, error))?;
        self.tell_projects().await
    }

    /// Brings all volumes of a project to its stand-in, whose name it takes then.
    async fn end_rename(&self, name: &str, new: &str, project: Project) -> Result<(), Error> {
        // New names are taken before volumes have them, and old ones as long as one may.
        let before = self.names_in(name);
        for old in &before {
            let mut names = self.names.borrow_mut();
            let place = names[old];
            names.insert(old.replacen(name, new, 1), place);
        }
        let mut done = Ok(());
        for index in 0..self.shard_count() {
            let (from, to) = (name.to_string(), new.to_string());
            let bring = self.on_shard(index, move |shard| shard.bring_volumes(from, to)).await;
            done = done.and(bring.and_then(|done| done.map_err(|error| self.io_error(name, error))));
        }
        self.note_names(name, new).await?;
        done?;
        let (id, own) = (project.id, new.to_string());
        let take = self.on_shard(SHARD, move |shard| shard.take_name(id, own)).await;
        take?.map_err(|error| self.io_error(name, error))?;
        self.projects.borrow_mut().remove(name);
        self.projects.borrow_mut().insert(new.to_string(), Project { stands_in: false, ..project });
        self.tell_projects().await
    }

    /// The volumes of projects, with their names now, and which are in the trash.
    async fn kept_volumes(&self, projects: [&str; 2]) -> Result<Vec<(Place, String, bool)>, Error> {
        let mut found = Vec::new();
        for index in 0..self.shard_count() {
            let of = projects.map(str::to_string);
            let list = move |shard: Rc<Shard>| async move {
                let volumes = of.iter().flat_map(|project| shard.volumes_of_project(project));
                let told = |dataset: Rc<Dataset>| {
                    let record = dataset.record.borrow();
                    let place = Place { shard: index, id: record.id };
                    (place, record.name.clone(), record.state == DatasetState::Trashed)
                };
                volumes.map(told).collect::<Vec<_>>()
            };
            found.extend(self.on_shard(index, list).await?);
        }
        Ok(found)
    }

    /// Notes which volume of two projects has which name now.
    async fn note_names(&self, one: &str, other: &str) -> Result<(), Error> {
        let found = self.kept_volumes([one, other]).await?;
        let stale: Vec<String> =
            [one, other].into_iter().flat_map(|project| self.names_in(project)).collect();
        let mut names = self.names.borrow_mut();
        stale.iter().for_each(|name| names.remove(name));
        for (place, name, trashed) in found {
            match trashed {
                true => self.trash.rename(place.id, name),
                false => names.insert(name, place),
            }
        }
        Ok(())
    }

    /// Ends what a crash left half done. What cannot be done now is told, and can be asked for again.
    pub async fn end_renames(&self) {
        if active(Bug::RenameStaysHalf) {
            return;
        }
        let _turn = self.lineage.lock(0, 0).await;
        let begun: Vec<(String, Id)> = {
            let projects = self.projects.borrow();
            let begun = projects.iter().filter(|(_, project)| project.stands_in);
            begun.map(|(name, project)| (name.clone(), project.id)).collect()
        };
        for (new, id) in begun {
            let Ok((name, project)) = self.existing_project(&id.to_string()) else { continue };
            if let Err(error) = self.end_rename(&name, &new, project).await {
                let message = format!("the project could not be renamed to {new} completely: {error}");
                self.event(Severity::Warning, "project.rename_incomplete", &self.object(&name), message);
            }
        }
    }
}

impl Engine {
    /// Gives a project another name (within the pool), and its volumes with it; their clients keep them.
    #[boxed]
    pub async fn project_rename(&self, project: &str, new: &str) -> Result<ProjectInfo, Error> {
        self.rename_project(project, new, Attempt::Real).await
    }

    /// What [`Engine::project_rename`] would refuse, without doing it.
    #[boxed]
    pub async fn project_rename_check(&self, project: &str, new: &str) -> Result<(), Error> {
        self.rename_project(project, new, Attempt::Trial).await.map(drop)
    }

    async fn rename_project(&self, project: &str, new: &str, attempt: Attempt) -> Result<ProjectInfo, Error> {
        let new = new.to_string();
        self.on_writable_project(project, move |control, name| async move {
            control.project_rename(&name, &new, attempt).await
        })
        .await
    }
}
