//! Disks that fail, shrink, hang or are in use: what a pool makes of them, on simulated disks. Each test asks one question.

use crate::engine::volume;
use forebay_base::planted::{Bug, plant, times_met};
use forebay_base::{MIB, Random};
use forebay_pool::{
    DiskAdd, DiskReplace, DiskState, Engine, EngineConfig, Error, ErrorKind, Event, GroupAdd, Host, Import,
    Layout, PoolSpec, PoolState, PoolStatus, SyncPolicy, Volume, VolumeSpec,
};
use forebay_runtime::{Buf, DiskErrorKind, Rt};
use forebay_simulation::{Action, Fate, Image, OpKind, Rule, World, WorldConfig};
use futures_util::future::join;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(3600);
const BLOCK: usize = 8192;
const DISK: u64 = 64 * MIB;

/// An engine in a world, with what it has told.
struct Bench {
    world: World,
    rt: Rt,
    engine: Engine,
    paths: Vec<String>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    async fn create(&self, layout: Layout) {
        self.engine.pool_create(spec("tank", layout, &self.paths)).await.expect("created");
    }

    async fn volume(&self, sync: SyncPolicy) -> Volume {
        let spec = VolumeSpec { sync: Some(sync), ..volume("v", 8 * MIB, BLOCK as u32) };
        let id = self.engine.volume_create(spec).await.expect("created").id;
        Volume::open(&self.rt, id).expect("open")
    }

    async fn opened(&self) -> Volume {
        let id = self.engine.volume("tank/v").await.expect("exists").id;
        Volume::open(&self.rt, id).expect("open")
    }

    fn block(&self, seed: u64) -> Buf {
        let mut buffer = self.rt.buffer(BLOCK);
        Random::new(seed).fill(&mut buffer);
        buffer.freeze()
    }

    /// Panics unless a block holds this.
    async fn check(&self, volume: &Volume, at: u64, seed: u64) {
        let parts = volume.read(at, BLOCK).await.expect("read");
        let read: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        assert!(read[..] == self.block(seed)[..], "what is at {at} is not what was written");
    }

    async fn import(&self) -> Result<PoolStatus, Error> {
        self.engine.pool_import("tank", self.paths.clone(), Import::default()).await
    }

    /// The power goes; what was not durable is lost or not as `fate` says.
    async fn power_loss(&self, fate: impl FnMut(usize, usize) -> Fate) {
        let images = self.world.power_loss(fate);
        let _ = self.engine.pool_export("tank").await;
        images.into_iter().enumerate().for_each(|(disk, image)| self.world.set_image(disk, image));
    }

    async fn status(&self) -> PoolStatus {
        self.engine.pools().await.into_iter().next().expect("imported")
    }

    async fn states(&self) -> Vec<DiskState> {
        self.status().await.groups[0].disks.iter().map(|disk| disk.state).collect()
    }

    /// Messages with this code that name this disk, since this was last asked.
    fn told(&self, code: &str, disk: &str) -> Vec<String> {
        let events = std::mem::take(&mut *self.events.lock().expect("one thread"));
        let meant = events.into_iter().filter(|event| event.code == code && event.object == disk);
        meant.map(|event| event.message).collect()
    }
}

fn spec(name: &str, layout: Layout, disks: &[String]) -> PoolSpec {
    PoolSpec {
        name: name.into(),
        layout,
        disks: disks.to_vec(),
        log_disks: Vec::new(),
        spare_disks: Vec::new(),
        cache_disks: Vec::new(),
        enclosures: Vec::new(),
        sectors: Vec::new(),
        shards: 1,
        log_bytes: None,
        force: false,
    }
}

/// Runs `main` with so many disks, of which a pool may take the first.
fn on_disks<W: Future<Output = ()> + 'static>(
    (disks, of_pool): (usize, usize),
    seed: u64,
    main: impl FnOnce(Rc<Bench>) -> W,
) {
    let world = World::new(WorldConfig::new(seed));
    for _ in 0..disks {
        world.add_disk(Image::new(DISK));
    }
    let (executor, cores) = world.executor(1);
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = events.clone();
    let tell = move |event: Event| seen.lock().expect("one thread").push(event);
    let config = EngineConfig { memory: 16 << 20, events: Arc::new(tell), host: Host::default() };
    let paths = (0..of_pool).map(|disk| format!("sim{disk}")).collect();
    let rt = executor.rt().clone();
    let bench = Bench { world: world.clone(), rt, engine: Engine::new(cores, config), paths, events };
    world.run(&executor, LIMIT, main(Rc::new(bench))).expect("finishes");
}

/// Goal: a disk that reads and does not take its label is no worse for an import than one that is missing.
#[test]
fn a_disk_that_refuses_its_label_is_one_that_failed() {
    on_disks((3, 3), 1, |bench| async move {
        bench.create(Layout::Mirror3).await;
        let volume = bench.volume(SyncPolicy::Always).await;
        volume.write(0, vec![bench.block(1)], true).await.expect("written");
        bench.engine.pool_export("tank").await.expect("exported");
        bench.world.set_gone(2, true);
        bench.world.add_rule(Rule::new(1, Action::Fail(DiskErrorKind::Io)).on(OpKind::Write));
        let status = bench.import().await.expect("the layout can lose both");
        assert_eq!(status.state, PoolState::Degraded);
        use DiskState::{Failed, Missing, Online};
        assert_eq!(bench.states().await, [Online, Failed, Missing]);
        assert_eq!(bench.told("disk.failed", "tank/1").len(), 1);
        let volume = bench.opened().await;
        bench.check(&volume, 0, 1).await;
        volume.write(0, vec![bench.block(2)], true).await.expect("written");
        // It is recorded: what it has is stale, also when it is back and takes writes.
        bench.engine.pool_export("tank").await.expect("exported");
        bench.world.take_rules();
        bench.world.set_gone(2, false);
        bench.import().await.expect("imported");
        assert_eq!(bench.told("disk.stale", "tank/1").len(), 1);
        let volume = bench.opened().await;
        bench.check(&volume, 0, 2).await;
    });
}

/// Goal: a pool that has lost more than it can while it was imported is refused, and says which disks.
#[test]
fn an_import_that_loses_too_many_disks_names_them() {
    on_disks((2, 2), 1, |bench| async move {
        bench.create(Layout::Mirror).await;
        bench.engine.pool_export("tank").await.expect("exported");
        bench.world.set_gone(1, true);
        bench.world.add_rule(Rule::new(0, Action::Fail(DiskErrorKind::Io)).on(OpKind::Write));
        let refused = bench.import().await.expect_err("no disk takes the label");
        assert!(refused.kind == ErrorKind::Io && refused.message.contains("0 sim0"), "{refused}");
        assert!(bench.engine.pools().await.is_empty());
        bench.world.take_rules();
        assert_eq!(bench.import().await.expect("imported").state, PoolState::Degraded);
    });
}

/// Goal: what a disk fails while the log is replayed is recorded when the import is through, not with the next write that meets it.
#[test]
fn failures_of_an_import_are_recorded() {
    for seed in 0..12 {
        on_disks((3, 3), seed, move |bench| async move {
            bench.create(Layout::Parity { data: 2, parity: 1 }).await;
            let volume = bench.volume(SyncPolicy::Always).await;
            let mut random = Random::new(seed);
            for nth in 0..120 {
                let at = random.below(1024) * BLOCK as u64;
                volume.write(at, vec![bench.block(nth)], true).await.expect("written");
            }
            bench.power_loss(|_, _| if random.one_in(2) { Fate::Whole } else { Fate::Lost }).await;
            bench.world.add_rule(Rule::new(1, Action::Fail(DiskErrorKind::Io)).on(OpKind::Write).times(1));
            let status = bench.import().await.expect("the layout can lose it");
            assert_eq!(bench.world.faults_fired(), 1);
            assert_eq!(status.state, PoolState::Degraded, "seed {seed}");
            assert_eq!(bench.told("disk.failed", "tank/1").len(), 1, "seed {seed}");
        });
    }
}

/// Goal: a disk that answers what it is asked and takes no writes keeps no pool from being imported that can lose it.
#[test]
fn an_import_waits_for_no_disk_that_takes_no_writes() {
    for (kind, is_missing) in
        [(OpKind::Write, false), (OpKind::Flush, false), (OpKind::Write, true), (OpKind::Flush, true)]
    {
        on_disks((3, 3), 7, move |bench| async move {
            bench.create(Layout::Mirror3).await;
            let volume = bench.volume(SyncPolicy::Always).await;
            for nth in 0..20 {
                volume.write(nth * BLOCK as u64, vec![bench.block(nth)], true).await.expect("written");
            }
            bench.engine.pool_export("tank").await.expect("exported");
            // Then the label says something new, and is written.
            bench.world.set_gone(2, is_missing);
            bench.world.add_rule(Rule::new(1, Action::Hang).on(kind));
            assert_eq!(bench.import().await.expect("one copy is whole").state, PoolState::Degraded);
            let volume = bench.opened().await;
            for nth in 0..20 {
                bench.check(&volume, nth * BLOCK as u64, nth).await;
            }
            bench.world.take_rules();
            bench.world.release(1);
        });
    }
}

/// Goal: a disk that may still carry out writes from before is not taken back, also when its pool was exported and imported meanwhile.
#[test]
fn a_disk_that_owes_answers_stays_out() {
    on_disks((2, 2), 9, |bench| async move {
        bench.create(Layout::Mirror).await;
        let volume = bench.volume(SyncPolicy::Always).await;
        volume.write(0, vec![bench.block(1)], true).await.expect("written");
        bench.world.add_rule(Rule::new(1, Action::Hang).on(OpKind::Write));
        volume.write(0, vec![bench.block(2)], true).await.expect("the disk that hangs is taken out");
        drop(volume);
        bench.world.take_rules();
        for is_imported in [false, true] {
            if is_imported {
                bench.engine.pool_export("tank").await.expect("exported");
                bench.import().await.expect("imported");
            }
            let owes =
                bench.engine.disk_online("tank", "1", Some("sim1")).await.expect_err("it owes answers");
            assert!(owes.message.contains("still owes answers"), "{owes}");
        }
        bench.world.release(1);
        bench.rt.sleep(Duration::from_secs(1)).await;
        bench.engine.disk_online("tank", "1", Some("sim1")).await.expect("it has answered");
        bench.check(&bench.opened().await, 0, 2).await;
    });
}

/// Goal: a disk that comes back and fails again is one loss, under however many numbers.
#[test]
fn a_disk_that_fails_again_takes_nobody_along() {
    for (layout, disks) in [(Layout::Mirror, 2), (Layout::Parity { data: 2, parity: 1 }, 3)] {
        on_disks((disks, disks), 11, move |bench| async move {
            bench.create(layout).await;
            let volume = bench.volume(SyncPolicy::Always).await;
            for nth in 0..40 {
                volume.write(nth * BLOCK as u64, vec![bench.block(nth)], true).await.expect("written");
            }
            let size = bench.status().await.size;
            for number in [1, disks, disks + 1] {
                bench.world.add_rule(Rule::new(1, Action::Fail(DiskErrorKind::NoSpace)).on(OpKind::Write));
                for nth in 0..40 {
                    let block = vec![bench.block(100 + nth)];
                    volume.write(nth * BLOCK as u64, block, true).await.expect("the layout can lose one");
                }
                let status = bench.status().await;
                assert_eq!(status.state, PoolState::Degraded, "number {number}");
                assert!(status.size <= size, "number {number}: {} bytes of {size}", status.size);
                bench.world.take_rules();
                bench
                    .engine
                    .disk_online("tank", &number.to_string(), Some("sim1"))
                    .await
                    .expect("it is back");
            }
            for _ in 0..100 {
                bench.rt.sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(bench.status().await.state, PoolState::Online);
            // What it has now is all of it.
            bench.engine.pool_export("tank").await.expect("exported");
            bench.world.set_gone(0, true);
            bench.import().await.expect("the layout can lose one");
            let volume = bench.opened().await;
            for nth in 0..40 {
                bench.check(&volume, nth * BLOCK as u64, 100 + nth).await;
            }
        });
    }
}

/// Goal: a disk that was taken out of service knows it, and is not imported alone with what it had then.
#[test]
fn a_disk_taken_offline_is_not_taken_for_the_pool() {
    on_disks((2, 2), 13, |bench| async move {
        bench.create(Layout::Mirror).await;
        let volume = bench.volume(SyncPolicy::Always).await;
        volume.write(0, vec![bench.block(1)], true).await.expect("written");
        bench.engine.disk_offline("tank", "1").await.expect("the other is whole");
        volume.write(0, vec![bench.block(2)], true).await.expect("written");
        drop(volume);
        bench.engine.pool_export("tank").await.expect("exported");
        bench.world.set_gone(0, true);
        let refused = bench.import().await.expect_err("what is there is old");
        assert!(refused.message.contains("no superblock can be read"), "{refused}");
        bench.world.set_gone(0, false);
        bench.import().await.expect("the newest is there");
        bench.check(&bench.opened().await, 0, 2).await;
        bench.engine.disk_online("tank", "1", Some("sim1")).await.expect("it comes back");
        bench.rt.sleep(Duration::from_secs(20)).await;
        assert_eq!(bench.status().await.state, PoolState::Online);
    });
}

/// Goal: two halves of a mirror that each went on without the other are never made one, at an import or by taking one back.
#[test]
fn halves_that_have_parted_stay_apart() {
    on_disks((2, 2), 15, |bench| async move {
        bench.create(Layout::Mirror).await;
        let volume = bench.volume(SyncPolicy::Always).await;
        volume.write(0, vec![bench.block(1)], true).await.expect("written");
        bench.world.add_rule(Rule::new(1, Action::Fail(DiskErrorKind::Io)).on(OpKind::Write));
        volume.write(0, vec![bench.block(2)], true).await.expect("the other takes it");
        drop(volume);
        bench.world.take_rules();
        bench.engine.pool_export("tank").await.expect("exported");
        // Nothing on the disk that failed says that it did.
        bench.world.set_gone(0, true);
        bench.import().await.expect("one of two");
        let volume = bench.opened().await;
        bench.check(&volume, 0, 1).await;
        volume.write(0, vec![bench.block(3)], true).await.expect("written");
        drop(volume);
        bench.world.set_gone(0, false);
        let refused =
            bench.engine.disk_online("tank", "0", Some("sim0")).await.expect_err("it has newer data");
        assert!(refused.message.contains("have diverged"), "{refused}");
        bench.engine.pool_export("tank").await.expect("exported");
        let refused = bench.import().await.expect_err("both at once");
        assert!(refused.message.contains("have diverged"), "{refused}");
        bench.world.set_gone(1, true);
        bench.import().await.expect("the side that is wanted");
        bench.check(&bench.opened().await, 0, 2).await;
    });
}

/// Goal: a disk that has become shorter is one that failed, at the import and while the pool runs; it comes back whole.
#[test]
fn a_disk_that_has_shrunk_is_one_that_failed() {
    on_disks((2, 2), 1, |bench| async move {
        bench.create(Layout::Mirror).await;
        let volume = bench.volume(SyncPolicy::Always).await;
        for nth in 0..100 {
            volume.write(nth * BLOCK as u64, vec![bench.block(nth)], true).await.expect("written");
        }
        bench.engine.pool_export("tank").await.expect("exported");
        bench.world.shrink(1, DISK / 2);
        assert_eq!(bench.import().await.expect("the other is whole").state, PoolState::Degraded);
        let told = bench.told("disk.failed", "tank/1");
        assert!(told.len() == 1 && told[0].contains("has shrunk"), "{told:?}");
        let again = bench.engine.disk_online("tank", "1", Some("sim1")).await.expect_err("it is too short");
        assert!(again.message.contains("shrunk"), "{again}");
        let volume = bench.opened().await;
        for nth in 0..100 {
            bench.check(&volume, nth * BLOCK as u64, nth).await;
        }
        // Nothing that it still holds is trusted when it has its size again.
        bench.engine.pool_export("tank").await.expect("exported");
        bench.world.shrink(0, DISK / 2);
        let refused = bench.import().await.expect_err("no disk is whole");
        assert!(refused.message.contains("shrunk") && refused.remedy.contains("size"), "{refused}");
    });
    on_disks((2, 2), 2, |bench| async move {
        bench.create(Layout::Mirror).await;
        let volume = bench.volume(SyncPolicy::Always).await;
        for nth in 0..1000 {
            volume.write(nth * BLOCK as u64, vec![bench.block(nth)], true).await.expect("written");
        }
        bench.world.shrink(1, MIB);
        for nth in 0..100 {
            // Some read or write meets the end.
            volume.write(nth * BLOCK as u64, vec![bench.block(nth)], true).await.expect("written");
        }
        assert_eq!(bench.states().await, [DiskState::Online, DiskState::Failed]);
        let told = bench.told("disk.failed", "tank/1");
        assert!(told.len() == 1 && told[0].contains("shrunk"), "{told:?}");
        for nth in 0..1000 {
            bench.check(&volume, nth * BLOCK as u64, nth).await;
        }
    });
}

/// How long the slowest of some durable writes takes when one of so many disks fails.
fn longest_write(disks: usize) -> u64 {
    let longest = Rc::new(Cell::new(0));
    let seen = longest.clone();
    on_disks((disks, disks), 1, move |bench| async move {
        bench.create(Layout::Mirror).await;
        let volume = bench.volume(SyncPolicy::Always).await;
        bench.world.add_rule(Rule::new(0, Action::Fail(DiskErrorKind::Io)).on(OpKind::Write).times(1));
        for nth in 0..400 {
            let begun = bench.rt.now();
            volume.write(nth * BLOCK as u64, vec![bench.block(nth)], true).await.expect("written");
            seen.set(bench.rt.now().since(begun).max(seen.get()));
        }
        assert_eq!(bench.told("disk.failed", "tank/0").len(), 1);
    });
    longest.get()
}

/// Goal: a write that meets a failed disk waits for one label, however many disks there are.
#[test]
fn labels_are_written_side_by_side() {
    let (few, many) = (longest_write(2), longest_write(16));
    assert!(many <= 2 * few, "{} us with 2 disks, {} us with 16", few / 1000, many / 1000);
}

/// Goal: a daemon that stood still takes no disk out for it; one that hangs is taken out all the same.
#[test]
fn a_standstill_is_no_disks_fault() {
    for seed in 0..6 {
        on_disks((2, 2), seed, move |bench| async move {
            bench.create(Layout::Mirror).await;
            let volume = bench.volume(SyncPolicy::Always).await;
            let over = Cell::new(false);
            let writing = async {
                // There is always something in flight.
                for nth in (0..1000).cycle().take_while(|_| !over.get()) {
                    volume.write(nth * BLOCK as u64, vec![bench.block(nth)], true).await.expect("written");
                }
            };
            let stopping = async {
                for _ in 0..5 {
                    bench.rt.sleep(Duration::from_micros(10_000 + bench.rt.random() % 5_000)).await;
                    bench.world.stand_still(Duration::from_secs(60));
                }
                bench.rt.sleep(Duration::from_millis(20)).await;
                over.set(true);
            };
            join(writing, stopping).await;
            assert_eq!(bench.states().await, [DiskState::Online; 2], "seed {seed}");
            // The time that it stood still is not a time in which a disk may hang.
            bench.world.add_rule(Rule::new(1, Action::Hang));
            let begun = bench.rt.now();
            volume.write(0, vec![bench.block(1)], true).await.expect("written");
            let took = bench.rt.now().since(begun) / 1_000_000_000;
            assert!((10..25).contains(&took), "it was taken out after {took} seconds");
            bench.world.take_rules();
            bench.world.release(1);
        });
    }
}

/// Goal: a disk of an imported pool is refused by whatever name and for whatever purpose, also when that is forced, and in a check.
#[test]
fn force_takes_no_disk_that_is_in_use() {
    on_disks((4, 1), 1, |bench| async move {
        bench.create(Layout::Single).await;
        let volume = bench.volume(SyncPolicy::Always).await;
        volume.write(0, vec![bench.block(1)], true).await.expect("written");
        let mirror = spec("other", Layout::Mirror, &["sim1".into(), "sim2".into()]);
        bench.engine.pool_create(mirror).await.expect("created");
        bench.world.alias("link", 0);
        let engine = &bench.engine;
        let refused = |result: Result<(), Error>, what: &str| {
            let error = result.expect_err(what);
            assert_eq!((error.kind, error.object.as_str()), (ErrorKind::Unsafe, "link"), "{what}: {error}");
            assert!(error.message.contains("disk tank/0 of an imported pool"), "{what}: {error}");
            assert!(!error.remedy.contains("force"), "{what}: {error}");
        };
        let link = || vec!["link".to_string()];
        let forced = || PoolSpec { force: true, ..spec("new", Layout::Single, &link()) };
        refused(engine.pool_create(forced()).await.map(drop), "create");
        refused(engine.pool_create_check(forced()).await.map(drop), "a check of create");
        for pool in ["tank", "other"] {
            let add = DiskAdd { force: true, ..DiskAdd::default() };
            refused(engine.disk_add(pool, link(), add.clone()).await.map(drop), "add");
            refused(
                engine.disk_add_check(pool, vec![("link".into(), add)]).await.map(drop),
                "a check of add",
            );
            let with = DiskReplace { new: Some("link".into()), force: true, ..DiskReplace::default() };
            refused(engine.disk_replace(pool, "0", with.clone()).await.map(drop), "replace");
            refused(engine.disk_replace_check(pool, "0", with).await.map(drop), "a check of replace");
        }
        let group = || GroupAdd {
            layout: Layout::Single,
            disks: link(),
            enclosures: Vec::new(),
            sectors: Vec::new(),
            force: true,
        };
        refused(engine.group_add("tank", group()).await.map(drop), "a group");
        refused(engine.group_add_check("tank", group()).await.map(drop), "a check of a group");
        bench.check(&volume, 0, 1).await;
        // Exported, it is what is on it that speaks against it.
        engine.pool_export("tank").await.expect("exported");
        let labelled = engine.pool_create(spec("new", Layout::Single, &link())).await.expect_err("a pool's");
        assert!(labelled.kind == ErrorKind::Unsafe && labelled.remedy.contains("--force"), "{labelled}");
        engine.pool_create(forced()).await.expect("forced");
    });
}

/// Goal: a disk of which it cannot be told what is on it is not taken for an empty one.
#[test]
fn a_disk_that_cannot_be_read_is_taken_by_force_only() {
    for at in [0, DISK - 4096] {
        on_disks((1, 1), 1, move |bench| async move {
            bench.world.set_unreadable(0, at..at + 512);
            let spec = spec("tank", Layout::Single, &bench.paths);
            let refused = bench.engine.pool_create(spec.clone()).await.expect_err("unreadable");
            assert!(refused.kind == ErrorKind::Unsafe && refused.remedy.contains("--force"), "{refused}");
            let forced = PoolSpec { force: true, ..spec };
            bench.engine.pool_create(forced).await.expect("its sectors are written");
        });
    }
}

/// Goal: a disk without redundancy that is replaced, and fails a few reads meanwhile, loses nothing.
#[test]
fn an_error_that_passes_takes_nothing_from_a_disk_that_is_replaced() {
    // A piece that does not read is looked at in halves, down to a few kilobytes: some of those are to fail.
    for times in [5, 40] {
        on_disks((2, 1), times, move |bench| async move {
            bench.create(Layout::Single).await;
            let volume = bench.volume(SyncPolicy::Always).await;
            for nth in 0..64 {
                volume.write(nth * BLOCK as u64, vec![bench.block(nth)], true).await.expect("written");
            }
            // Nodes are read for themselves.
            bench.check(&volume, 0, 0).await;
            bench.engine.checkpoint("tank").await.expect("durable");
            let large = Rule::new(0, Action::Fail(DiskErrorKind::Unreadable)).on(OpKind::Read);
            bench.world.add_rule(large.after(1).times(times));
            let with = DiskReplace { new: Some("sim1".into()), ..DiskReplace::default() };
            bench.engine.disk_replace("tank", "0", with).await.expect("begun");
            bench.engine.pool_healed("tank").await.expect("done");
            assert!(bench.world.faults_fired() >= times, "reads failed");
            bench.world.take_rules();
            assert_eq!(bench.told("pool.rebuild_lost", "tank"), Vec::<String>::new());
            bench.engine.pool_export("tank").await.expect("exported");
            bench.engine.pool_import("tank", vec!["sim1".into()], Import::default()).await.expect("imported");
            let volume = bench.opened().await;
            for nth in 0..64 {
                bench.check(&volume, nth * BLOCK as u64, nth).await;
            }
        });
    }
}

#[test]
fn planted_bugs_are_caught() {
    let tests: [(Bug, fn()); 7] = [
        (Bug::MoveLooksOnce, an_error_that_passes_takes_nothing_from_a_disk_that_is_replaced),
        (Bug::ImportNeedsEveryLabel, a_disk_that_refuses_its_label_is_one_that_failed),
        (Bug::ImportForgetsFailures, failures_of_an_import_are_recorded),
        (Bug::ShrunkDiskRefused, a_disk_that_has_shrunk_is_one_that_failed),
        (Bug::LabelsOneByOne, labels_are_written_side_by_side),
        (Bug::StandstillCounts, a_standstill_is_no_disks_fault),
        (Bug::ForceTakesUsedDisk, force_takes_no_disk_that_is_in_use),
    ];
    assert_eq!(tests.map(|(bug, _)| bug as usize).iter().sum::<usize>(), {
        Bug::OF_DISKS.iter().map(|bug| *bug as usize).sum()
    });
    for (bug, test) in tests {
        plant(Some(bug));
        let caught = std::panic::catch_unwind(test).is_err();
        let met = times_met();
        plant(None);
        assert!(caught && met > 0, "{bug:?} was met {met} times and nobody noticed");
    }
}
