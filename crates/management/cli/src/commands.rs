//! What each command does: turns arguments into calls, and answers into text or JSON.

use crate::arguments::{Pool, Task, Token, Volume, Wait};
use crate::client::{Answer, Call, Client};
use crate::failure::{Exit, Failure, printable};
use crate::listing::{self, Shown};
use crate::size::{Resize, Sector};
use crate::{hosts, progress, projects, show};
use forebay_api as api;
use forebay_api::{DiskPaths, MappingCreate, Operation};
use forebay_api::{PoolAdd, PoolCreate, PoolScrub, ScrubAction, TokenCreate, VolumeCreate, VolumeSet};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr, stdin};
use std::os::unix::fs::FileTypeExt;

pub struct Session {
    pub client: Client,
    pub json: bool,
}

pub type Outcome = Result<Exit, Failure>;

impl Session {
    pub fn list<T: Serialize>(&self, items: &[T], show: impl FnOnce(&[T]) -> Shown) -> Outcome {
        match self.json {
            true => show::json(&json!({ "items": &items[..items.len().min(listing::limit())] })),
            false => show(items)?,
        }
        Ok(Exit::Ok)
    }

    pub fn one<T: Serialize>(&self, item: &T, show: impl FnOnce(&T)) -> Outcome {
        match self.json {
            true => show::json(item),
            false => show(item),
        }
        Ok(Exit::Ok)
    }

    /// What a change has made of an item: a sentence, or the item for programs.
    pub fn changed<T: Serialize>(&self, item: &T, text: String) -> Outcome {
        self.one(item, |_| self.say(text))
    }

    /// One item, as its list shows it.
    pub fn row<T: Serialize>(&self, item: &T, show: impl FnOnce(&[T]) -> Shown) -> Outcome {
        match self.json {
            true => show::json(item),
            false => show(std::slice::from_ref(item))?,
        }
        Ok(Exit::Ok)
    }

    pub fn say(&self, text: impl AsRef<str>) {
        if !self.json {
            println!("{}", printable(text.as_ref()));
        }
    }

    pub fn plan(&self, answer: &Answer) -> Outcome {
        self.one(&answer.parse::<api::Plan>()?, show::plan)
    }

    /// Paths as the daemon will see them.
    pub fn paths(&self, paths: &[String]) -> Result<Vec<String>, Failure> {
        let absolute = |path: &String| {
            if !self.client.target().is_local() {
                return Ok(path.clone());
            }
            let absolute =
                std::path::absolute(path).ok().and_then(|path| path.into_os_string().into_string().ok());
            absolute.ok_or_else(|| Failure::new(Exit::Usage, "it is not a path", "").object(path.as_str()))
        };
        paths.iter().map(absolute).collect()
    }

    /// Starts long work and, unless told otherwise, waits for it.
    pub fn task(
        &self,
        call: Call<'_>,
        wait: Wait,
        done: impl FnOnce(&api::Task) -> String,
    ) -> Result<api::Task, Failure> {
        let started: api::Task = self.client.get(call)?;
        if wait.no_wait {
            self.say(format!(
                "{} {} has started. Follow it with: forebay task watch {}",
                started.name, started.object, started.id
            ));
            if self.json {
                show::json(&started);
            }
            return Ok(started);
        }
        let task = progress::watch(&self.client, &started.id)?;
        self.say(done(&task));
        if self.json {
            show::json(&task);
        }
        Ok(task)
    }

    /// What of these pools is lost.
    fn damage(&self, pools: &[api::Pool]) -> Result<Exit, Failure> {
        let mut ranges: Vec<api::DamagedRange> = Vec::new();
        for pool in pools.iter().filter(|pool| pool.status.damage.places > 0) {
            ranges.extend(self.client.all_of(Operation::DamageList, &pool.name)?);
        }
        let places = pools.iter().map(|pool| pool.status.damage.places).sum();
        self.list(&ranges, |ranges| show::damaged(ranges, places))?;
        Ok(health(pools))
    }

    /// Does it for each, also after one has failed: the first failure is the command's, and others are reported.
    fn for_each(&self, names: &[String], each: impl Fn(&str) -> Outcome) -> Outcome {
        let mut ended = Ok(Exit::Ok);
        for name in names {
            match (each(name), &ended) {
                (Err(failure), Ok(_)) => ended = Err(failure),
                (Err(failure), Err(_)) => failure.report(self.json),
                (Ok(_), _) => {}
            }
        }
        ended
    }

    /// Asks before data or redundancy is lost by `call`: `what` is a sentence. Without a terminal only `--yes` is an answer. What would be refused in any case is
    /// refused before the question.
    pub fn confirm(&self, yes: bool, what: &str, name: &str, call: &Call<'_>) -> Result<(), Failure> {
        if yes {
            return Ok(());
        }
        self.client.call(call.clone().dry_run(true))?;
        if !stdin().is_terminal() || !stderr().is_terminal() {
            let detail = format!("{what}. Refused: this needs confirmation, and there is no terminal");
            return Err(Failure::new(Exit::Unsafe, detail, "Add --yes to confirm.").object(name));
        }
        eprint!("{what}. Type {} to confirm: ", printable(name));
        // The question is on the terminal that was just checked.
        let _ = stderr().flush();
        let mut line = String::new();
        let read = stdin().read_line(&mut line);
        match read {
            Ok(_) if line.trim() == name => Ok(()),
            _ => Err(Failure::new(Exit::Unsafe, "not confirmed; nothing was changed", "").object(name)),
        }
    }

    /// Sectors by path: those of all `disks`, and of some another.
    fn sectors(&self, given: Vec<Sector>, disks: Vec<String>) -> Result<BTreeMap<String, u32>, Failure> {
        let (each, all): (Vec<Sector>, Vec<Sector>) = given.into_iter().partition(|one| one.disk.is_some());
        let all = all.last().map(|sector| sector.bytes);
        let all = disks.into_iter().filter_map(|disk| Some((disk, all?)));
        let each = each.into_iter().filter_map(|sector| Some((sector.disk?, sector.bytes)));
        let (disks, sectors): (Vec<String>, Vec<u32>) = all.chain(each).unzip();
        Ok(self.paths(&disks)?.into_iter().zip(sectors).collect())
    }

    pub fn pool(&self, command: Pool) -> Outcome {
        match command {
            Pool::Create {
                name,
                layout,
                disks,
                log,
                spare,
                cache,
                enclosure,
                sector,
                force,
                no_calibrate,
                dry_run,
                wait,
            } => {
                let (named, names): (Vec<String>, Vec<String>) = enclosure.into_iter().unzip();
                let body = PoolCreate {
                    name,
                    layout,
                    disks: self.paths(&disks)?,
                    log_disks: self.paths(&log)?,
                    spare_disks: self.paths(&spare)?,
                    cache_disks: self.paths(&cache)?,
                    enclosures: self.paths(&named)?.into_iter().zip(names).collect(),
                    sectors: self.sectors(sector, [&disks[..], &log, &spare, &cache].concat())?,
                    shards: None,
                    log_bytes: None,
                    force,
                    calibrate: !no_calibrate,
                };
                let call = Call::new(Operation::PoolCreate).body(&body).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                let task = self.task(call, wait, |task| format!("Pool {} is created.", task.object))?;
                warn_of_spares(&task);
                Ok(Exit::Ok)
            }
            Pool::List => self.list(&self.client.all(Operation::PoolList, &[])?, show::pools),
            Pool::Status { name, errors } => {
                let pools: Vec<api::Pool> = match name {
                    Some(name) => vec![self.client.get(Call::of(Operation::PoolShow, &name))?],
                    None => self.client.all(Operation::PoolList, &[])?,
                };
                if errors {
                    return self.damage(&pools);
                }
                self.list(&pools, |pools| {
                    if pools.is_empty() {
                        return show::pools(pools);
                    }
                    for (index, pool) in pools.iter().enumerate() {
                        if index > 0 {
                            println!();
                        }
                        show::pool(pool);
                    }
                    Ok(())
                })?;
                Ok(health(&pools))
            }
            Pool::AcceptDamage { name, dry_run, wait } => {
                let call = Call::of(Operation::DamageAccept, &name).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                self.task(call, wait, |task| {
                    format!("The data loss found so far in pool {} is accepted.", task.object)
                })?;
                Ok(Exit::Ok)
            }
            Pool::Set(set) => self.pool_set(set),
            Pool::Scrub { name, pause, stop, every, wait } => {
                let action = match (pause, stop, every) {
                    (true, ..) => ScrubAction::Pause,
                    (_, true, _) => ScrubAction::Stop,
                    (.., Some(_)) => ScrubAction::Schedule,
                    _ => ScrubAction::Start,
                };
                let body = PoolScrub { action, every_seconds: every };
                let call = Call::of(Operation::PoolScrub, &name).body(&body);
                let pool = |task: &api::Task| -> Option<api::Pool> {
                    task.result.clone().and_then(|result| serde_json::from_value(result).ok())
                };
                let task = self.task(call, wait, |task| match pool(task) {
                    Some(pool) => show::scrubbed(&pool),
                    None => show::scrub_set(&task.object, action, every),
                })?;
                Ok(pool(&task).map_or(Exit::Ok, |pool| scrubbed(&pool)))
            }
            Pool::Trim { name, wait } => {
                self.task(Call::of(Operation::PoolTrim, &name), wait, show::trimmed)?;
                Ok(Exit::Ok)
            }
            Pool::Calibrate { name, wait } => {
                self.task(Call::of(Operation::PoolCalibrate, &name), wait, show::calibrated)?;
                Ok(Exit::Ok)
            }
            Pool::Add {
                name,
                disks,
                layout,
                group,
                spare,
                cache,
                enclosure,
                sector,
                force,
                dry_run,
                wait,
            } => {
                let (each, all): (Vec<String>, Vec<String>) =
                    enclosure.into_iter().partition(|name| name.contains('='));
                // A path may hold an equals sign.
                let each = each.iter().filter_map(|pair| pair.rsplit_once('='));
                let (named, names): (Vec<String>, Vec<String>) =
                    each.map(|(disk, name)| (disk.to_string(), name.to_string())).unzip();
                let body = PoolAdd {
                    disks: self.paths(&disks)?,
                    layout,
                    group,
                    spare,
                    cache,
                    enclosure: all.last().cloned(),
                    enclosures: self.paths(&named)?.into_iter().zip(names).collect(),
                    sectors: self.sectors(sector, disks)?,
                    force,
                };
                let call = Call::of(Operation::PoolAdd, &name).body(&body).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                let task =
                    self.task(call, wait, |task| format!("The disks are added to pool {}.", task.object))?;
                warn_of_spares(&task);
                Ok(Exit::Ok)
            }
            Pool::Remove { name, group, yes, dry_run, wait } => {
                let group = format!("{name}/{group}");
                let call = Call::of(Operation::GroupRemove, &group).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                self.confirm(yes.yes, "Removing a group reduces the capacity of its pool", &group, &call)?;
                self.task(call, wait, |task| format!("Group {} is removed from its pool.", task.object))?;
                Ok(Exit::Ok)
            }
            Pool::Import { words, read_only, force, new_name, dry_run, wait } => {
                let scan = |disks: Vec<String>| -> Result<api::PoolsFound, Failure> {
                    self.client.get(Call::new(Operation::DiskScan).body(&DiskPaths { disks }))
                };
                // The first word is the name, unless it is a disk of a pool: in this directory a file may be called as the pool is.
                let mut named = words.first().filter(|word| !word.contains('/')).cloned();
                if named.as_ref().is_some_and(|word| is_disk(word))
                    && !scan(self.paths(&words[..1])?)?.items.is_empty()
                {
                    named = None;
                }
                let disks = self.paths(&words[usize::from(named.is_some())..])?;
                if disks.is_empty() {
                    let remedy = "Name the disks after the pool; write ./disk0 for a file in this directory.";
                    return Err(Failure::new(Exit::Usage, "no disks are given", remedy));
                }
                let Some(name) = named else {
                    if read_only || force || new_name.is_some() || dry_run.dry_run {
                        let remedy = "Name the pool before its disks; without these options its disks are listed with their pools.";
                        return Err(Failure::new(Exit::Usage, "no pool is named", remedy));
                    }
                    return self.list(&scan(disks)?.items, show::found);
                };
                let body = api::PoolImport { disks, read_only, force, new_name };
                let call = Call::of(Operation::PoolImport, &name).body(&body).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                let task = self.task(call, wait, |task| {
                    let how = if read_only { ", read-only" } else { "" };
                    let called = body.new_name.as_ref().map_or(String::new(), |new| format!(" as {new}"));
                    format!("Pool {} is imported{called}{how}.", task.object)
                })?;
                let pool = task.result.and_then(|value| serde_json::from_value::<api::Pool>(value).ok());
                for warning in pool.iter().flat_map(|pool| show::import_warnings(pool, &body.disks)) {
                    eprintln!("forebay: {}", printable(&warning));
                }
                Ok(health(pool.as_slice()))
            }
            Pool::Export { name, force, dry_run, wait } => {
                let call = Call::of(Operation::PoolExport, &name).force(force).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                self.task(call, wait, |task| format!("Pool {} is exported.", task.object))?;
                Ok(Exit::Ok)
            }
            Pool::Destroy { name, force, yes, dry_run, wait } => {
                let call = Call::of(Operation::PoolDestroy, &name).force(force).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                self.confirm(
                    yes.yes,
                    "Destroying a pool and all its volumes cannot be undone",
                    &name,
                    &call,
                )?;
                self.task(call, wait, |task| format!("Pool {} is destroyed.", task.object))?;
                Ok(Exit::Ok)
            }
        }
    }

    pub fn volume(&self, command: Volume) -> Outcome {
        match command {
            Volume::Create {
                name,
                size,
                block_size,
                sync,
                compression,
                format,
                from,
                host,
                level,
                best_effort,
                logical_block,
                dry_run,
            } => {
                let body = VolumeCreate {
                    name,
                    size_bytes: size,
                    block_size_bytes: projects::block_size(block_size)?,
                    sync: sync.map(Into::into),
                    compression,
                    format: format.map(Into::into),
                    from_snapshot: from,
                    hosts: host,
                    logical_block_bytes: hosts::logical_block(logical_block)?,
                    level,
                };
                let call = Call::new(Operation::VolumeCreate).body(&body).dry_run(dry_run.dry_run);
                let call = call.best_effort(best_effort.best_effort);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::Volume>()?, |volume| {
                    println!("Volume {} is created.", printable(&volume.name));
                })
            }
            Volume::List { pool } => {
                self.list(&self.client.all(Operation::VolumeList, &of_pool(pool))?, show::volumes)
            }
            Volume::Show { name } => {
                let volume: api::Volume = self.client.get(Call::of(Operation::VolumeShow, &name))?;
                self.one(&volume, show::volume)?;
                self.mappings_below("volume", &volume.id)
            }
            Volume::Map { name, host, lun, logical_block, dry_run } => {
                let logical_block_bytes = hosts::logical_block(logical_block)?;
                self.for_each(&host, |host| {
                    let (volume, host) = (name.clone(), host.to_string());
                    self.map(&MappingCreate { volume, host, lun, logical_block_bytes }, dry_run.dry_run)
                })
            }
            Volume::Unmap { name, host, dry_run } => {
                self.for_each(&host, |host| self.unmap(&name, host, dry_run.dry_run))
            }
            Volume::Set {
                name,
                sync,
                compression,
                snapshot_every,
                snapshot_keep,
                level,
                best_effort,
                inherit,
                dry_run,
            } => {
                let change = VolumeSet {
                    name: None,
                    size_bytes: None,
                    sync: sync.map(Into::into),
                    compression,
                    format: None,
                    snapshot_every_seconds: snapshot_every,
                    snapshot_keep,
                    level,
                    inherit,
                };
                let call = Call::of(Operation::VolumeSet, &name).best_effort(best_effort.best_effort);
                self.volume_change(call, &change, dry_run.dry_run)
            }
            Volume::Resize { name, size, dry_run } => {
                let call = Call::of(Operation::VolumeSet, &name);
                let (bytes, call) = match size {
                    Resize::To(bytes) => (bytes, call),
                    Resize::By(bytes) => {
                        let seen = self.client.call(Call::of(Operation::VolumeShow, &name))?;
                        let now = seen.parse::<api::Volume>()?.spec.size_bytes;
                        (now.saturating_add(bytes), call.if_seen(&seen))
                    }
                };
                let change = VolumeSet { size_bytes: Some(bytes), ..VolumeSet::default() };
                self.volume_change(call, &change, dry_run.dry_run)
            }
            Volume::Rename(rename) => self.rename("Volume", Operation::VolumeSet, rename),
            Volume::Convert { name, format, dry_run } => {
                let change = VolumeSet { format: Some(format.into()), ..VolumeSet::default() };
                self.volume_change(Call::of(Operation::VolumeSet, &name), &change, dry_run.dry_run)
            }
            Volume::Trace(trace) => self.volume_trace(trace),
            Volume::Move(order) => self.volume_move(order),
            Volume::Reclaim { name, dry_run, wait } => {
                let call = Call::of(Operation::VolumeReclaim, &name).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                self.task(call, wait, show::reclaimed)?;
                Ok(Exit::Ok)
            }
            Volume::Moves => self.moves(),
            Volume::Keep(keep) => self.move_keep(keep),
            Volume::Abandon(abandon) => self.move_abandon(abandon),
            Volume::Delete(delete) => self.volume_delete(delete),
            Volume::Trash(list) => self.trash(list),
            Volume::Restore(restore) => self.volume_restore(restore),
            Volume::Purge(purge) => self.volume_purge(purge),
        }
    }

    fn volume_change(&self, call: Call<'_>, change: &VolumeSet, dry_run: bool) -> Outcome {
        let answer = self.client.call(call.body(change).dry_run(dry_run))?;
        if dry_run {
            return self.plan(&answer);
        }
        let volume = answer.parse::<api::Volume>()?;
        self.changed(&volume, format!("Volume {} is changed.", volume.name))
    }

    /// The end of a command that leaves no object to show.
    pub fn done(&self, object: &str, action: &str, text: String) -> Outcome {
        self.say(text);
        if self.json {
            show::json(&json!({ "action": action, "object": object }));
        }
        Ok(Exit::Ok)
    }

    pub fn task_command(&self, command: Task) -> Outcome {
        match command {
            Task::List => self.list(&self.client.all(Operation::TaskList, &[])?, show::tasks),
            Task::Watch { id } => {
                let task = progress::watch(&self.client, &id)?;
                self.row(&task, show::tasks)
            }
            Task::Cancel { id, dry_run } => {
                let call = Call::of(Operation::TaskCancel, &id).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.row(&answer.parse::<api::Task>()?, show::tasks)
            }
        }
    }

    pub fn token(&self, command: Token) -> Outcome {
        match command {
            Token::Create { name, role, expires, dry_run } => {
                let body = TokenCreate { name, role: role.into(), expires_in_seconds: Some(expires) };
                let call = Call::new(Operation::TokenCreate).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                // The secret alone on stdout, so that FOREBAY_TOKEN=$(forebay token create NAME) works.
                self.one(&answer.parse::<api::TokenCreated>()?, |made| {
                    println!("{}", printable(&made.secret));
                    if stderr().is_terminal() {
                        eprintln!(
                            "The secret is shown only once. Use it as FOREBAY_TOKEN, with FOREBAY_URL=http://HOST:PORT."
                        );
                    }
                })
            }
            Token::List => self.list(&self.client.all(Operation::TokenList, &[])?, show::tokens),
            Token::Rename(rename) => self.rename("Token", Operation::TokenSet, rename),
            Token::Delete { name, dry_run } => {
                let call = Call::of(Operation::TokenDelete, &name).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.done(&name, "token.delete", format!("Token {name} is revoked."))
            }
        }
    }
}

pub fn of_pool(pool: Option<String>) -> Vec<(&'static str, String)> {
    pool.into_iter().map(|pool| ("pool", pool)).collect()
}

/// Says of a pool that a task has made or changed which of its spare disks are too small.
fn warn_of_spares(task: &api::Task) {
    let pool = task.result.clone().and_then(|result| serde_json::from_value::<api::Pool>(result).ok());
    for warning in pool.iter().flat_map(show::small_spares) {
        eprintln!("forebay: {}", printable(&warning));
    }
}

/// Whether a word is a file or device here.
fn is_disk(word: &str) -> bool {
    std::fs::metadata(word).is_ok_and(|found| found.is_file() || found.file_type().is_block_device())
}

/// How a scrub ends; lost data that was accepted before does not count.
fn scrubbed(pool: &api::Pool) -> Exit {
    match health(std::slice::from_ref(pool)) {
        Exit::Lost => Exit::Lost,
        _ if show::is_suspended(pool) => Exit::Degraded,
        _ => Exit::Ok,
    }
}

fn health(pools: &[api::Pool]) -> Exit {
    let is = |state: api::PoolState| move |pool: &api::Pool| pool.status.state == state;
    if pools.iter().any(is(api::PoolState::Damaged)) {
        return Exit::Lost;
    }
    match pools.iter().all(is(api::PoolState::Online)) {
        true => Exit::Ok,
        false => Exit::Degraded,
    }
}
