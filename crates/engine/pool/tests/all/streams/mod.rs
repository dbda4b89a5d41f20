//! Snapshots that travel between pools of different kinds, on simulated disks: histories against a plain model, and single questions.

mod bookmarks;
mod broken_off;
mod combinations;

use forebay_base::planted::{Bug, plant, times_met};
use forebay_base::{MIB, Random};
use forebay_pool::check::check;
use forebay_pool::{
    Compression, Engine, EngineConfig, Error, ErrorKind, Host, Import, Layout, PoolSpec, ReceiveOptions,
    ResumeToken, SendOptions, SnapshotInfo, SyncPolicy, Volume, VolumeDelete, VolumeFormat, VolumeSpec,
};
use forebay_runtime::{Cores, Rt};
use forebay_simulation::{Fate, Image, OpKind, World, WorldConfig};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(24 * 3600);
const PURGE: VolumeDelete = VolumeDelete { with_snapshots: true, purge: true };
const KEEP: ReceiveOptions = ReceiveOptions { discard_changes: false };
const DISCARD: ReceiveOptions = ReceiveOptions { discard_changes: true };
const LAYOUTS: [Layout; 4] = [
    Layout::Mirror,
    Layout::Parity { data: 4, parity: 1 },
    Layout::Single,
    Layout::Parity { data: 2, parity: 1 },
];

/// What blocks hold, by number; others hold nothing.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Content {
    size: u64,
    blocks: BTreeMap<u64, u32>,
}

/// Two pools: `tank` sends, `vault` receives.
struct Pools {
    rt: Rt,
    world: World,
    engine: Engine,
    paths: [Vec<String>; 2],
    block: u64,
}

const NAMES: [&str; 2] = ["tank", "vault"];

impl Pools {
    fn spec(&self, pool: usize, layout: Layout, shards: usize) -> PoolSpec {
        PoolSpec {
            name: NAMES[pool].into(),
            layout,
            disks: self.paths[pool].clone(),
            log_disks: Vec::new(),
            spare_disks: Vec::new(),
            cache_disks: Vec::new(),
            enclosures: Vec::new(),
            sectors: Vec::new(),
            shards,
            log_bytes: None,
            force: false,
        }
    }

    async fn create(&self, name: &str, size: u64) -> Volume {
        let (pool, own) = name.split_once('/').expect("POOL/NAME");
        let (pool, name, block_size): (String, String, _) = (pool.into(), own.into(), self.block as u32);
        // Some volumes are compressed.
        let kinds = [Compression::Off, Compression::Lz4, Compression::Zstd(1)];
        let compression = kinds[name.bytes().map(usize::from).sum::<usize>() % 3];
        let spec = VolumeSpec {
            pool,
            name,
            size,
            block_size,
            sync: Some(SyncPolicy::Always),
            compression: Some(compression),
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        };
        let info = self.engine.volume_create(spec).await.expect("created");
        Volume::open(&self.rt, info.id).expect("open")
    }

    async fn open(&self, name: &str) -> Volume {
        let info = self.engine.volume(name).await.expect("there");
        Volume::open(&self.rt, info.id).expect("open")
    }

    async fn write(&self, volume: &Volume, first: u64, count: u64, stamp: u32) {
        let mut data = self.rt.buffer((count * self.block) as usize);
        data.chunks_exact_mut(4).for_each(|part| part.copy_from_slice(&stamp.to_le_bytes()));
        volume.write(first * self.block, vec![data.freeze()], false).await.expect("written");
    }

    async fn discard(&self, volume: &Volume, first: u64, count: u64) {
        volume.discard(first * self.block, count * self.block, false).await.expect("discarded");
    }

    async fn snapshot(&self, name: &str) {
        let (volume, own) = name.split_once('@').expect("VOLUME@NAME");
        self.engine.snapshot_create(vec![volume.into()], own).await.expect("taken");
    }

    /// What a volume holds, and which of its blocks hold something.
    async fn content(&self, name: &str) -> Content {
        let volume = self.open(name).await;
        let (size, mut blocks, mut at) = (volume.size(), BTreeMap::new(), 0);
        while at < size {
            for extent in volume.status(at, size - at, 64).await.expect("told") {
                if extent.mapped {
                    for block in at / self.block..(at + extent.len) / self.block {
                        let parts =
                            volume.read(block * self.block, self.block as usize).await.expect("readable");
                        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                        let stamp = u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes"));
                        assert!(bytes.chunks_exact(4).all(|part| part == stamp.to_le_bytes()));
                        blocks.insert(block, stamp);
                    }
                }
                at += extent.len;
            }
        }
        Content { size, blocks }
    }

    /// What a snapshot holds, by way of a clone.
    async fn as_of(&self, snapshot: &str) -> Content {
        let (pool, _) = snapshot.split_once('/').expect("POOL/VOLUME@NAME");
        let look = format!("{pool}/look");
        self.engine.volume_clone(snapshot, "look").await.expect("cloned");
        let content = self.content(&look).await;
        self.engine.volume_delete(&look, PURGE).await.expect("deleted");
        content
    }

    async fn stream(&self, name: &str, from: Option<&str>) -> Vec<u8> {
        let options = SendOptions { from: from.map(str::to_string), resume: None };
        self.stream_with(name, options).await.expect("sent")
    }

    async fn resumed(&self, name: &str, resume: ResumeToken) -> Vec<u8> {
        self.stream_with(name, SendOptions { from: None, resume: Some(resume) }).await.expect("sent")
    }

    async fn stream_with(&self, name: &str, options: SendOptions) -> Result<Vec<u8>, Error> {
        let mut stream = self.engine.snapshot_send(name, options).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await? {
            assert!(piece.len() <= 3 << 20);
            bytes.extend(piece);
        }
        Ok(bytes)
    }

    async fn receive(
        &self,
        bytes: &[u8],
        name: &str,
        options: ReceiveOptions,
    ) -> Result<SnapshotInfo, Error> {
        let mut receiver = self.engine.snapshot_receive(name, options).await?;
        for piece in bytes.chunks(100_000) {
            receiver.push(piece).await?;
        }
        receiver.finish().await
    }

    async fn token(&self, name: &str) -> ResumeToken {
        let all = self.engine.receptions(None).await.expect("listed");
        let full = |info: &forebay_pool::ReceptionInfo| format!("{}/{}", info.pool, info.volume);
        let found = all.iter().find(|info| full(info) == name).expect("a part was received");
        assert!(!found.active);
        found.token
    }

    async fn settle(&self) {
        for pool in NAMES {
            for _ in 0..3 {
                self.engine.checkpoint(pool).await.expect("checkpoint");
                self.rt.sleep(Duration::from_millis(50)).await;
            }
        }
    }

    async fn import(&self) {
        for (name, paths) in NAMES.iter().zip(&self.paths) {
            let report = check(&self.rt, paths).await.expect("checked");
            assert_eq!(report.problems, Vec::<String>::new());
            self.engine.pool_import(name, paths.clone(), Import::default()).await.expect("imported");
        }
    }

    async fn again(&self) {
        for name in NAMES {
            self.engine.pool_export(name).await.expect("exported");
        }
        self.import().await;
    }

    async fn reads(&self) -> u64 {
        (0..self.paths[0].len()).map(|disk| self.world.operations(disk, OpKind::Read)).sum()
    }
}

/// Runs `main` in a world with these disks, or with new ones for two pools.
fn world<W: Future<Output = ()> + 'static>(
    disks: Result<Vec<Image>, u64>,
    layouts: [Layout; 2],
    block: u64,
    main: impl FnOnce(Rc<Pools>) -> W,
) -> Vec<Image> {
    let world = World::new(WorldConfig::new(1));
    let widths = layouts.map(|layout| layout.width());
    let is_new = disks.is_err();
    let images = disks.unwrap_or_else(|size| (0..widths[0] + widths[1]).map(|_| Image::new(size)).collect());
    images.into_iter().for_each(|image| {
        world.add_disk(image);
    });
    let (executor, cores): (_, Cores) = world.executor(2);
    let rt = executor.rt().clone();
    let names = |range: std::ops::Range<usize>| range.map(|nth| format!("sim{nth}")).collect::<Vec<_>>();
    let paths = [names(0..widths[0]), names(widths[0]..widths[0] + widths[1])];
    let config = EngineConfig { memory: 16 << 20, events: Arc::new(|_| ()), host: Host::default() };
    let engine = Engine::new(cores, config);
    let pools = Rc::new(Pools { rt, world: world.clone(), engine, paths, block });
    let test = main(pools.clone());
    let whole = async move {
        if is_new {
            for (pool, layout) in layouts.into_iter().enumerate() {
                pools.engine.pool_create(pools.spec(pool, layout, 1 + pool)).await.expect("created");
            }
        } else {
            pools.import().await;
        }
        test.await;
    };
    world.run(&executor, LIMIT, whole).expect("finishes");
    world.power_loss(|_, _| Fate::Lost)
}

fn on_pools<W: Future<Output = ()> + 'static>(main: impl Fn(Rc<Pools>) -> W) {
    for layouts in [[LAYOUTS[0], LAYOUTS[1]], [LAYOUTS[3], LAYOUTS[2]]] {
        world(Err(64 * MIB), layouts, 4096, |pools| {
            let test = main(pools.clone());
            async move {
                test.await;
                pools.settle().await;
                pools.again().await;
            }
        });
    }
}

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

#[test]
fn a_snapshot_arrives_whole_and_then_what_changed() {
    on_pools(|pools| async move {
        let a = pools.create("tank/a", MIB).await;
        pools.write(&a, 3, 40, 1).await;
        pools.snapshot("tank/a@one").await;
        pools.engine.volume_resize("tank/a", 16 * MIB).await.expect("grown");
        pools.write(&a, 10, 10, 2).await;
        pools.discard(&a, 3, 2).await;
        pools.discard(&a, 15, 20).await;
        pools.write(&a, 20, 1, 3).await;
        pools.write(&a, 3000, 600, 4).await;
        pools.snapshot("tank/a@two").await;
        let whole = pools.stream("tank/a@one", None).await;
        let got = pools.receive(&whole, "vault/b", KEEP).await.expect("received");
        assert_eq!((&*got.volume, &*got.name, got.size), ("b", "one", MIB));
        let sent = pools.engine.snapshot("tank/a@one").await.expect("there");
        assert!(got.id != sent.id && got.created == sent.created && got.mapped == sent.mapped);
        let change = pools.stream("tank/a@two", Some("@one")).await;
        let got = pools.receive(&change, "vault/b", KEEP).await.expect("received");
        assert_eq!((&*got.name, got.size), ("two", 16 * MIB));
        for is_again in [false, true] {
            for name in ["one", "two"] {
                let (here, there) = (format!("tank/a@{name}"), format!("vault/b@{name}"));
                assert_eq!(pools.as_of(&here).await, pools.as_of(&there).await);
            }
            assert_eq!(pools.content("vault/b").await, pools.as_of("tank/a@two").await);
            assert_eq!(pools.engine.volume("vault/b").await.expect("there").sync, SyncPolicy::Always);
            if !is_again {
                pools.again().await;
            }
        }
        assert_eq!(kind(pools.receive(&change, "vault/b", KEEP).await), Some(ErrorKind::Conflict));
        assert_eq!(kind(pools.receive(&whole, "vault/b", DISCARD).await), Some(ErrorKind::Conflict));
        assert!(pools.engine.receptions(None).await.expect("listed").is_empty());
    });
}

#[test]
fn changes_at_the_receiver_are_not_lost_unasked() {
    on_pools(|pools| async move {
        let a = pools.create("tank/a", 8 * MIB).await;
        pools.write(&a, 0, 40, 1).await;
        pools.snapshot("tank/a@one").await;
        pools.write(&a, 5, 5, 2).await;
        pools.snapshot("tank/a@two").await;
        let whole = pools.stream("tank/a@one", None).await;
        pools.receive(&whole, "vault/a", KEEP).await.expect("received");
        let change = pools.stream("tank/a@two", Some("tank/a@one")).await;
        // Written before the stream, and while it comes in.
        let there = pools.open("vault/a").await;
        let mut receiver = pools.engine.snapshot_receive("vault/a", KEEP).await.expect("begun");
        receiver.push(&change[..600]).await.expect("taken");
        pools.write(&there, 7, 1, 9).await;
        receiver.push(&change[600..]).await.expect("taken");
        assert_eq!(kind(receiver.finish().await), Some(ErrorKind::Unsafe));
        assert_eq!(kind(pools.receive(&change, "vault/a", KEEP).await), Some(ErrorKind::Unsafe));
        assert_eq!(pools.content("vault/a").await.blocks[&7], 9);
        pools.receive(&change, "vault/a", DISCARD).await.expect("received");
        assert_eq!(pools.content("vault/a").await, pools.as_of("tank/a@two").await);
        // The handle of a client is still the volume's.
        pools.write(&there, 7, 1, 10).await;
        assert_eq!(pools.content("vault/a").await.blocks[&7], 10);
        assert_eq!(pools.as_of("vault/a@two").await, pools.as_of("tank/a@two").await);
    });
}

#[test]
fn what_is_read_is_in_proportion_to_what_changed() {
    world(Err(128 * MIB), [LAYOUTS[2], LAYOUTS[2]], 4096, |pools| async move {
        let a = pools.create("tank/a", 64 * MIB).await;
        for first in (0..16384).step_by(256) {
            pools.write(&a, first, 256, 1).await;
        }
        pools.snapshot("tank/a@one").await;
        for block in [7, 8000, 16000] {
            pools.write(&a, block, 1, 2).await;
        }
        pools.discard(&a, 508 * 5, 508 * 10).await;
        pools.snapshot("tank/a@two").await;
        pools.again().await;
        let before = pools.reads().await;
        let change = pools.stream("tank/a@two", Some("@one")).await;
        let reads = pools.reads().await - before;
        // Of either tree the root and three leaves, three blocks; and nothing for what was discarded.
        assert!(reads <= 2 * (1 + 3) + 3, "{reads} reads");
        assert!(change.len() < 3 * 4096 + 2000, "{} bytes", change.len());
        // Back to the first: the other way round is a stream as well.
        let before = pools.reads().await;
        pools.stream("tank/a@one", Some("@two")).await;
        let reads = pools.reads().await - before;
        // 13 leaves, and 5103 blocks, which lie together.
        assert!(reads < 200, "{reads} reads");
    });
}

#[test]
fn a_snapshot_that_is_sent_stays() {
    on_pools(|pools| async move {
        let a = pools.create("tank/a", 8 * MIB).await;
        pools.write(&a, 0, 600, 1).await;
        pools.snapshot("tank/a@one").await;
        let mut stream =
            pools.engine.snapshot_send("tank/a@one", SendOptions::default()).await.expect("begun");
        stream.next().await.expect("sent");
        assert_eq!(kind(pools.engine.snapshot_delete("tank/a@one").await), Some(ErrorKind::Conflict));
        drop(stream);
        pools.engine.snapshot_delete("tank/a@one").await.expect("deleted");
        assert_eq!(
            kind(pools.stream_with("tank/a@one", SendOptions::default()).await),
            Some(ErrorKind::NotFound)
        );
    });
}

/// A snapshot as both sides know it.
#[derive(Clone)]
struct Known {
    /// `VOLUME@NAME` in the pool that it was taken in.
    name: String,
    content: Content,
    /// A bookmark of the same name was made of it.
    is_marked: bool,
    is_deleted: bool,
}

/// A random history of two pools.
struct History {
    pools: Rc<Pools>,
    random: Random,
    stamp: u32,
    volumes: BTreeMap<String, Content>,
    taken: Vec<Known>,
    /// Volumes in the vault: which snapshot each is as, and which it has.
    vault: BTreeMap<String, (usize, Vec<usize>)>,
    /// Increments that were sent from bookmarks.
    by_mark: Rc<Cell<u64>>,
}

impl History {
    fn pick<T: Clone>(&mut self, of: impl IntoIterator<Item = T>) -> Option<T> {
        let all: Vec<T> = of.into_iter().collect();
        (!all.is_empty()).then(|| all[self.random.below(all.len() as u64) as usize].clone())
    }

    async fn change(&mut self) {
        let Some(name) = self.pick(self.volumes.keys().cloned().collect::<Vec<_>>()) else { return };
        let (pools, full) = (self.pools.clone(), format!("tank/{name}"));
        let volume = pools.open(&full).await;
        let block = pools.block;
        let blocks = volume.size() / block;
        let first = self.random.below(blocks);
        let longest = if self.random.one_in(4) { 600 } else { 20 };
        let count = (1 + self.random.below(longest)).min(blocks - first);
        match self.random.below(14) {
            0..=4 => {
                self.stamp += 1;
                pools.write(&volume, first, count.min(200), self.stamp).await;
                let content = self.volumes.get_mut(&name).expect("picked");
                content.blocks.extend((first..first + count.min(200)).map(|block| (block, self.stamp)));
            }
            5 | 6 => {
                pools.discard(&volume, first, count).await;
                let content = self.volumes.get_mut(&name).expect("picked");
                content.blocks.retain(|block, _| !(first..first + count).contains(block));
            }
            7 if volume.size() < 12 * MIB => {
                let size = volume.size() + MIB * (1 + self.random.below(4));
                pools.engine.volume_resize(&full, size).await.expect("grown");
                self.volumes.get_mut(&name).expect("picked").size = size;
            }
            8 => {
                let own: Vec<Known> = self
                    .taken
                    .iter()
                    .filter(|known| !known.is_deleted && known.name.starts_with(&format!("{name}@")))
                    .cloned()
                    .collect();
                let Some(known) = self.pick(own) else { return };
                pools.engine.volume_rollback(&format!("tank/{}", known.name)).await.expect("rolled back");
                self.volumes.insert(name, known.content);
            }
            9 if self.volumes.len() < 4 => {
                let there: Vec<Known> =
                    self.taken.iter().filter(|known| !known.is_deleted).cloned().collect();
                let Some(known) = self.pick(there) else { return };
                self.stamp += 1;
                let new = format!("c{}", self.stamp);
                pools.engine.volume_clone(&format!("tank/{}", known.name), &new).await.expect("cloned");
                self.volumes.insert(new, known.content);
            }
            12 => {
                let marked = (0..self.taken.len())
                    .filter(|at| self.taken[*at].is_marked && !self.taken[*at].is_deleted);
                let Some(which) = self.pick(marked.collect::<Vec<_>>()) else { return };
                // Clones and volumes that went back to it keep it.
                let deleted = pools.engine.snapshot_delete(&format!("tank/{}", self.taken[which].name)).await;
                assert!(matches!(kind(deleted.clone()), None | Some(ErrorKind::Conflict)), "{deleted:?}");
                self.taken[which].is_deleted = deleted.is_ok();
            }
            _ if self.taken.len() < 12 => {
                let name_of = format!("{name}@s{}", self.taken.len());
                pools.snapshot(&format!("tank/{name_of}")).await;
                let is_marked = !self.random.one_in(4);
                if is_marked {
                    let marked = pools.engine.bookmark_create(&format!("tank/{name_of}"), None).await;
                    marked.expect("bookmarked");
                }
                let content = self.volumes[&name].clone();
                self.taken.push(Known { name: name_of, content, is_marked, is_deleted: false });
            }
            _ => {}
        }
    }

    /// Sends a snapshot to the vault, in a way that is drawn.
    async fn travel(&mut self) {
        let pools = self.pools.clone();
        let there = (0..self.taken.len()).filter(|at| !self.taken[*at].is_deleted).collect::<Vec<_>>();
        let Some(which) = self.pick(there) else { return };
        let known = self.taken[which].clone();
        let sent = format!("tank/{}", known.name);
        let there: Vec<(String, usize)> = self
            .vault
            .iter()
            .flat_map(|(name, (_, all))| all.iter().map(|has| (name.clone(), *has)))
            .collect();
        let base = if self.random.one_in(4) { None } else { self.pick(there) };
        let base = base.filter(|(_, has)| *has != which);
        let (target, from, options) = match &base {
            Some((volume, has)) if !self.random.one_in(5) => {
                if self.vault[volume].1.contains(&which) {
                    return;
                }
                let options = if self.vault[volume].0 == *has { KEEP } else { DISCARD };
                (volume.clone(), Some(*has), options)
            }
            _ if self.vault.len() >= 4 => return,
            base => (format!("v{}", self.vault.len()), base.as_ref().map(|(_, has)| *has), KEEP),
        };
        let from_name = from.map(|from| {
            let base = &self.taken[from];
            let by_mark = base.is_deleted || (base.is_marked && self.random.one_in(2));
            format!("tank/{}", if by_mark { base.name.replace('@', "#") } else { base.name.clone() })
        });
        let options_from = SendOptions { from: from_name.clone(), resume: None };
        let by_mark = from_name.as_ref().is_some_and(|name| name.contains('#'));
        let mut stream = match pools.stream_with(&sent, options_from).await {
            Ok(stream) => stream,
            Err(error) if by_mark && error.kind == ErrorKind::Invalid("from") => return,
            Err(error) => panic!("{sent}: {error}"),
        };
        self.by_mark.set(self.by_mark.get() + u64::from(by_mark));
        let full = format!("vault/{target}");
        for _ in 0..self.random.below(3) {
            let at = self.random.below(stream.len() as u64) as usize;
            let mut bytes = stream.clone();
            if self.random.one_in(2) {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1 << self.random.below(8);
            }
            let refused = pools.receive(&bytes, &full, options).await.expect_err("damaged");
            assert_eq!(refused.kind, ErrorKind::Invalid("stream"), "{refused}");
            if self.random.one_in(3) {
                pools.again().await;
            }
            let receptions = pools.engine.receptions(None).await.expect("listed");
            if let Some(info) = receptions.first() {
                stream = pools.resumed(&sent, info.token).await;
            }
        }
        let got =
            pools.receive(&stream, &full, options).await.unwrap_or_else(|error| panic!("{sent}: {error}"));
        assert_eq!(got.mapped, known.content.blocks.len() as u64 * pools.block, "{sent} from {from_name:?}");
        let name = format!("{full}@{}", got.name);
        assert!(pools.as_of(&name).await == known.content, "{name} is not {sent}, from {from_name:?}");
        assert!(pools.content(&full).await == known.content, "{full} is not {sent}, from {from_name:?}");
        let entry = self.vault.entry(target).or_default();
        entry.0 = which;
        entry.1.push(which);
    }

    /// Whatever has ever arrived is as it was.
    async fn compare(&self) {
        for (volume, (now, all)) in &self.vault {
            let full = format!("vault/{volume}");
            assert!(self.pools.content(&full).await == self.taken[*now].content, "{full}");
            for which in all {
                let (_, own) = self.taken[*which].name.split_once('@').expect("VOLUME@NAME");
                let name = format!("{full}@{own}");
                assert!(self.pools.as_of(&name).await == self.taken[*which].content, "{name}");
            }
        }
    }
}

/// How many increments were sent from bookmarks.
fn history(seed: u64, steps: u64) -> u64 {
    let by_mark = Rc::new(Cell::new(0));
    let counted = by_mark.clone();
    let mut random = Random::new(seed);
    let block = [4096, 8192, 16384][random.below(3) as usize];
    let layouts = [LAYOUTS[random.below(4) as usize], LAYOUTS[random.below(4) as usize]];
    world(Err(128 * MIB), layouts, block, move |pools| async move {
        let size = MIB * [1, 3, 8][random.below(3) as usize];
        pools.create("tank/a", size).await;
        let volumes = BTreeMap::from([("a".to_string(), Content { size, blocks: BTreeMap::new() })]);
        let (taken, vault) = (Vec::new(), BTreeMap::new());
        let mut history = History { pools, random, stamp: 0, volumes, taken, vault, by_mark };
        for _ in 0..steps {
            match history.random.below(6) {
                0 => history.travel().await,
                _ => history.change().await,
            }
        }
        history.pools.settle().await;
        history.pools.again().await;
        history.compare().await;
        for name in NAMES {
            history.pools.engine.pool_export(name).await.expect("exported");
        }
    });
    counted.get()
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let more = std::env::var("FOREBAY_HISTORIES").ok().and_then(|text| text.parse().ok());
    0..more.unwrap_or(count)
}

#[test]
fn histories_agree_with_the_model() {
    let mut by_mark = 0;
    for seed in seeds(40) {
        println!("history {seed}");
        by_mark += history(seed, 120);
    }
    assert!(by_mark >= 20, "only {by_mark} increments from bookmarks");
}

/// Every planted bug of this kind is met by some history or question, and noticed.
#[test]
fn planted_bugs_are_caught() {
    let bugs = [
        Bug::SendForgetsHoles,
        Bug::SendPrunesByBirth,
        Bug::BookmarkForgetsRollback,
        Bug::ReceiveOverChanges,
    ];
    for bug in bugs {
        let caught = (0..100).any(|seed| {
            plant(Some(bug));
            let run = || match bug {
                Bug::ReceiveOverChanges => changes_at_the_receiver_are_not_lost_unasked(),
                _ => drop(history(seed, 120)),
            };
            let failed = std::panic::catch_unwind(run).is_err();
            let met = times_met() > 0;
            plant(None);
            failed && met
        });
        assert!(caught, "{bug:?} survives");
    }
}
