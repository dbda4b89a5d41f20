//! Quotas of projects on simulated disks.
//!
//! What a project uses is compared with a plain model: who has which write, and every write counted once. The offline checker, which counts
//! each dataset anew, looks after each export and each loss of power.

use forebay_base::planted::{Bug, plant, times_met};
use forebay_base::{MIB, Random};
use forebay_pool::check::check;
use forebay_pool::{
    Compression, Engine, EngineConfig, Error, ErrorKind, Host, Import, IoError, Layout, PoolSpec,
    ProjectChange, ProjectProperties, ReceiveOptions, SendOptions, Setting, Volume, VolumeDelete,
    VolumeFormat, VolumeSpec,
};
use forebay_runtime::{Cores, Rt};
use forebay_simulation::{Fate, Image, World, WorldConfig};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(24 * 3600);
const BLOCK: u64 = 8192;
const BLOCKS: u64 = 4 * MIB / BLOCK;
const KEEP: VolumeDelete = VolumeDelete { with_snapshots: true, purge: false };
const PURGE: VolumeDelete = VolumeDelete { with_snapshots: true, purge: true };
/// Longer than from one sum to the next.
const A_WHILE: Duration = Duration::from_secs(3);

/// Block → the write that it holds.
type Contents = BTreeMap<u64, u64>;

/// A project's volumes, and each one's snapshots, oldest first.
#[derive(Default)]
struct Model {
    volumes: BTreeMap<String, (Contents, Vec<(String, Contents)>)>,
    writes: u64,
    names: u64,
}

struct Pool {
    rt: Rt,
    world: World,
    engine: Engine,
    paths: Vec<String>,
    events: Arc<Mutex<Vec<&'static str>>>,
    model: RefCell<Model>,
}

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

fn full(name: &str) -> String {
    format!("tank/{name}")
}

impl Pool {
    async fn project(&self, name: &str, quota: Option<u64>) {
        let said = ProjectProperties { quota, ..ProjectProperties::default() };
        self.engine.project_create(&full(name), said).await.expect("created");
    }

    async fn set_quota(&self, quota: Setting<u64>) {
        let change = ProjectChange { quota, ..ProjectChange::default() };
        self.engine.project_set("tank/db", change).await.expect("set");
    }

    async fn make(&self, name: &str, format: VolumeFormat) -> Result<(), Error> {
        let spec = VolumeSpec {
            pool: "tank".into(),
            name: name.into(),
            size: BLOCKS * BLOCK,
            block_size: BLOCK as u32,
            sync: None,
            compression: Some(Compression::Off),
            format,
            level: None,
            own_hosts: false,
        };
        self.engine.volume_create(spec).await.map(drop)
    }

    async fn create(&self, name: &str) {
        self.make(name, VolumeFormat::Thin).await.expect("created");
        self.model.borrow_mut().volumes.insert(name.into(), Default::default());
    }

    async fn open(&self, name: &str) -> Volume {
        Volume::open(&self.rt, self.engine.volume(&full(name)).await.expect("there").id).expect("open")
    }

    async fn try_write(&self, name: &str, first: u64, count: u64) -> Result<(), IoError> {
        let stamp = self.model.borrow().writes;
        let mut data = self.rt.buffer((count * BLOCK) as usize);
        data.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&stamp.to_le_bytes()));
        self.open(name).await.write(first * BLOCK, vec![data.freeze()], true).await?;
        let mut model = self.model.borrow_mut();
        let model = &mut *model;
        for block in first..first + count {
            model.writes += 1;
            model.volumes.get_mut(name).expect("known").0.insert(block, model.writes);
        }
        Ok(())
    }

    async fn write(&self, name: &str, first: u64, count: u64) {
        self.try_write(name, first, count).await.expect("written");
    }

    async fn discard(&self, name: &str, first: u64, count: u64) {
        self.open(name).await.discard(first * BLOCK, count * BLOCK, true).await.expect("discarded");
        let mut model = self.model.borrow_mut();
        model
            .volumes
            .get_mut(name)
            .expect("known")
            .0
            .retain(|block, _| !(first..first + count).contains(block));
    }

    async fn snapshot(&self, name: &str, snapshot: &str) {
        self.engine.snapshot_create(vec![full(name)], snapshot).await.expect("taken");
        let mut model = self.model.borrow_mut();
        let (contents, snapshots) = model.volumes.get_mut(name).expect("known");
        snapshots.push((snapshot.into(), contents.clone()));
    }

    async fn delete_snapshot(&self, name: &str, snapshot: &str) -> Result<(), Error> {
        self.engine.snapshot_delete(&full(&format!("{name}@{snapshot}"))).await?;
        let mut model = self.model.borrow_mut();
        model.volumes.get_mut(name).expect("known").1.retain(|(known, _)| known != snapshot);
        Ok(())
    }

    async fn used(&self) -> u64 {
        self.engine.project("tank/db").await.expect("there").used
    }

    /// What the model says.
    fn expected(&self) -> u64 {
        let model = self.model.borrow();
        let contents = model.volumes.values().flat_map(|(contents, snapshots)| {
            std::iter::once(contents).chain(snapshots.iter().map(|(_, contents)| contents))
        });
        contents.flat_map(Contents::values).collect::<BTreeSet<_>>().len() as u64 * BLOCK
    }

    /// What was written is in its place, and what was deleted is given back.
    async fn compare(&self) {
        let volumes: Vec<String> = self.model.borrow().volumes.keys().map(|name| full(name)).collect();
        if !volumes.is_empty() {
            // Snapshots have what log disks had.
            self.engine.snapshot_create(volumes.clone(), "drain").await.expect("taken");
            for volume in volumes {
                self.engine.snapshot_delete(&format!("{volume}@drain")).await.expect("deleted");
            }
        }
        for _ in 0..50 {
            self.engine.checkpoint("tank").await.expect("checkpoint");
            if self.used().await == self.expected() {
                return;
            }
            self.rt.sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(self.used().await, self.expected());
    }

    async fn import(&self) {
        let report = check(&self.rt, &self.paths).await.expect("checked");
        assert_eq!(report.problems, Vec::<String>::new());
        self.engine.pool_import("tank", self.paths.clone(), Import::default()).await.expect("imported");
    }

    async fn again(&self) {
        self.engine.pool_export("tank").await.expect("exported");
        self.import().await;
    }

    /// The pool as a loss of power leaves it now.
    async fn crash(&self) {
        let images = self.world.power_loss(|_, _| Fate::Lost);
        self.engine.pool_export("tank").await.expect("exported");
        images.into_iter().enumerate().for_each(|(disk, image)| self.world.set_image(disk, image));
        self.import().await;
    }

    fn told(&self) -> Vec<&'static str> {
        let mut events = self.events.lock().expect("not poisoned");
        events.drain(..).filter(|code| code.starts_with("project.quota")).collect()
    }

    /// A random change of the model's volumes, within some bounds.
    async fn change(&self, random: &mut Random) {
        let names: Vec<String> = self.model.borrow().volumes.keys().cloned().collect();
        if names.is_empty() || (names.len() < 4 && random.one_in(16)) {
            let name = self.new_name("db/v");
            return self.create(&name).await;
        }
        let name = &names[random.below(names.len() as u64) as usize];
        let snapshots: Vec<String> = {
            let model = self.model.borrow();
            model.volumes[name].1.iter().map(|(snapshot, _)| snapshot.clone()).collect()
        };
        let first = random.below(BLOCKS - 16);
        match random.below(32) {
            0..=13 => self.write(name, first, 1 + random.below(16)).await,
            14..=17 => self.discard(name, first, 1 + random.below(16)).await,
            18..=21 if snapshots.len() < 5 => self.snapshot(name, &self.new_name("s")).await,
            22..=25 if !snapshots.is_empty() => {
                // One with a clone stays.
                let snapshot = &snapshots[random.below(snapshots.len() as u64) as usize];
                let _ = self.delete_snapshot(name, snapshot).await;
            }
            26 if !snapshots.is_empty() && names.len() < 4 => self.clone_of(name, &snapshots, random).await,
            27 if !snapshots.is_empty() => self.roll_back(name, &snapshots, random).await,
            28 => self.promote(name).await,
            29 => {
                if self.engine.volume_delete(&full(name), PURGE).await.is_ok() {
                    self.model.borrow_mut().volumes.remove(name);
                }
            }
            30 => self.again().await,
            _ => self.crash().await,
        }
    }

    fn new_name(&self, what: &str) -> String {
        let mut model = self.model.borrow_mut();
        model.names += 1;
        format!("{what}{}", model.names)
    }

    async fn clone_of(&self, name: &str, snapshots: &[String], random: &mut Random) {
        let snapshot = &snapshots[random.below(snapshots.len() as u64) as usize];
        let new = self.new_name("db/c");
        self.engine.volume_clone(&full(&format!("{name}@{snapshot}")), &new).await.expect("cloned");
        let mut model = self.model.borrow_mut();
        let of = |(known, _): &&(String, Contents)| known == snapshot;
        let contents = model.volumes[name].1.iter().find(of).expect("known").1.clone();
        model.volumes.insert(new, (contents, Vec::new()));
    }

    /// Goes back to a snapshot; those after it stay, where they may.
    async fn roll_back(&self, name: &str, snapshots: &[String], random: &mut Random) {
        let snapshot = &snapshots[random.below(snapshots.len() as u64) as usize];
        if self.engine.volume_rollback(&full(&format!("{name}@{snapshot}"))).await.is_err() {
            return;
        }
        let mut model = self.model.borrow_mut();
        let (contents, known) = model.volumes.get_mut(name).expect("known");
        *contents = known.iter().find(|(known, _)| known == snapshot).expect("known").1.clone();
    }

    async fn promote(&self, name: &str) {
        if self.engine.volume_promote(&full(name)).await.is_err() {
            return;
        }
        // Whose snapshots they are now, the pool says.
        let listed = self.engine.snapshots(Some("tank")).await.expect("listed");
        let mut model = self.model.borrow_mut();
        let all: BTreeMap<String, Contents> =
            model.volumes.values_mut().flat_map(|(_, snapshots)| std::mem::take(snapshots)).collect();
        for info in listed {
            let (_, snapshots) = model.volumes.get_mut(&info.volume).expect("known");
            snapshots.push((info.name.clone(), all[&info.name].clone()));
        }
    }
}

/// Runs `main` on pools of several kinds; the offline checker has the last word.
fn on_pools<W: Future<Output = ()> + 'static>(seed: u64, main: impl Fn(Rc<Pool>) -> W) {
    for (layout, data, log, shards) in [(Layout::Single, 1, 0, 1), (Layout::Mirror, 2, 1, 3)] {
        let world = World::new(WorldConfig::new(seed));
        (0..data + log).for_each(|_| {
            world.add_disk(Image::new(128 * MIB));
        });
        let (executor, cores): (_, Cores) = world.executor(shards);
        let rt = executor.rt().clone();
        let names = |range: std::ops::Range<usize>| range.map(|nth| format!("sim{nth}")).collect::<Vec<_>>();
        let spec = PoolSpec {
            name: "tank".into(),
            layout,
            disks: names(0..data),
            log_disks: names(data..data + log),
            spare_disks: Vec::new(),
            cache_disks: Vec::new(),
            enclosures: Vec::new(),
            sectors: Vec::new(),
            shards,
            log_bytes: None,
            force: false,
        };
        let events: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let told = events.clone();
        let config = EngineConfig {
            memory: 16 << 20,
            events: Arc::new(move |event| told.lock().expect("not poisoned").push(event.code)),
            host: Host::default(),
        };
        let (engine, paths) = (Engine::new(cores, config), names(0..data + log));
        let model = RefCell::default();
        let pool = Rc::new(Pool { rt, world: world.clone(), engine, paths, events, model });
        let test = main(pool.clone());
        let whole = async move {
            pool.engine.pool_create(spec).await.expect("created");
            test.await;
            pool.again().await;
        };
        world.run(&executor, LIMIT, whole).expect("finishes");
    }
}

/// Goal: whatever happens to volumes and their snapshots, and whenever the power goes, the sum is what a plain model says.
#[test]
fn a_project_uses_what_its_volumes_and_snapshots_have() {
    for seed in 0..6 {
        on_pools(seed, move |pool| async move {
            let mut random = Random::new(seed);
            pool.project("db", None).await;
            for nth in 1..=160 {
                pool.change(&mut random).await;
                if nth % 20 == 0 {
                    pool.compare().await;
                }
            }
        });
    }
}

#[test]
fn what_the_child_of_a_deleted_snapshot_has_from_it_counts_there() {
    on_pools(1, |pool| async move {
        pool.project("db", None).await;
        pool.create("db/a").await;
        pool.write("db/a", 0, 32).await;
        pool.snapshot("db/a", "one").await;
        pool.write("db/a", 16, 32).await;
        pool.snapshot("db/a", "two").await;
        pool.write("db/a", 0, 8).await;
        pool.compare().await;
        assert_eq!(pool.used().await, (32 + 32 + 8) * BLOCK);
        pool.delete_snapshot("db/a", "one").await.expect("deleted");
        pool.compare().await;
        assert_eq!(pool.used().await, (16 + 32 + 8) * BLOCK, "to a snapshot");
        pool.delete_snapshot("db/a", "two").await.expect("deleted");
        pool.compare().await;
        assert_eq!(pool.used().await, 48 * BLOCK, "to the volume");
        pool.discard("db/a", 0, 48).await;
        pool.compare().await;
        assert_eq!(pool.used().await, 0);
    });
}

#[test]
fn the_checker_finds_a_rest_that_nobody_was_given() {
    plant(Some(Bug::RestNotGivenToChild));
    let found = std::panic::catch_unwind(|| {
        on_pools(1, |pool| async move {
            pool.project("db", None).await;
            pool.create("db/a").await;
            pool.write("db/a", 0, 32).await;
            pool.snapshot("db/a", "one").await;
            pool.delete_snapshot("db/a", "one").await.expect("deleted");
            pool.rt.sleep(A_WHILE).await;
        });
    });
    assert!(found.is_err() && times_met() > 0);
    plant(None);
}

#[test]
fn what_is_received_counts_as_written() {
    on_pools(1, |pool| async move {
        pool.project("db", None).await;
        pool.create("db/a").await;
        pool.write("db/a", 0, 40).await;
        pool.engine.snapshot_create(vec!["tank/db/a".into()], "s").await.expect("taken");
        let options = SendOptions { from: None, resume: None };
        let mut stream = pool.engine.snapshot_send("tank/db/a@s", options).await.expect("sent");
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await.expect("sent") {
            bytes.extend(piece);
        }
        let receive = async |len: usize| {
            let mut receiver = pool.engine.snapshot_receive("tank/db/b", ReceiveOptions::default()).await?;
            receiver.push(&bytes[..len]).await?;
            receiver.finish().await
        };
        receive(bytes.len() - 1).await.expect_err("cut");
        assert!(pool.used().await > 40 * BLOCK, "a part of a volume counts");
        pool.again().await;
        receive(bytes.len()).await.expect("received");
        pool.engine.checkpoint("tank").await.expect("checkpoint");
        assert_eq!(pool.used().await, 80 * BLOCK);
        pool.engine.volume_delete("tank/db/b", KEEP).await.expect("deleted");
        pool.again().await;
        assert_eq!(pool.used().await, 80 * BLOCK, "in the trash as well");
        pool.engine.volume_purge("tank/db/b").await.expect("purged");
        pool.rt.sleep(A_WHILE).await;
        assert_eq!(pool.used().await, 40 * BLOCK);
    });
}

/// Overwrites the same few blocks of two volumes, with snapshots between, until that is refused.
async fn fill(pool: &Pool) {
    for round in 0..1000 {
        for name in ["db/a", "db/b"] {
            match pool.try_write(name, 0, 4).await {
                Ok(()) => {}
                Err(error) => return assert_eq!(error, IoError::NoSpace),
            }
            pool.snapshot(name, &format!("s{round}")).await;
            pool.rt.sleep(Duration::from_millis(60)).await;
        }
    }
    panic!("the quota does not hold");
}

#[test]
fn a_quota_holds_over_volumes_and_snapshots() {
    on_pools(1, |pool| async move {
        pool.project("db", Some(MIB)).await;
        for name in ["db/a", "db/b"] {
            pool.create(name).await;
        }
        pool.make("alone", VolumeFormat::Thin).await.expect("created");
        fill(&pool).await;
        let used = pool.used().await;
        assert!((MIB..MIB + 16 * BLOCK).contains(&used), "{used}");
        let project = pool.engine.project("tank/db").await.expect("there");
        assert!(project.mapped < MIB / 8, "what is written in volumes says nothing: {project:?}");
        assert_eq!(pool.told(), ["project.quota_near", "project.quota_reached"]);
        // It stays so, for all its volumes and nobody else.
        for _ in 0..2 {
            for name in ["db/a", "db/b"] {
                assert_eq!(pool.try_write(name, 100, 1).await, Err(IoError::NoSpace));
            }
            let zeros = pool.rt.arena().take_zeroed(BLOCK as usize).freeze();
            pool.open("alone").await.write(0, vec![zeros], true).await.expect("written");
            pool.again().await;
        }
        pool.told();
        // Discards go on, and help where no snapshot has the blocks.
        pool.discard("db/a", 0, 4).await;
        for round in 1..=6 {
            pool.delete_snapshot("db/b", &format!("s{round}")).await.expect("deleted");
        }
        pool.rt.sleep(A_WHILE).await;
        pool.write("db/a", 100, 1).await;
        assert_eq!(pool.told(), ["project.quota_below"]);
        // A change is in force at once.
        pool.set_quota(Setting::Own(MIB)).await;
        pool.set_quota(Setting::Own(2 * MIB)).await;
        pool.write("db/a", 100, 64).await;
        pool.set_quota(Setting::Own(MIB)).await;
        assert_eq!(pool.try_write("db/a", 100, 1).await, Err(IoError::NoSpace));
        pool.set_quota(Setting::Inherit).await;
        pool.write("db/a", 100, 1).await;
    });
}

#[test]
fn a_quota_that_was_changed_stays_so() {
    on_pools(1, |pool| async move {
        pool.project("db", Some(MIB)).await;
        for quota in [Setting::Own(3 * MIB), Setting::Own(2 * MIB), Setting::Inherit, Setting::Own(4 * MIB)] {
            pool.set_quota(quota).await;
            let block_size = Setting::Own(32 << 10);
            let change = ProjectChange { block_size, ..ProjectChange::default() };
            pool.engine.project_set("tank/db", change).await.expect("set");
            let before = pool.engine.project("tank/db").await.expect("there").properties;
            pool.again().await;
            let after = pool.engine.project("tank/db").await.expect("there").properties;
            assert_eq!((after.quota, after.block_size), (before.quota, Some(32 << 10)));
            assert_eq!(before.quota, if let Setting::Own(quota) = quota { Some(quota) } else { None });
        }
    });
}

/// Overwriting a volume whose leaves are not in memory needs no more of the quota than it has.
#[test]
fn overwriting_near_the_quota_goes_on() {
    on_pools(1, |pool| async move {
        pool.project("db", Some(2 * MIB)).await;
        pool.create("db/a").await;
        pool.write("db/a", 0, 240).await;
        for _ in 0..3 {
            pool.again().await;
            for first in (0..240).step_by(16) {
                pool.write("db/a", first, 16).await;
                pool.rt.sleep(Duration::from_millis(200)).await;
            }
        }
        assert!(!pool.told().contains(&"project.quota_reached"));
    });
}

#[test]
fn what_would_need_more_is_refused() {
    on_pools(1, |pool| async move {
        let size = BLOCKS * BLOCK;
        pool.project("db", Some(size)).await;
        pool.create("db/a").await;
        pool.write("db/a", 0, 1).await;
        pool.snapshot("db/a", "s").await;
        pool.compare().await;
        // What is held counts from the beginning.
        assert_eq!(kind(pool.make("db/thick", VolumeFormat::ZeroedThick).await), Some(ErrorKind::NoSpace));
        let thick = pool.engine.volume_convert("tank/db/a", VolumeFormat::ZeroedThick).await;
        assert_eq!(kind(thick), Some(ErrorKind::NoSpace));
        pool.set_quota(Setting::Own(size + BLOCK)).await;
        pool.make("db/thick", VolumeFormat::ZeroedThick).await.expect("created");
        assert_eq!(pool.used().await, size + BLOCK);
        pool.rt.sleep(A_WHILE).await;
        assert_eq!(pool.try_write("db/a", 0, 1).await, Err(IoError::NoSpace));
        // It has its space already, and may use it.
        pool.model.borrow_mut().volumes.insert("db/thick".into(), Default::default());
        pool.write("db/thick", 0, BLOCKS).await;
        pool.write("db/thick", 0, BLOCKS).await;
        pool.engine.checkpoint("tank").await.expect("checkpoint");
        assert_eq!(pool.used().await, size + BLOCK);
        assert_eq!(kind(pool.make("db/b", VolumeFormat::Thin).await), Some(ErrorKind::NoSpace));
        let clone = pool.engine.volume_clone("tank/db/a@s", "db/c").await;
        assert_eq!(kind(clone), Some(ErrorKind::NoSpace));
        let grown = pool.engine.volume_resize("tank/db/thick", 2 * size).await;
        assert_eq!(kind(grown), Some(ErrorKind::NoSpace));
        // A volume that is in the project already comes back from the trash; another one does not come.
        pool.engine.volume_delete("tank/db/a", KEEP).await.expect("deleted");
        pool.engine.volume_restore("tank/db/a", None).await.expect("restored");
        pool.make("alone", VolumeFormat::Thin).await.expect("created");
        pool.engine.volume_delete("tank/alone", KEEP).await.expect("deleted");
        let moved = pool.engine.volume_restore("tank/alone", Some("db/alone")).await;
        assert_eq!(kind(moved), Some(ErrorKind::NoSpace));
        pool.set_quota(Setting::Own(2 * size)).await;
        pool.engine.volume_restore("tank/alone", Some("db/alone")).await.expect("restored");
        let change = ProjectChange { quota: Setting::Own(MIB - 1), ..ProjectChange::default() };
        let changed = pool.engine.project_set("tank/db", change).await;
        assert_eq!(kind(changed), Some(ErrorKind::Invalid("quota")));
    });
}
