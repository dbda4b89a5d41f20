//! Volumes that move between pools while clients write, on simulated disks.

mod lost;
mod pools;
mod pressure;
mod projects;

use forebay_base::planted::{Bug, plant, times_met};
use forebay_base::{Id, MIB, Random};
use forebay_pool::check::check;
use forebay_pool::{
    Compression, Engine, EngineConfig, Error, ErrorKind, Event, Host, Import, IoError, Layout, MoveSide,
    PoolSpec, Setting, SnapshotKeep, SnapshotSchedule, SyncPolicy, Volume, VolumeChange, VolumeDelete,
    VolumeFormat, VolumeInfo, VolumeSpec, WorkProgress,
};
use forebay_runtime::{Cores, Rt};
use forebay_simulation::{Cursor, Event as Step, Fate, Image, World, WorldConfig};
use futures_util::future::join_all;
use pools::{PARITY, PLAIN, Pools, kind, on_pools, world};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(24 * 3600);
const NAMES: [&str; 2] = ["tank", "vault"];
const PURGE: VolumeDelete = VolumeDelete { with_snapshots: true, purge: true };
const CLIENTS: u64 = 4;
const BLOCK: u64 = 4096;

/// What a write, or a discard (stamp 0), does to a block; `write` numbers them all.
#[derive(Clone, Copy)]
struct Change {
    block: u64,
    stamp: u32,
}

/// Clients that change blocks of a volume, each its own, and what they were told.
struct Clients {
    rt: Rt,
    world: World,
    volume: Volume,
    blocks: u64,
    changes: RefCell<Vec<Change>>,
    /// Of each block what it was last acknowledged to hold.
    content: RefCell<Vec<u32>>,
    stop: Cell<bool>,
    done: Cell<u64>,
    /// The longest that one change took.
    longest: Cell<Duration>,
}

impl Clients {
    fn new(pools: &Pools, volume: Volume) -> Rc<Clients> {
        let blocks = volume.size() / BLOCK;
        Rc::new(Clients {
            rt: pools.rt.clone(),
            world: pools.world.clone(),
            volume,
            blocks,
            changes: RefCell::default(),
            content: RefCell::new(vec![0; blocks as usize]),
            stop: Cell::new(false),
            done: Cell::new(0),
            longest: Cell::default(),
        })
    }

    fn buffer(&self, stamp: u32) -> forebay_runtime::Buf {
        let mut data = self.rt.buffer(BLOCK as usize);
        data.chunks_exact_mut(4).for_each(|part| part.copy_from_slice(&stamp.to_le_bytes()));
        data.freeze()
    }

    async fn change(&self, block: u64, is_discard: bool) {
        let number = self.changes.borrow().len() as u64;
        let stamp = if is_discard { 0 } else { number as u32 + 1 };
        self.changes.borrow_mut().push(Change { block, stamp });
        self.world.mark(2 * number);
        let start = self.rt.now();
        let was = self.content.borrow()[block as usize];
        if is_discard {
            self.volume.discard(block * BLOCK, BLOCK, false).await.expect("discarded");
        } else if number.is_multiple_of(5) {
            let done = self.volume.compare_and_write(block * BLOCK, self.buffer(was), self.buffer(stamp));
            assert_eq!(done.await, Ok(Ok(())), "block {block} does not hold what was acknowledged");
        } else {
            self.volume.write(block * BLOCK, vec![self.buffer(stamp)], false).await.expect("written");
        }
        self.world.mark(2 * number + 1);
        self.content.borrow_mut()[block as usize] = stamp;
        self.done.set(self.done.get() + 1);
        self.longest.set(self.longest.get().max(Duration::from_nanos(self.rt.now().since(start))));
    }

    async fn client(self: Rc<Self>, own: u64, seed: u64, pause: Duration) {
        let mut random = Random::new(seed * 100 + own);
        while !self.stop.get() {
            let block = random.below(self.blocks / CLIENTS) * CLIENTS + own;
            self.change(block, random.one_in(8)).await;
            if random.one_in(4) {
                assert_eq!(look(&self.volume, block).await, self.content.borrow()[block as usize]);
            }
            self.rt.sleep(pause).await;
        }
    }

    /// Fills the first part of the volume.
    async fn fill(&self, blocks: u64) {
        for block in 0..blocks {
            self.change(block, false).await;
        }
    }

    async fn run(self: &Rc<Self>, seed: u64, pause: Duration) {
        join_all((0..CLIENTS).map(|own| self.clone().client(own, seed, pause))).await;
    }

    async fn compare(&self, volume: &Volume) {
        for block in 0..self.blocks {
            assert_eq!(look(volume, block).await, self.content.borrow()[block as usize], "block {block}");
        }
    }
}

async fn look(volume: &Volume, block: u64) -> u32 {
    let parts = volume.read(block * BLOCK, BLOCK as usize).await.expect("readable");
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    let stamp = u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes"));
    assert!(bytes.chunks_exact(4).all(|part| part == stamp.to_le_bytes()));
    stamp
}

/// Runs `what` while clients work; `pause` is between two changes of one.
async fn while_clients_work<T>(
    clients: &Rc<Clients>,
    seed: u64,
    pause: Duration,
    what: impl Future<Output = T>,
) -> T {
    let stopped = async {
        let result = what.await;
        // They work where the volume is now, too.
        let goal = clients.done.get() + 50;
        while clients.done.get() < goal {
            clients.rt.sleep(Duration::from_millis(1)).await;
        }
        clients.stop.set(true);
        result
    };
    let (result, ()) = futures_util::future::join(stopped, clients.run(seed, pause)).await;
    clients.stop.set(false);
    result
}

fn moves_under_load(seed: u64, layouts: [Layout; 2], pause: Duration) {
    world(seed, None, layouts, move |pools| async move {
        let before = pools.used(0).await;
        let volume = pools.create("tank/a", 24 * MIB, VolumeFormat::Thin).await.expect("created");
        let info = pools.engine.volume("tank/a").await.expect("there");
        let schedule = SnapshotSchedule { every_seconds: 1 << 30, keep: SnapshotKeep::last(3) };
        let clients = Clients::new(&pools, volume);
        clients.fill(3000).await;
        let copied = Arc::new(WorkProgress::default());
        let moving = async {
            let moved = pools.engine.volume_move("tank/a", "vault", copied.clone()).await.expect("moved");
            assert_eq!((moved.id, &*moved.pool, &*moved.name), (info.id, "vault", "a"));
            let as_before = (moved.size, moved.block_size, moved.sync, moved.compression, moved.created);
            assert_eq!(as_before, (info.size, info.block_size, info.sync, info.compression, info.created));
        };
        while_clients_work(&clients, seed, pause, moving).await;
        let (done, total) = copied.bytes();
        assert!(done >= 3000 * BLOCK - MIB && total >= done, "{done} of {total}");
        assert!(clients.longest.get() < Duration::from_secs(1), "{:?}", clients.longest.get());
        clients.compare(&clients.volume).await;
        assert_eq!(pools.volumes().await, ["vault/a"]);
        assert_eq!(kind(pools.engine.volume("tank/a").await), Some(ErrorKind::NotFound));
        assert!(pools.is_back_at(0, before).await, "the space comes back");
        // Nothing keeps the pool that it left.
        pools.export(0).await;
        clients.change(7, false).await;
        pools.import(0).await;
        // And back, in both senses.
        let set = VolumeChange { schedule: Setting::Own(schedule), ..VolumeChange::default() };
        pools.engine.volume_set("vault/a", set).await.expect("set");
        let back =
            while_clients_work(&clients, seed, pause, pools.move_to(&info.id.to_string(), "tank")).await;
        assert_eq!(back.expect("moved").schedule, schedule);
        pools.export(1).await;
        clients.compare(&pools.open(info.id)).await;
        pools.import(1).await;
        pools.export(0).await;
        pools.import(0).await;
        clients.compare(&pools.open(info.id)).await;
        assert_eq!(pools.volumes().await, ["tank/a"]);
        assert!(pools.engine.moves_left().await.expect("listed").is_empty());
        for pool in [0, 1] {
            pools.export(pool).await;
            assert_eq!(
                check(&pools.rt, &pools.paths[pool]).await.expect("checked").problems,
                Vec::<String>::new()
            );
        }
    });
}

#[test]
fn a_volume_moves_while_clients_write() {
    for seed in 0..4u64 {
        let layouts = if seed.is_multiple_of(2) { PLAIN } else { PARITY };
        moves_under_load(seed, layouts, Duration::from_millis(1));
    }
}

/// Clients that change more than can be copied meanwhile are slowed down, not the move held up for ever.
#[test]
fn a_move_ends_under_any_load() {
    moves_under_load(9, PLAIN, Duration::ZERO);
}

#[test]
fn a_canceled_move_leaves_nothing() {
    on_pools(|pools| async move {
        let volume = pools.create("tank/a", 24 * MIB, VolumeFormat::Thin).await.expect("created");
        let clients = Clients::new(&pools, volume);
        clients.fill(4000).await;
        let before = pools.used(1).await;
        for wait in [0, 1, 3, 10, 20] {
            let progress = Arc::new(WorkProgress::default());
            let moving = pools.engine.volume_move("tank/a", "vault", progress.clone());
            let cancel = async {
                pools.rt.sleep(Duration::from_millis(wait)).await;
                progress.cancel();
            };
            let both = futures_util::future::join(moving, cancel);
            let (moved, ()) = while_clients_work(&clients, wait, Duration::from_millis(1), both).await;
            assert_eq!(kind(moved), Some(ErrorKind::Conflict), "after {wait} ms");
            assert_eq!(pools.volumes().await, ["tank/a"]);
            assert!(pools.is_back_at(1, before).await);
        }
        clients.compare(&clients.volume).await;
        // An export of one of the pools calls it off as well.
        let (moved, exported) = futures_util::future::join(pools.move_to("tank/a", "vault"), async {
            pools.rt.sleep(Duration::from_millis(5)).await;
            pools.engine.pool_export("vault").await
        })
        .await;
        exported.expect("exported");
        assert_eq!(kind(moved), Some(ErrorKind::Conflict));
        pools.import(1).await;
        assert!(pools.engine.moves_left().await.expect("listed").is_empty());
        pools.move_to("tank/a", "vault").await.expect("moved");
        clients.compare(&clients.volume).await;
    });
}

#[test]
fn what_is_reserved_is_reserved_there_from_the_beginning() {
    on_pools(|pools| async move {
        let reserved = async |pool: usize| {
            pools
                .engine
                .pools()
                .await
                .iter()
                .find(|status| status.name == NAMES[pool])
                .expect("there")
                .reserved
        };
        let (before, there) = (pools.used(0).await, pools.used(1).await);
        let volume = pools.create("tank/a", 24 * MIB, VolumeFormat::ZeroedThick).await.expect("created");
        let clients = Clients::new(&pools, volume);
        clients.fill(2000).await;
        // It does not fit: refused at once, and nothing is left.
        pools.create("vault/other", 20 * MIB, VolumeFormat::EagerZeroedThick).await.expect("created");
        let refused = pools.move_to("tank/a", "vault").await.expect_err("refused");
        assert!(refused.kind == ErrorKind::NoSpace && !refused.remedy.is_empty(), "{refused}");
        pools.engine.volume_delete("vault/other", PURGE).await.expect("deleted");
        assert_eq!(pools.used(1).await, there);
        let looked = async {
            let moving = pools.move_to("tank/a", "vault");
            let look = async {
                pools.rt.sleep(Duration::from_millis(8)).await;
                assert!(reserved(1).await > 0 && reserved(0).await > 0, "both are held");
                let taken = pools.create("vault/a", MIB, VolumeFormat::Thin).await;
                assert_eq!(kind(taken), Some(ErrorKind::Conflict), "and the name");
            };
            futures_util::future::join(moving, look).await.0.expect("moved")
        };
        let moved = while_clients_work(&clients, 3, Duration::from_millis(1), looked).await;
        assert_eq!(moved.format, VolumeFormat::ZeroedThick);
        clients.compare(&clients.volume).await;
        assert_eq!((pools.is_back_at(0, before).await, reserved(0).await), (true, 0));
        // All of it can be written in a pool that others have filled.
        let other = pools.create("vault/full", 60 * MIB, VolumeFormat::Thin).await.expect("created");
        let mut at = 0;
        while other.write(at, vec![clients.buffer(at as u32 + 1)], false).await.is_ok() {
            at += BLOCK;
        }
        clients.fill(clients.blocks).await;
        clients.compare(&clients.volume).await;
        pools.engine.volume_delete("vault/full", PURGE).await.expect("deleted");
        pools.used(1).await;
    });
}

#[test]
fn attributes_move_along() {
    on_pools(|pools| async move {
        let volume = pools.create("tank/a", 8 * MIB, VolumeFormat::Thin).await.expect("created");
        pools.create("vault/other", MIB, VolumeFormat::Thin).await.expect("created");
        volume.store_attributes(b"first").await.expect("stored");
        let clients = Clients::new(&pools, volume.clone());
        clients.fill(1500).await;
        let writing = async {
            let mut last = Vec::new();
            for nth in 0..200u32 {
                last = nth.to_le_bytes().repeat(1 + nth as usize);
                volume.store_attributes(&last).await.expect("stored");
                assert_eq!(volume.load_attributes().await, Ok(Some(last.clone())));
            }
            last
        };
        let (moved, last) = futures_util::future::join(pools.move_to("tank/a", "vault"), writing).await;
        let id = moved.expect("moved").id;
        assert_eq!(volume.load_attributes().await, Ok(Some(last.clone())));
        pools.export(1).await;
        pools.import(1).await;
        assert_eq!(pools.open(id).load_attributes().await, Ok(Some(last)));
    });
}

#[test]
fn what_cannot_move_is_refused_with_a_remedy() {
    on_pools(|pools| async move {
        let volume = pools.create("tank/a", 24 * MIB, VolumeFormat::Thin).await.expect("created");
        let clients = Clients::new(&pools, volume);
        clients.fill(3000).await;
        pools.engine.snapshot_create(vec!["tank/a".into()], "one").await.expect("taken");
        let refused = pools.move_to("tank/a", "vault").await.expect_err("it has a snapshot");
        assert!(refused.kind == ErrorKind::Conflict && refused.remedy.contains("send"), "{refused}");
        // A clone shares blocks with a snapshot that stays: all of it moves.
        pools.engine.volume_clone("tank/a@one", "b").await.expect("cloned");
        let moved = pools.move_to("tank/b", "vault").await.expect("moved");
        assert_eq!((moved.mapped, moved.origin), (3000 * BLOCK, None));
        clients.compare(&pools.open(moved.id)).await;
        pools.engine.snapshot_delete("tank/a@one").await.expect("nothing needs it");
        pools.create("vault/a", MIB, VolumeFormat::Thin).await.expect("created");
        assert_eq!(kind(pools.move_to("tank/a", "vault").await), Some(ErrorKind::Conflict));
        pools.engine.volume_delete("vault/a", PURGE).await.expect("deleted");
        assert_eq!(kind(pools.move_to("tank/a", "tank").await), Some(ErrorKind::Invalid("pool")));
        assert_eq!(kind(pools.move_to("tank/a", "attic").await), Some(ErrorKind::NotFound));
        assert_eq!(kind(pools.move_to("tank/c", "vault").await), Some(ErrorKind::NotFound));
        let meanwhile = async {
            pools.rt.sleep(Duration::from_millis(5)).await;
            let busy = Some(ErrorKind::Conflict);
            assert_eq!(kind(pools.move_to("tank/a", "vault").await), busy);
            assert_eq!(kind(pools.engine.volume_resize("tank/a", 32 * MIB).await), busy);
            assert_eq!(kind(pools.engine.volume_delete("tank/a", PURGE).await), busy);
            assert_eq!(kind(pools.engine.snapshot_create(vec!["tank/a".into()], "two").await), busy);
            assert_eq!(pools.volumes().await, ["tank/a", "vault/b"]);
        };
        let (moved, ()) = futures_util::future::join(pools.move_to("tank/a", "vault"), meanwhile).await;
        moved.expect("moved");
        clients.compare(&clients.volume).await;
    });
}

/// What the clients of a recorded run knew at one moment.
#[derive(Clone)]
struct Known {
    acknowledged: Vec<u32>,
    /// Begun and not acknowledged.
    open: Vec<Option<u32>>,
    id: Id,
    /// What the pools used before there was a volume.
    empty: [u64; 2],
}

/// Takes one volume of two pools through a loss of power, and imports the pools in this order.
fn recovers(images: Vec<Image>, layouts: [Layout; 2], order: [usize; 2], known: &Known, why: &str) {
    let (known, why) = (known.clone(), why.to_string());
    let (id, empty) = (known.id, known.empty);
    let judge = async move |pools: &Pools, why: &str| {
        let volumes = pools.volumes().await;
        if volumes.len() == 1 {
            let volume = pools.open(id);
            for (block, acknowledged) in known.acknowledged.iter().enumerate() {
                let found = look(&volume, block as u64).await;
                let open = known.open[block];
                assert!(found == *acknowledged || Some(found) == open, "{why}: block {block} holds {found}");
            }
        }
        volumes
    };
    world(5, Some(images), layouts, move |pools| async move {
        pools.import(order[0]).await;
        let first = judge(&pools, &why).await;
        assert!(first.len() <= 1, "{why}: {first:?}");
        pools.import(order[1]).await;
        let both = judge(&pools, &why).await;
        assert_eq!(both.len(), 1, "{why}: {both:?}");
        assert!(first.is_empty() || first == both, "{why}: {first:?}, then {both:?}");
        assert!(pools.engine.moves_left().await.expect("listed").is_empty(), "{why}");
        // It can be written, and the other pool has nothing of it.
        pools
            .open(id)
            .write(0, vec![pools.rt.buffer(BLOCK as usize).freeze()], false)
            .await
            .expect("written");
        let other = usize::from(both[0].starts_with("tank"));
        let more = pools.used(other).await.saturating_sub(empty[other]);
        assert!(more < MIB / 4, "{why}: pool {} still has {more} bytes", NAMES[other]);
        for pool in order {
            pools.export(pool).await;
            let report = check(&pools.rt, &pools.paths[pool]).await.expect("checked");
            assert_eq!(report.problems, Vec::<String>::new(), "{why}");
        }
    });
}

/// Goal: at any moment of a move a loss of power leaves one volume, with all that was acknowledged, whichever pool is imported first.
/// Method: a move under load is recorded; at moments drawn over all of it, more of them around the switch, writes without a flush
/// are lost, kept, or torn at random.
fn power_losses(seed: u64, images: u64) {
    let mut random = Random::new(seed);
    let layouts = if seed.is_multiple_of(2) { PLAIN } else { PARITY };
    let found = Rc::new(RefCell::new((Vec::new(), Id(0), 0, [0; 2])));
    const BEGIN: u64 = u64::MAX - 1;
    const END: u64 = u64::MAX;
    let out = found.clone();
    let world = world(seed, None, layouts, move |pools| async move {
        let empty = [pools.used(0).await, pools.used(1).await];
        pools.world.record();
        let volume = pools.create("tank/a", 8 * MIB, VolumeFormat::Thin).await.expect("created");
        let id = pools.engine.volume("tank/a").await.expect("there").id;
        let clients = Clients::new(&pools, volume);
        clients.fill(1600).await;
        let moving = async {
            pools.world.mark(BEGIN);
            pools.move_to("tank/a", "vault").await.expect("moved");
            pools.world.mark(END);
        };
        while_clients_work(&clients, seed, Duration::from_millis(1), moving).await;
        pools.used(0).await;
        *out.borrow_mut() = (clients.changes.take(), id, clients.blocks, empty);
    });
    let recording = world.take_recording();
    let (changes, id, blocks, empty) = found.take();
    let at = |mark: u64| {
        let is_it = |step: &Step| matches!(step, Step::Mark(value) if *value == mark);
        recording.events.iter().position(is_it).expect("marked")
    };
    let (begin, end, last) = (at(BEGIN), at(END), recording.events.len());
    let mut moments: Vec<usize> = (0..images)
        .map(|nth| match nth % 3 {
            0 => begin + random.below((last - begin) as u64) as usize,
            // The switch is over some steps before, and the deletion soon after.
            _ => (end - 160).max(begin) + random.below(220) as usize,
        })
        .map(|moment| moment.min(last))
        .collect();
    moments.sort_unstable();
    let mut cursor = Cursor::new(&recording);
    let none = vec![None; blocks as usize];
    let mut known = Known { acknowledged: vec![0; blocks as usize], open: none, id, empty };
    for (nth, moment) in moments.into_iter().enumerate() {
        while cursor.position() < moment {
            if let Some(Step::Mark(mark)) = cursor.advance()
                && *mark < BEGIN
            {
                let Change { block, stamp } = changes[(mark / 2) as usize];
                if mark % 2 == 0 {
                    known.open[block as usize] = Some(stamp);
                } else {
                    known.acknowledged[block as usize] = stamp;
                    known.open[block as usize] = None;
                }
            }
        }
        let style = random.below(4);
        let fates: Vec<Fate> = cursor
            .pending()
            .map(|_| match (style, random.below(3)) {
                (0, _) | (2.., 0) => Fate::Lost,
                (1, _) | (2.., 1) => Fate::Whole,
                _ => Fate::Head(random.below(8) as usize),
            })
            .collect();
        let order = if nth.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        let why = format!("seed {seed}, step {moment} of {begin}..{end}..{last}, order {order:?}");
        recovers(cursor.crash(&fates), layouts, order, &known, &why);
    }
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let more = std::env::var("FOREBAY_HISTORIES").ok().and_then(|text| text.parse().ok());
    0..more.unwrap_or(count)
}

#[test]
fn a_loss_of_power_leaves_one_volume_with_all_that_was_acknowledged() {
    for seed in seeds(6) {
        power_losses(seed, 60);
    }
}

/// What is left when the other pool is lost is kept or given up at an administrator's word.
#[test]
fn what_a_lost_pool_leaves_is_decided_by_the_administrator() {
    for (is_source_lost, step) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        // Whole, or in the middle: from the moments of a recorded move.
        let content = Rc::new(RefCell::new((Vec::new(), Id(0), [0; 2])));
        let out = content.clone();
        let world_before = world(3, None, PLAIN, move |pools| async move {
            let empty = [pools.used(0).await, pools.used(1).await];
            let volume = pools.create("tank/a", 24 * MIB, VolumeFormat::Thin).await.expect("created");
            let id = pools.engine.volume("tank/a").await.expect("there").id;
            let clients = Clients::new(&pools, volume);
            clients.fill(5000).await;
            pools.world.record();
            pools.move_to("tank/a", "vault").await.expect("moved");
            *out.borrow_mut() = (clients.content.take(), id, empty);
        });
        let recording = world_before.take_recording();
        let (content, id, empty) = content.take();
        let mut met = false;
        let mut cursor = Cursor::new(&recording);
        while !met && cursor.position() < recording.events.len() {
            let behind = recording.events.len() - cursor.position();
            cursor.advance_to(cursor.position() + if behind > 200 { 40 } else { 1 });
            let fates = vec![Fate::Whole; cursor.pending_count()];
            let images = cursor.crash(&fates);
            let found = Rc::new(Cell::new(false));
            let (seen, content) = (found.clone(), content.clone());
            world(5, Some(images), PLAIN, move |pools| async move {
                let there = usize::from(is_source_lost);
                pools.import(there).await;
                let left = pools.engine.moves_left().await.expect("listed");
                let Some(left) = left.into_iter().find(|left| left.is_complete == (step == 0)) else {
                    return;
                };
                let side = if is_source_lost { MoveSide::Arriving } else { MoveSide::Moved };
                assert_eq!((left.id, left.side), (id, side));
                seen.set(true);
                assert_eq!(pools.told("volume.move_left"), 1);
                assert_eq!(Volume::open(&pools.rt, id).err(), Some(IoError::Gone));
                let name = format!("{}/a", NAMES[there]);
                let own = format!("{}/found", NAMES[there]);
                if step == 0 {
                    let kept = pools.engine.move_keep(&name, Some("found")).await.expect("kept");
                    assert!(kept.id != id && format!("{}/{}", kept.pool, kept.name) == own);
                    let volume = pools.open(kept.id);
                    for (block, stamp) in content.iter().enumerate() {
                        assert_eq!(look(&volume, block as u64).await, *stamp);
                    }
                } else {
                    assert_eq!(kind(pools.engine.move_keep(&name, None).await), Some(ErrorKind::Unsafe));
                    pools.engine.move_abandon(&name).await.expect("given up");
                    assert!(pools.used(there).await < empty[there] + MIB / 4);
                }
                assert!(pools.engine.moves_left().await.expect("listed").is_empty());
                // It is as before when the other pool comes back after all. What had arrived there may be given up, too.
                pools.import(1 - there).await;
                let volumes = pools.volumes().await;
                assert_eq!(volumes.contains(&own), step == 0);
                let left = pools.engine.moves_left().await.expect("listed");
                assert_eq!(left.len(), usize::from(!is_source_lost && step == 0));
                if !left.is_empty() {
                    pools.engine.move_abandon("vault/a").await.expect("given up");
                }
                assert!(volumes.len() <= 2 && pools.engine.moves_left().await.expect("listed").is_empty());
                pools.export(there).await;
                pools.import(there).await;
                assert_eq!(pools.volumes().await, volumes);
            });
            met = found.get();
        }
        // A volume that has moved away was whole.
        assert_eq!(met, is_source_lost || step == 0, "source lost: {is_source_lost}, step {step}");
    }
}

/// Every planted bug of this kind is met and noticed.
#[test]
fn planted_bugs_are_caught() {
    for bug in Bug::OF_MOVES {
        let caught = (0..8).any(|seed| {
            plant(Some(bug));
            let run = || match bug {
                Bug::MoveSkipsRest => moves_under_load(seed, PLAIN, Duration::from_millis(1)),
                _ => power_losses(seed, 60),
            };
            let failed = std::panic::catch_unwind(run).is_err();
            let met = times_met() > 0;
            plant(None);
            failed && met
        });
        assert!(caught, "{bug:?} survives");
    }
}
