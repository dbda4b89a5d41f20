//! What commands of the binary's own may do with a daemon: a project for themselves, with volumes in it, which goes when they are done.
//!
//! Nobody else's objects can be named here: a scratch project is made under a new name, and only what was made in it is deleted.

use crate::client::{Call, Client};
use crate::failure::{Exit, Failure};
use forebay_api::Operation;
use serde_json::json;
use std::time::Duration;

/// Deleted volumes take a moment to be gone.
const TRIES: u32 = 100;
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// A running daemon.
pub struct Daemon(pub(crate) Client);

/// A project of this process's own.
pub struct Scratch<'a> {
    client: &'a Client,
    project: String,
    volumes: Vec<String>,
}

impl Daemon {
    /// Makes a project in this pool; refused if somebody has one of that name.
    pub fn scratch(&self, pool: &str) -> Result<Scratch<'_>, Failure> {
        let project = format!("{pool}/validate-{}", std::process::id());
        let body = json!({ "name": project });
        self.0.call(Call::new(Operation::ProjectCreate).body(&body))?;
        Ok(Scratch { client: &self.0, project, volumes: Vec::new() })
    }
}

impl Scratch<'_> {
    /// Makes a volume in it, which keeps what it is given as it is; its name.
    pub fn volume(&mut self, name: &str, bytes: u64, block_bytes: u32) -> Result<String, Failure> {
        let name = format!("{}/{name}", self.project);
        let body = json!({
            "name": name, "size_bytes": bytes, "block_size_bytes": block_bytes, "sync": "always", "compression": "off",
        });
        self.client.call(Call::new(Operation::VolumeCreate).body(&body))?;
        self.volumes.push(name.clone());
        Ok(name)
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
            eprintln!("forebay: {} is left over: {}", self.project, failure.detail);
        }
    }
}
