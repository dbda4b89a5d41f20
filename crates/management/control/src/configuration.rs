//! What the daemon remembers between its lives: which pools to import at start, and where their disks were.
//!
//! The pools' own labels are the truth; this file only says where to look. It is written before a pool is created
//! or destroyed (the entry is then *unsettled*) and again afterwards, so that a crash in between leaves an entry
//! that the next start settles: an existing pool stays; a missing one is removed, because its creation was never
//! reported. A half-created pool (some disks have its label, some do not) is destroyed.
//!
//! The list of disks follows the pool. A disk is entered as *joining* before the pool takes it, and one that left is dropped:
//! it may be another pool's by the next start, and would stand in the way of the import.

use crate::directory::DataDir;
use crate::filling::THRESHOLDS;
use forebay_api::{Code, Disk, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

const FILE: &str = "config";
const VERSION: u32 = 1;

/// Something was begun with a pool, and its end was not recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unsettled {
    /// The existence of the pool was never reported, so no client can have used it.
    Creating,
    /// Its owner wanted it gone.
    Destroying,
}

/// A pool to import at start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Remembered {
    /// UUID; absent while the pool is being created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub name: String,
    /// Absolute paths of its disks.
    pub disks: Vec<String>,
    /// Nothing is written to them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// What speaks against a read-only import is overridden each time: it writes nothing that would settle it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// How full it is, in percent, when that is told; empty for what is told of every pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threshold_percents: Vec<u8>,
    /// Where each of its disks was last, by UUID: of a missing one a person is told what to look for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub places: BTreeMap<String, String>,
    /// Paths of disks that were about to join when this was written. They may be the pool's or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joining: Vec<String>,
    /// Those of `disks` at which the import found none of the pool's: where one that is missing may come back. Not written.
    #[serde(skip)]
    pub unfound: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<Unsettled>,
    /// Why the last import failed; not written.
    #[serde(skip)]
    pub failure: Option<Problem>,
}

impl Remembered {
    /// Says of a disk that is not there where it was last.
    pub fn place(&self, disk: &mut Disk) {
        if disk.name.is_empty() {
            disk.status.last_path = self.places.get(&disk.id).cloned();
        }
    }

    /// How full it is, in percent, when that is told: in order.
    pub fn thresholds(&self) -> &[u8] {
        if self.threshold_percents.is_empty() { &THRESHOLDS } else { &self.threshold_percents }
    }
}

/// What is kept of a pool that was exported, for when it comes back.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Left {
    id: String,
    pub threshold_percents: Vec<u8>,
    pub places: BTreeMap<String, String>,
}

/// Pools of which that is kept; the one that left first is forgotten.
const LEFT_MAX: usize = 64;

#[derive(Clone, Serialize, Deserialize)]
struct Content {
    version: u32,
    pools: Vec<Remembered>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<Left>,
}

/// The file in the data directory that says where a running daemon answers.
pub const ADDRESSES: &str = "addresses.json";

/// Where clients of volumes connect, of what is in [`ADDRESSES`].
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Addresses {
    pub nbd: Option<String>,
    pub iscsi: Vec<String>,
}

/// The remembered pools, by name.
pub struct Configuration {
    dir: Arc<DataDir>,
    content: Mutex<Content>,
}

impl Configuration {
    pub fn open(dir: Arc<DataDir>) -> Result<Configuration, Problem> {
        let at = dir.file(FILE).display().to_string();
        let damaged = |detail: String| {
            Problem::new(Code::Corrupt, detail).object(at.as_str()).remedy(
                "Move the file away and start the daemon again. Then import the pools with `forebay pool import DISK…`.",
            )
        };
        let bytes = dir.read(FILE).map_err(|error| damaged(format!("it cannot be read: {error}")))?;
        let content = match bytes {
            None => Content { version: VERSION, pools: Vec::new(), left: Vec::new() },
            Some(bytes) => {
                let content: Content = serde_json::from_slice(&bytes)
                    .map_err(|error| damaged(format!("it is not a configuration: {error}")))?;
                if content.version != VERSION {
                    return Err(damaged(format!(
                        "its version is {}, but this program reads version {VERSION}",
                        content.version
                    )));
                }
                content
            }
        };
        Ok(Configuration { dir, content: Mutex::new(content) })
    }

    /// As the daemon wrote it when it started the servers; nothing before that.
    pub fn addresses(&self) -> Addresses {
        let bytes = self.dir.read(ADDRESSES).ok().flatten();
        bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().expect("no holder of this lock panics")
    }

    pub fn pools(&self) -> Vec<Remembered> {
        self.lock().pools.clone()
    }

    /// The entry with this name or UUID.
    pub fn find(&self, pool: &str) -> Option<Remembered> {
        self.lock().pools.iter().find(|p| p.name == pool || p.id.as_deref() == Some(pool)).cloned()
    }

    /// What is kept of the pool with this UUID since it was exported.
    pub fn left(&self, id: &str) -> Option<Left> {
        self.lock().left.iter().find(|left| left.id == id).cloned()
    }

    /// Adds or replaces an entry. Blocks on the disk.
    pub fn remember(&self, entry: Remembered) -> Result<(), Problem> {
        self.change(|content| {
            content.left.retain(|left| entry.id.as_ref() != Some(&left.id));
            content.pools.retain(|p| p.name != entry.name && (p.id.is_none() || p.id != entry.id));
            content.pools.push(entry);
            content.pools.sort_by(|a, b| a.name.cmp(&b.name));
        })
    }

    /// Changes an entry; nothing happens when there is none, or nothing to change. Blocks on the disk.
    pub fn update(&self, name: &str, change: impl FnOnce(&mut Remembered)) -> Result<(), Problem> {
        let Some(before) = self.find(name) else { return Ok(()) };
        let mut after = before.clone();
        change(&mut after);
        if after == before { Ok(()) } else { self.remember(after) }
    }

    /// Drops an entry; nothing happens when there is none. Blocks on the disk.
    pub fn forget(&self, name: &str) -> Result<(), Problem> {
        if self.find(name).is_none() {
            return Ok(());
        }
        self.change(|content| content.pools.retain(|p| p.name != name))
    }

    /// The same of a pool that was exported, and may come back. Blocks on the disk.
    pub fn leave(&self, name: &str) -> Result<(), Problem> {
        let Some(Remembered { id: Some(id), threshold_percents, places, .. }) = self.find(name) else {
            return self.forget(name);
        };
        self.change(|content| {
            content.pools.retain(|p| p.name != name);
            content.left.push(Left { id, threshold_percents, places });
            let over = content.left.len().saturating_sub(LEFT_MAX);
            content.left.drain(..over);
        })
    }

    /// Whether the file can be written: a change that could not be remembered is better refused than made. Blocks on the disk.
    pub fn check(&self) -> Result<(), Problem> {
        self.change(|_| ())
    }

    /// Notes why a pool could not be imported.
    pub fn note_failure(&self, name: &str, failure: Option<Problem>) {
        if let Some(entry) = self.lock().pools.iter_mut().find(|p| p.name == name) {
            entry.failure = failure;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Content)) -> Result<(), Problem> {
        let mut content = self.lock();
        let mut next = content.clone();
        change(&mut next);
        let mut text = serde_json::to_vec_pretty(&next).expect("the configuration is plain data");
        text.push(b'\n');
        self.dir
            .write(FILE, &text)
            .map_err(|error| self.dir.cannot_write("the configuration", FILE, &error))?;
        *content = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;

    fn entry(name: &str, id: Option<&str>) -> Remembered {
        Remembered {
            id: id.map(str::to_string),
            name: name.into(),
            disks: vec![format!("/disks/{name}")],
            read_only: false,
            forced: false,
            threshold_percents: Vec::new(),
            places: BTreeMap::new(),
            joining: Vec::new(),
            unfound: Vec::new(),
            unsettled: id.is_none().then_some(Unsettled::Creating),
            failure: None,
        }
    }

    #[test]
    fn where_clients_connect_is_what_the_file_says_and_nothing_without_one() {
        let temp = test_directory();
        let dir = Arc::new(DataDir::open(temp.path()).unwrap());
        let configuration = Configuration::open(dir.clone()).unwrap();
        assert!(configuration.addresses().nbd.is_none() && configuration.addresses().iscsi.is_empty());
        dir.write(
            ADDRESSES,
            br#"{"http": "127.0.0.1:8080", "nbd": "127.0.0.1:10809", "iscsi": ["127.0.0.1:3260"]}"#,
        )
        .unwrap();
        let at = configuration.addresses();
        assert_eq!(
            (at.nbd.as_deref(), &at.iscsi[..]),
            (Some("127.0.0.1:10809"), &["127.0.0.1:3260".to_string()][..])
        );
        dir.write(ADDRESSES, b"no JSON").unwrap();
        assert!(configuration.addresses().nbd.is_none());
    }

    #[test]
    fn what_is_remembered_is_there_after_a_restart() {
        let temp = test_directory();
        {
            let configuration = Configuration::open(Arc::new(DataDir::open(temp.path()).unwrap())).unwrap();
            configuration.remember(entry("tank", None)).unwrap();
            configuration.remember(entry("tank", Some("1"))).unwrap();
            configuration.remember(entry("other", Some("2"))).unwrap();
            configuration.forget("nothing").unwrap();
        }
        let configuration = Configuration::open(Arc::new(DataDir::open(temp.path()).unwrap())).unwrap();
        assert_eq!(configuration.pools(), [entry("other", Some("2")), entry("tank", Some("1"))]);
        assert_eq!(configuration.find("2").unwrap().name, "other");
        configuration.forget("other").unwrap();
        assert_eq!(configuration.pools(), [entry("tank", Some("1"))]);
        // One that was exported has what was set for it when it comes back.
        configuration.update("tank", |entry| entry.threshold_percents = vec![70]).unwrap();
        configuration.leave("tank").unwrap();
        drop(configuration);
        let configuration = Configuration::open(Arc::new(DataDir::open(temp.path()).unwrap())).unwrap();
        assert_eq!(configuration.pools(), []);
        assert_eq!(configuration.left("1").expect("kept").threshold_percents, [70]);
        configuration.remember(entry("tank", Some("1"))).unwrap();
        assert_eq!(configuration.left("1"), None);
    }

    #[test]
    fn an_entry_that_is_not_there_is_not_changed_into_one() {
        let temp = test_directory();
        let configuration = Configuration::open(Arc::new(DataDir::open(temp.path()).unwrap())).unwrap();
        configuration.remember(entry("tank", Some("1"))).unwrap();
        configuration.update("other", |entry| entry.disks.clear()).unwrap();
        configuration.update("tank", |entry| entry.joining.push("/disks/new".into())).unwrap();
        assert_eq!(configuration.pools()[0].joining, ["/disks/new"]);
        // What changes nothing is not written: a directory where the temporary file should go would be in its way.
        std::fs::create_dir(temp.path().join(".config.new")).unwrap();
        configuration.update("tank", |_| ()).unwrap();
        assert!(configuration.update("tank", |entry| entry.joining.clear()).is_err());
    }

    #[test]
    fn a_failed_write_changes_nothing() {
        let temp = test_directory();
        let configuration = Configuration::open(Arc::new(DataDir::open(temp.path()).unwrap())).unwrap();
        configuration.remember(entry("tank", Some("1"))).unwrap();
        // A directory where the temporary file should go.
        std::fs::create_dir(temp.path().join(".config.new")).unwrap();
        let problem = configuration.remember(entry("other", Some("2"))).unwrap_err();
        assert_eq!(problem.code, Code::Io);
        assert!(configuration.check().is_err(), "it is known before anything is done");
        assert_eq!(configuration.pools(), [entry("tank", Some("1"))]);
    }

    #[test]
    fn a_damaged_or_newer_file_is_refused_not_overwritten() {
        for text in ["{", "{\"version\":2,\"pools\":[]}", "[]"] {
            let temp = test_directory();
            let dir = Arc::new(DataDir::open(temp.path()).unwrap());
            dir.write("config", text.as_bytes()).unwrap();
            let problem = Configuration::open(dir.clone()).err().expect("refused");
            assert_eq!(problem.code, Code::Corrupt);
            assert_eq!(dir.read("config").unwrap().unwrap(), text.as_bytes());
        }
    }
}
