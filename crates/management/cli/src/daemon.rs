//! What commands of the binary's own may do with a daemon: a project for themselves, with volumes in it, and a host that sees them, which all go when they
//! are done.
//!
//! Objects of others cannot be named here: a scratch project and its host are made under new names, and only what was made is deleted.

use crate::client::{Call, Client};
use crate::failure::{Exit, Failure};
use forebay_api::{Operation, Task, Volume};
use serde_json::json;
use std::time::{Duration, Instant};

/// Deleted volumes take a moment to be gone.
const TRIES: u32 = 100;
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// A pool that was just made is measured for some seconds.
const MEASURED_WITHIN: Duration = Duration::from_secs(60);

/// A running daemon.
pub struct Daemon(pub(crate) Client);

/// A project of this process's own.
pub struct Scratch<'a> {
    client: &'a Client,
    project: String,
    volumes: Vec<String>,
    /// Sees them over iSCSI.
    host: Option<String>,
}

impl Daemon {
    /// Makes a project in this pool, once the pool is not being measured; refused if one of that name exists.
    pub fn scratch(&self, pool: &str) -> Result<Scratch<'_>, Failure> {
        let begun = Instant::now();
        while self.is_measured(pool)? && begun.elapsed() < MEASURED_WITHIN {
            std::thread::sleep(TRY_AGAIN);
        }
        let project = format!("{pool}/validate-{}", std::process::id());
        let body = json!({ "name": project });
        self.0.call(Call::new(Operation::ProjectCreate).body(&body))?;
        Ok(Scratch { client: &self.0, project, volumes: Vec::new(), host: None })
    }

    /// Whether what it can do is being measured: that and whatever else measures it would disturb each other.
    fn is_measured(&self, pool: &str) -> Result<bool, Failure> {
        let tasks: Vec<Task> = self.0.all(Operation::TaskList, &[])?;
        let measures =
            |task: &Task| task.name == "pool.calibrate" && task.object == pool && !task.state.is_final();
        Ok(tasks.iter().any(measures))
    }
}

impl Scratch<'_> {
    /// Makes a host known by this initiator name; it sees all volumes that are made from here on.
    pub fn host(&mut self, initiator: &str) -> Result<(), Failure> {
        let name = format!("validate-{}", std::process::id());
        let body = json!({ "name": name, "initiators": [initiator] });
        self.client.call(Call::new(Operation::HostCreate).body(&body))?;
        self.host = Some(name);
        Ok(())
    }

    /// Makes a volume in it, which keeps what it is given as it is.
    pub fn volume(&mut self, name: &str, bytes: u64, block_bytes: u32) -> Result<Volume, Failure> {
        let name = format!("{}/{name}", self.project);
        let hosts: Vec<&String> = self.host.iter().collect();
        let body = json!({
            "name": name, "size_bytes": bytes, "block_size_bytes": block_bytes, "sync": "always", "compression": "off", "hosts": hosts,
        });
        let made = self.client.call(Call::new(Operation::VolumeCreate).body(&body))?;
        self.volumes.push(name);
        made.parse()
    }

    /// Deletes all that was made.
    pub fn remove(mut self) -> Result<(), Failure> {
        self.clear()
    }

    fn clear(&mut self) -> Result<(), Failure> {
        while let Some(volume) = self.volumes.last() {
            let call = Call::of(Operation::VolumeDelete, volume).query("purge", true).query("force", true);
            self.client.call(call)?;
            self.volumes.pop();
        }
        if let Some(host) = &self.host {
            self.client.call(Call::of(Operation::HostDelete, host))?;
            self.host = None;
        }
        let mut tries = 0;
        loop {
            match self.client.call(Call::of(Operation::ProjectDelete, &self.project)) {
                Err(failure) if failure.exit == Exit::Conflict && tries < TRIES => tries += 1,
                ended => {
                    self.project.clear();
                    return ended.map(|_| ());
                }
            }
            std::thread::sleep(TRY_AGAIN);
        }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if !self.project.is_empty()
            && let Err(failure) = self.clear()
        {
            eprintln!("forebay: temporary project {} was not removed: {}", self.project, failure.detail);
        }
    }
}
