//! Who sees which volumes now: what the iSCSI server asks at every login.
//!
//! An [`AccessMap`] holds one immutable snapshot, made from the configuration and the engine's list of volumes whenever
//! one of them changes; looking something up takes a read lock for as long as it takes to copy a pointer. A volume whose
//! pool is not imported is in no snapshot, so its mappings have no effect until it comes back.

use crate::hosts::{Content, Credentials};
use forebay_base::Id;
use forebay_pool::{Ceiling, Rate, VolumeInfo};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// A ceiling that all sessions of a host share: no two are equal.
#[derive(Clone, Debug)]
pub struct HostCeiling(pub Arc<Ceiling>);

impl PartialEq for HostCeiling {
    fn eq(&self, other: &HostCeiling) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HostCeiling {}

/// A host, as the iSCSI server has to treat it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admission {
    id: String,
    /// For people.
    pub host: String,
    /// How it has to prove itself; `None`: its name is enough.
    pub chap: Option<Credentials>,
    /// How the target proves itself when asked.
    pub mutual: Option<Credentials>,
    rate: Rate,
    /// What it gets at most; stays the same while the rate does.
    pub ceiling: Option<HostCeiling>,
    targets: BTreeMap<String, Vec<MappedVolume>>,
}

impl Admission {
    /// Names of the targets at which it sees something.
    pub fn targets(&self) -> impl Iterator<Item = &String> {
        self.targets.keys()
    }
    /// What it sees at a target, by number.
    pub fn luns(&self, target: &str) -> &[MappedVolume] {
        self.targets.get(target).map_or(&[], Vec::as_slice)
    }
}

/// A volume as a host sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappedVolume {
    pub lun: u16,
    pub volume: Id,
    /// The core that owns it.
    pub core: usize,
    /// `POOL/NAME`.
    pub name: String,
    /// 512 or 4096; the same in all mappings of the volume.
    pub logical_block_bytes: u32,
}

/// Hosts by initiator name.
type Snapshot = HashMap<String, Arc<Admission>>;

/// The current snapshot.
#[derive(Default)]
pub struct AccessMap {
    snapshot: RwLock<Arc<Snapshot>>,
}

impl AccessMap {
    /// The host to which an initiator name, in lower case, belongs; `None`: it is unknown.
    pub fn admit(&self, initiator: &str) -> Option<Arc<Admission>> {
        let snapshot = self.snapshot.read().expect("no holder of this lock panics").clone();
        snapshot.get(initiator).cloned()
    }

    /// Hosts that see a volume and are let in by their name alone, in order.
    pub fn hosts_without_secret(&self) -> Vec<String> {
        let snapshot = self.snapshot.read().expect("no holder of this lock panics").clone();
        let open = snapshot.values().filter(|host| host.chap.is_none() && !host.targets.is_empty());
        let names: BTreeSet<String> = open.map(|admission| admission.host.clone()).collect();
        names.into_iter().collect()
    }

    /// Takes over what is now; says whether anything is different.
    pub(crate) fn update(&self, content: &Content, volumes: &[VolumeInfo]) -> bool {
        let mut current = self.snapshot.write().expect("no holder of this lock panics");
        let next = snapshot(content, volumes, &current);
        let changed = **current != next;
        if changed {
            *current = Arc::new(next);
        }
        changed
    }
}

fn snapshot(content: &Content, volumes: &[VolumeInfo], before: &Snapshot) -> Snapshot {
    let volumes: HashMap<String, &VolumeInfo> =
        volumes.iter().map(|volume| (volume.id.to_string(), volume)).collect();
    let views = content.views();
    let mut snapshot = Snapshot::new();
    for host in &content.hosts {
        let mut targets: BTreeMap<String, Vec<MappedVolume>> = BTreeMap::new();
        for mapping in views.get(host.id.as_str()).into_iter().flatten() {
            let Some(volume) = volumes.get(&mapping.volume) else { continue };
            targets.entry(mapping.target()).or_default().push(MappedVolume {
                lun: mapping.lun,
                volume: volume.id,
                core: volume.core,
                name: mapping.volume_name.clone(),
                logical_block_bytes: mapping.logical_block_bytes,
            });
        }
        targets.values_mut().for_each(|luns| luns.sort_by_key(|mapped| mapped.lun));
        let rate = host.ceiling();
        let known = host.initiators.iter().filter_map(|name| before.get(name));
        let known = known.into_iter().find(|known| known.id == host.id && known.rate == rate);
        let ceiling = match known {
            Some(known) => known.ceiling.clone(),
            None => {
                (rate != Rate::default()).then(|| HostCeiling(Arc::new(Ceiling::new(rate, Duration::ZERO))))
            }
        };
        let admission = Arc::new(Admission {
            id: host.id.clone(),
            rate,
            ceiling,
            host: host.name.clone(),
            chap: host.chap.clone(),
            mutual: host.mutual.clone(),
            targets,
        });
        snapshot.extend(host.initiators.iter().map(|name| (name.clone(), admission.clone())));
    }
    snapshot
}

/// A session of the iSCSI server, as management shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IscsiSession {
    pub id: u64,
    pub initiator: String,
    /// `None` for a discovery session.
    pub target: Option<String>,
    /// The initiator's address and port.
    pub peer: String,
    /// Ours.
    pub portal: String,
    pub portal_group: u16,
    pub since_unix_ms: u64,
    pub commands: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// What management asks of the iSCSI server. Nothing here blocks.
pub trait Iscsi: Send + Sync + 'static {
    /// Oldest first.
    fn sessions(&self) -> Vec<IscsiSession>;
    /// False when there is none of this number.
    fn drop_session(&self, id: u64) -> bool;
    /// What the [`AccessMap`] answers has changed, or a volume's size.
    fn access_changed(&self);
    /// How full the pool behind a target is, in thousandths, and from where on its hosts are told.
    fn set_fill(&self, target: &str, fill_permille: u32, threshold_permille: u32);
    /// Portals that can be reached from other machines.
    fn portals_beyond_loopback(&self) -> Vec<String>;
}

/// What management asks of the NBD server. Nothing here blocks.
pub trait Nbd: Send + Sync + 'static {
    /// Addresses of the clients that have a volume open, under whichever name they opened it.
    fn clients(&self, volume: Id) -> Vec<String>;
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::hosts::{Group, Host, Mapping};
    use forebay_base::WallTime;
    use forebay_pool::{Compression, Source, Sources, SyncPolicy};

    fn host(id: &str, initiators: &[&str]) -> Host {
        Host {
            id: id.into(),
            name: format!("host-{id}"),
            created_unix_ms: 0,
            revision: 1,
            came_with: None,
            initiators: initiators.iter().map(|name| name.to_string()).collect(),
            chap: None,
            mutual: None,
            max_iops: None,
            max_bytes_per_second: None,
        }
    }

    #[test]
    fn a_ceiling_stays_the_same_until_it_is_another() {
        let capped = |id: &str, initiators: &[&str], iops| Host { max_iops: iops, ..host(id, initiators) };
        let map = AccessMap::default();
        let mut content = Content { hosts: vec![capped("1", &["a", "b"], Some(100))], ..Content::default() };
        let ceiling = |name: &str| map.admit(name).unwrap().ceiling.clone();
        assert!(map.update(&content, &[]));
        let first = ceiling("a").expect("a ceiling");
        assert_eq!(ceiling("b"), Some(first.clone()), "one for all its paths");
        // What it has taken is not forgotten when something else changes.
        content.hosts[0].initiators.remove(0);
        content.hosts.push(capped("2", &["a"], Some(100)));
        assert!(map.update(&content, &[]));
        assert_eq!(ceiling("b"), Some(first.clone()));
        assert_ne!(ceiling("a"), Some(first.clone()), "another host's");
        assert!(!map.update(&content, &[]), "nothing is different");
        content.hosts[0].max_iops = Some(200);
        assert!(map.update(&content, &[]));
        assert_ne!(ceiling("b"), Some(first));
        content.hosts[0].max_iops = None;
        assert!(map.update(&content, &[]));
        assert_eq!(ceiling("b"), None);
    }

    pub fn volume(id: u128, pool: &str, name: &str, core: usize) -> VolumeInfo {
        VolumeInfo {
            id: Id(id),
            pool: pool.into(),
            name: name.into(),
            size: 1 << 20,
            block_size: 8192,
            sync: SyncPolicy::Always,
            compression: Compression::Off,
            project: None,
            project_id: None,
            level: Id(0),
            standing: None,
            sources: Sources {
                sync: Source::Own,
                compression: Source::Own,
                schedule: Source::Own,
                level: Source::Default,
                hosts: Source::Own,
            },
            read_only: false,
            shard: 0,
            core,
            mapped: 0,
            stored: 0,
            packing_nanos: 0,
            unpacking_nanos: 0,
            format: Default::default(),
            reserved: 0,
            used: 0,
            created: WallTime(0),
            origin: None,
            snapshots: 0,
            snapshot_bytes: None,
            damaged: 0,
            schedule: Default::default(),
        }
    }

    fn mapping(volume: &VolumeInfo, to: &str, lun: u16) -> Mapping {
        Mapping {
            id: format!("{to}-{lun}"),
            created_unix_ms: 0,
            volume: volume.id.to_string(),
            pool: "p".into(),
            volume_name: format!("{}/{}", volume.pool, volume.name),
            target: None,
            to: to.into(),
            lun,
            logical_block_bytes: 512,
        }
    }

    #[test]
    fn an_initiator_sees_its_host_s_volumes_and_its_groups_and_no_others() {
        let volumes = [volume(1, "Tank", "a", 0), volume(2, "Tank", "b", 1), volume(3, "other", "c", 0)];
        let mut content = Content {
            hosts: vec![host("1", &["iqn.x", "iqn.y"]), host("2", &["iqn.z"])],
            groups: vec![Group {
                id: "g".into(),
                name: "cluster".into(),
                created_unix_ms: 0,
                revision: 1,
                came_with: None,
                hosts: vec!["1".into(), "2".into()],
            }],
            mappings: vec![
                mapping(&volumes[1], "1", 1),
                mapping(&volumes[0], "g", 0),
                mapping(&volumes[2], "2", 0),
            ],
            ..Content::default()
        };
        let map = AccessMap::default();
        assert!(map.admit("iqn.x").is_none(), "nobody is let in before the configuration is known");
        assert!(map.update(&content, &volumes));
        assert!(!map.update(&content, &volumes), "nothing new");
        let tank = "iqn.2026-11.io.forebay:tank";
        let numbers = |initiator: &str, target: &str| -> Vec<(u16, String)> {
            let admission = map.admit(initiator).expect("a known initiator");
            admission.luns(target).iter().map(|mapped| (mapped.lun, mapped.name.clone())).collect()
        };
        for initiator in ["iqn.x", "iqn.y"] {
            assert_eq!(numbers(initiator, tank), [(0, "Tank/a".into()), (1, "Tank/b".into())]);
            let admission = map.admit(initiator).unwrap();
            assert_eq!(admission.targets().collect::<Vec<_>>(), [tank]);
        }
        assert_eq!(numbers("iqn.z", tank), [(0, "Tank/a".into())]);
        assert_eq!(numbers("iqn.z", "iqn.2026-11.io.forebay:other"), [(0, "other/c".into())]);
        assert!(numbers("iqn.x", "iqn.2026-11.io.forebay:other").is_empty());
        assert!(map.admit("iqn.w").is_none() && map.admit("").is_none());

        // The pool leaves, and comes back with the volume on another core.
        assert!(map.update(&content, &volumes[2..]));
        assert!(numbers("iqn.x", tank).is_empty());
        assert_eq!(map.admit("iqn.x").unwrap().targets().count(), 0);
        let back = [volume(1, "Tank", "a", 3), volume(2, "Tank", "b", 1)];
        assert!(map.update(&content, &back));
        assert_eq!(map.admit("iqn.z").unwrap().luns(tank)[0].core, 3);

        // Those that see something are known by their name alone, until they have a secret.
        let open = map.hosts_without_secret();
        assert!(!open.is_empty() && open.iter().all(|name| name.starts_with("host-")), "{open:?}");
        for host in &mut content.hosts {
            host.chap = Some(Credentials { user: "u".into(), secret: "0123456789ab".into() });
        }
        assert!(map.update(&content, &back));
        assert_eq!(map.hosts_without_secret(), Vec::<String>::new());
    }

    #[test]
    fn a_new_secret_is_a_change() {
        let mut content = Content { hosts: vec![host("1", &["iqn.x"])], ..Content::default() };
        let map = AccessMap::default();
        assert!(map.update(&content, &[]));
        assert_eq!(map.admit("iqn.x").unwrap().chap, None);
        let chap = Credentials { user: "u".into(), secret: "0123456789ab".into() };
        content.hosts[0].chap = Some(chap.clone());
        assert!(map.update(&content, &[]));
        assert_eq!(map.admit("iqn.x").unwrap().chap, Some(chap));
    }
}
