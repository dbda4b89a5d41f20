//! The machine's disks, for the API and for alerts.
//!
//! Three ages. What a disk is and who uses it is read anew for each answer: that opens no disk. What is on the disks that nothing else says are taken
//! is read within [`CONTENTS_BUDGET`], and counts for [`CONTENTS_KEPT`]. Their health, which may take as long as the slowest disk, is read on a thread of
//! its own and never by an answer: every [`HEALTH_KEPT`], when a client asks for it.
//!
//! A thread of its own also because a query may hang: a blocking thread of the runtime would keep the daemon from stopping. It holds nothing but what is here.

use crate::blocking;
use crate::events::now_unix_ms;
use forebay_api::{DiskHealth, DiskHealthState, DiskTransport, MachineDisk, Problem};
use forebay_hardware::{
    Disk, Examiner, Health, HealthState, History, Identity, Inventory, NotFree, NotFreeKind, Options,
    Reading, Transport,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as Lock};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

/// Of an answer, for reading what is on free disks: some tens of them take less than a second.
const CONTENTS_BUDGET: Duration = Duration::from_secs(3);
/// A person who wipes a disk looks again later than that; a program that asks in a loop reads the disks no more often.
const CONTENTS_KEPT: Duration = Duration::from_secs(5);
/// Figures of health change in hours, and each query makes its disk pause for a moment.
const HEALTH_KEPT: Duration = Duration::from_secs(600);
/// Until a disk is asked that was not there the last time.
const HEALTH_PAUSE: Duration = Duration::from_secs(30);
/// Of one look at all disks.
const HEALTH_BUDGET: Duration = Duration::from_secs(120);
/// An answer waits so long for a look that it began.
const HEALTH_WAIT: Duration = Duration::from_secs(2);

/// Asks the disks; one for the daemon's life, because it remembers which of them hang.
pub struct Machine {
    examiner: Examiner,
    history: Lock<History>,
    /// The latest look at the disks' health.
    examined: watch::Sender<Arc<Examined>>,
    /// Whether a look is under way.
    is_examining: AtomicBool,
    /// What was read last, and when. Held while it is read: one reads, and others get the same.
    read: Mutex<Option<(Instant, Arc<Inventory>)>>,
}

/// One look at the health of all disks.
#[derive(Default)]
pub struct Examined {
    /// When it ended; nothing before the first.
    at: Option<Instant>,
    inventory: Inventory,
    health: HashMap<Identity, DiskHealth>,
}

/// A disk of an imported pool.
pub struct PoolDisk {
    pub pool: String,
    pub number: u16,
    pub path: String,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            examiner: Examiner::new(Options::default()),
            history: Lock::default(),
            examined: watch::Sender::default(),
            is_examining: AtomicBool::new(false),
            read: Mutex::default(),
        }
    }
}

impl Machine {
    /// All disks, with those of `pools` marked.
    pub async fn disks(self: &Arc<Self>, pools: &[PoolDisk]) -> Result<Vec<MachineDisk>, Problem> {
        let inventory = self.inventory(pools).await?;
        self.examine_if_old(Some(&inventory));
        let mut examined = self.examined.subscribe();
        let is_recent = |examined: &Arc<Examined>| examined.at.is_some_and(|at| at.elapsed() < HEALTH_KEPT);
        // Without it by then, the disks' health is what it was, or unknown.
        let _ = timeout(HEALTH_WAIT, examined.wait_for(is_recent)).await;
        let examined = examined.borrow().clone();
        Ok(describe(&inventory, &examined.health, pools, follow_link))
    }

    /// The health of those disks of pools that are disks of the machine, as far as it is known; never waits.
    pub fn health_of(self: &Arc<Self>, pools: &[PoolDisk]) -> Vec<(String, DiskHealth)> {
        if !pools.iter().any(|disk| is_device(&disk.path)) {
            return Vec::new();
        }
        self.examine_if_old(None);
        let examined = self.examined.borrow().clone();
        let known = pools.iter().filter_map(|disk| {
            let found = find_disk(&examined.inventory, &disk.path, follow_link)?;
            let health = examined.health.get(&found.identity)?;
            Some((format!("{}/{}", disk.pool, disk.number), health.clone()))
        });
        known.collect()
    }

    async fn inventory(self: &Arc<Self>, pools: &[PoolDisk]) -> Result<Arc<Inventory>, Problem> {
        let mut read = self.read.lock().await;
        if let Some((at, inventory)) = &*read
            && at.elapsed() < CONTENTS_KEPT
        {
            return Ok(inventory.clone());
        }
        let machine = self.clone();
        let in_use: Vec<String> = pools.iter().map(|disk| disk.path.clone()).collect();
        let inventory = blocking(move || Ok(machine.read_now(&in_use))).await?;
        let inventory = Arc::new(inventory);
        *read = Some((Instant::now(), inventory.clone()));
        Ok(inventory)
    }

    fn read_now(&self, in_use: &[String]) -> Inventory {
        let mut inventory = Inventory::read(Path::new("/"));
        // Disks that a pool uses have work to do, and what is on them is known.
        let names: Vec<String> = in_use
            .iter()
            .filter_map(|path| find_disk(&inventory, path, follow_link).map(|disk| disk.name.clone()))
            .collect();
        for disk in inventory.disks.iter_mut().filter(|disk| names.contains(&disk.name)) {
            let text = "It holds a disk of a Forebay pool.".into();
            disk.not_free.push(NotFree { kind: NotFreeKind::Forebay, text });
        }
        self.examiner.read_contents(&mut inventory, CONTENTS_BUDGET);
        inventory
    }

    /// Begins a look at the disks' health, unless the last one is recent and had all of these, or one is under way.
    fn examine_if_old(self: &Arc<Self>, disks: Option<&Inventory>) {
        let last = self.examined.borrow().clone();
        let is_new = |disk: &Disk| !last.health.contains_key(&disk.identity);
        let kept = match disks.is_some_and(|inventory| inventory.disks.iter().any(is_new)) {
            true => HEALTH_PAUSE,
            false => HEALTH_KEPT,
        };
        if last.at.is_some_and(|at| at.elapsed() < kept) || self.is_examining.swap(true, Ordering::AcqRel) {
            return;
        }
        let machine = self.clone();
        let look = move || {
            let _ended = Ended(&machine.is_examining);
            let examined = machine.examine();
            machine.examined.send_replace(Arc::new(examined));
        };
        // Without a thread now, the next who asks tries again.
        if std::thread::Builder::new().name("disk-health".into()).spawn(look).is_err() {
            self.is_examining.store(false, Ordering::Release);
        }
    }

    fn examine(&self) -> Examined {
        let inventory = Inventory::read(Path::new("/"));
        let readings = self.examiner.read_health_of(&inventory.disks, HEALTH_BUDGET);
        let now_unix_ms = now_unix_ms();
        let mut history = self.history.lock().expect("no holder of this lock panics");
        let judged = inventory.disks.iter().zip(&readings).map(|(disk, reading)| {
            let health = history.judge(&disk.identity, now_unix_ms / 1000, reading);
            let latest = match reading {
                Reading::Values(_) | Reading::Standby => history.latest(&disk.identity),
                Reading::None(_) => None,
            };
            let mut health = health_of(health);
            if let Some((at, smart)) = latest {
                health.read_unix_ms = Some(at * 1000);
                health.temperature_celsius = smart.temperature.now;
                health.power_on_hours = smart.power_on_hours;
                health.wear_percent = smart.wear_percent;
            }
            (disk.identity.clone(), health)
        });
        let health = judged.collect();
        Examined { at: Some(Instant::now()), inventory, health }
    }
}

/// Says that a look has ended, however it ended.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn is_device(path: &str) -> bool {
    path.starts_with("/dev/")
}

/// Where a link below `/dev` leads to; other paths may be on file systems that hang.
fn follow_link(path: &str) -> Option<String> {
    let target = is_device(path).then(|| std::fs::canonicalize(path).ok()).flatten()?;
    Some(target.to_string_lossy().into_owned())
}

/// The disk at a path, which may be any link to it, or to a partition of it.
fn find_disk<'a>(
    inventory: &'a Inventory,
    path: &str,
    follow: impl Fn(&str) -> Option<String>,
) -> Option<&'a Disk> {
    let by_name = |path: &str| {
        inventory.find_path(path).or_else(|| {
            let name = path.strip_prefix("/dev/")?;
            inventory.disks.iter().find(|disk| disk.partitions.iter().any(|part| part.name == name))
        })
    };
    by_name(path).or_else(|| by_name(&follow(path)?))
}

fn describe(
    inventory: &Inventory,
    health: &HashMap<Identity, DiskHealth>,
    pools: &[PoolDisk],
    follow: impl Fn(&str) -> Option<String>,
) -> Vec<MachineDisk> {
    let mut users: HashMap<&Identity, Vec<&PoolDisk>> = HashMap::new();
    for disk in pools {
        if let Some(found) = find_disk(inventory, &disk.path, &follow) {
            users.entry(&found.identity).or_default().push(disk);
        }
    }
    let unread = DiskHealth {
        state: DiskHealthState::Unknown,
        reasons: vec!["Its health has not been read yet.".into()],
        read_unix_ms: None,
        temperature_celsius: None,
        power_on_hours: None,
        wear_percent: None,
    };
    let one = |disk: &Disk| {
        let users = users.get(&disk.identity).map(Vec::as_slice).unwrap_or_default();
        let health = health.get(&disk.identity).unwrap_or(&unread);
        machine_disk(disk, users, health.clone())
    };
    inventory.disks.iter().map(one).collect()
}

fn machine_disk(disk: &Disk, users: &[&PoolDisk], health: DiskHealth) -> MachineDisk {
    // A pool says more than the label that it has written.
    let is_said =
        |one: &&NotFree| users.is_empty() || !matches!(one.kind, NotFreeKind::Forebay | NotFreeKind::Unread);
    let used = users.iter().map(|used| format!("It is disk {} of pool {}.", used.number, used.pool));
    let others = disk.not_free.iter().filter(is_said).map(|one| one.text.clone());
    let not_free: Vec<String> = used.chain(others).collect();
    let first = users.first();
    MachineDisk {
        id: disk.identity.to_string(),
        name: disk.name.clone(),
        device: disk.device.clone(),
        model: disk.model.clone(),
        vendor: disk.vendor.clone(),
        serial: disk.serial.clone(),
        firmware: disk.firmware.clone(),
        wwn: disk.wwn.clone(),
        size_bytes: disk.size,
        sector_logical_bytes: disk.sector_logical,
        sector_physical_bytes: disk.sector_physical,
        rotational: disk.rotational,
        transport: transport(disk.transport),
        place: disk.place(),
        enclosure: disk.slot.as_ref().and_then(|slot| slot.enclosure.clone()),
        slot: disk.slot.as_ref().map(|slot| slot.label.clone()),
        contents: disk.contents_in_words(),
        free: not_free.is_empty(),
        not_free,
        system: disk.is_system(),
        pool: first.map(|used| used.pool.clone()),
        number: first.map(|used| used.number),
        health,
    }
}

fn health_of(health: Health) -> DiskHealth {
    let state = match health.state {
        HealthState::Good => DiskHealthState::Good,
        HealthState::Unknown => DiskHealthState::Unknown,
        HealthState::Warning => DiskHealthState::Warning,
        HealthState::Failing => DiskHealthState::Failing,
    };
    DiskHealth {
        state,
        reasons: health.reasons,
        read_unix_ms: None,
        temperature_celsius: None,
        power_on_hours: None,
        wear_percent: None,
    }
}

fn transport(transport: Transport) -> DiskTransport {
    match transport {
        Transport::Sata => DiskTransport::Sata,
        Transport::Sas => DiskTransport::Sas,
        Transport::Nvme => DiskTransport::Nvme,
        Transport::NvmeFabrics => DiskTransport::NvmeFabrics,
        Transport::FibreChannel => DiskTransport::FibreChannel,
        Transport::Iscsi => DiskTransport::Iscsi,
        Transport::Usb => DiskTransport::Usb,
        Transport::Virtio => DiskTransport::Virtio,
        Transport::Virtual => DiskTransport::Virtual,
        Transport::Mmc => DiskTransport::Mmc,
        Transport::Pmem => DiskTransport::Pmem,
        Transport::Loop => DiskTransport::Loop,
        Transport::Nbd => DiskTransport::Nbd,
        Transport::Scsi => DiskTransport::Scsi,
        Transport::Other => DiskTransport::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn inventory() -> Inventory {
        let disk = |name: &str, more: serde_json::Value| {
            let mut disk = json!({
                "name": name, "device": format!("/dev/disk/by-id/ata-{name}"), "identity": format!("wwn:{name}"),
                "by_id": format!("/dev/disk/by-id/ata-{name}"), "by_path": format!("/dev/disk/by-path/{name}"),
                "size": 1u64 << 40, "sector_logical": 512, "sector_physical": 4096, "rotational": true,
                "transport": "sata", "zoned": "no", "read_only": false, "removable": false,
                "paths": [{"name": name, "by_path": format!("/dev/disk/by-path/{name}")}],
                "partitions": [], "contents": {"source": "disk", "signatures": []}, "system": [], "not_free": [],
            });
            for (key, value) in more.as_object().expect("an object") {
                disk[key] = value.clone();
            }
            disk
        };
        let label = json!([{"kind": "forebay", "text": "It holds a disk of a Forebay pool."}]);
        let disks = json!({"disks": [
            disk("sda", json!({
                "system": ["sda1 is mounted at /."],
                "partitions": [{"name": "sda1", "number": 1, "size": 5}],
                "not_free": [{"kind": "system", "text": "This is a system disk: sda1 is mounted at /."}],
            })),
            disk("sdb", json!({"not_free": label})),
            disk("sdc", json!({"device": "/dev/mapper/mpatha", "multipath": "dm-3"})),
            disk("sdd", json!({})),
        ]});
        serde_json::from_value(disks).expect("an inventory")
    }

    fn links(path: &str) -> Option<String> {
        let target = match path {
            "/dev/disk/by-id/wwn-sdb" => "/dev/sdb",
            "/dev/mapper/alias" => "/dev/dm-3",
            "/dev/disk/by-partlabel/root" => "/dev/sda1",
            _ => return None,
        };
        Some(target.into())
    }

    fn pool_disk(number: u16, path: &str) -> PoolDisk {
        PoolDisk { pool: "tank".into(), number, path: path.into() }
    }

    #[test]
    fn a_disk_is_found_by_any_link_to_it_or_to_its_partitions() {
        for (path, name) in [
            ("/dev/sdb", Some("sdb")),
            ("/dev/disk/by-id/ata-sdb", Some("sdb")),
            ("/dev/disk/by-path/sdb", Some("sdb")),
            ("/dev/disk/by-id/wwn-sdb", Some("sdb")),
            ("/dev/mapper/mpatha", Some("sdc")),
            ("/dev/mapper/alias", Some("sdc")),
            ("/dev/dm-3", Some("sdc")),
            ("/dev/sda1", Some("sda")),
            ("/dev/disk/by-partlabel/root", Some("sda")),
            ("/dev/sde", None),
            ("/srv/sdb", None),
            ("", None),
        ] {
            let found = find_disk(&inventory(), path, links).map(|disk| disk.name.clone());
            assert_eq!(found.as_deref(), name, "{path}");
        }
    }

    #[test]
    fn disks_of_pools_say_so_and_the_others_whether_they_are_free() {
        let pools = [pool_disk(0, "/dev/disk/by-id/wwn-sdb"), pool_disk(3, "/dev/mapper/mpatha")];
        let disks = describe(&inventory(), &HashMap::new(), &pools, links);
        let [system, first, second, free] = &disks[..] else { panic!("four") };
        assert!(system.system && !system.free && system.pool.is_none());
        assert_eq!(system.contents, ["Partition sda1 holds nothing that is known."]);
        assert_eq!((first.pool.as_deref(), first.number), (Some("tank"), Some(0)));
        assert_eq!(first.not_free, ["It is disk 0 of pool tank."]);
        assert_eq!((second.number, second.free), (Some(3), false));
        assert!(free.free && free.not_free.is_empty() && free.pool.is_none());
        assert_eq!(free.health.state, DiskHealthState::Unknown);
        assert!(!free.health.reasons.is_empty(), "it says why");
        // The pool was exported: its label is still there.
        let disks = describe(&inventory(), &HashMap::new(), &[], links);
        assert_eq!(disks[1].not_free, ["It holds a disk of a Forebay pool."]);
    }

    #[test]
    fn a_panic_does_not_end_all_looks() {
        let examining = AtomicBool::new(true);
        drop(Ended(&examining));
        assert!(!examining.load(Ordering::Acquire));
    }
}
