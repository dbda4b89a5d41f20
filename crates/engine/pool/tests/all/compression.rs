//! Compression on simulated disks: each test asks one question.

use forebay_base::planted::{Bug, plant, times_met};
use forebay_base::{MIB, Random};
use forebay_pool::check::check;
use forebay_pool::{
    Compression, DisksSecond, Engine, EngineConfig, ErrorKind, Host, Import, Layout, LedgerSecond, PoolSpec,
    Setting, SyncPolicy, Volume, VolumeChange, VolumeDelete, VolumeFormat, VolumeInfo, VolumeSpec,
    WorkProgress,
};
use forebay_runtime::{Buf, Cores, Rt};
use forebay_simulation::{Fate, Image, World, WorldConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(24 * 3600);

pub struct Pool {
    pub world: World,
    pub rt: Rt,
    pub engine: Engine,
    pub paths: Vec<String>,
    pub shards: u64,
}

impl Pool {
    pub async fn volume(&self, name: &str, block_size: u32, compression: Compression) -> Volume {
        self.sized(name, 8 * MIB, block_size, compression).await
    }

    pub async fn sized(&self, name: &str, size: u64, block_size: u32, compression: Compression) -> Volume {
        let spec = VolumeSpec {
            pool: "tank".into(),
            name: name.into(),
            size,
            block_size,
            sync: Some(SyncPolicy::Standard),
            compression: Some(compression),
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        };
        let info = self.engine.volume_create(spec).await.expect("created");
        Volume::open(&self.rt, info.id).expect("open")
    }

    pub async fn info(&self, name: &str) -> VolumeInfo {
        self.engine.volume(&format!("tank/{name}")).await.expect("there")
    }

    pub async fn open(&self, name: &str) -> Volume {
        Volume::open(&self.rt, self.info(name).await.id).expect("open")
    }

    pub async fn snapshot(&self, volume: &str, name: &str) {
        let volume = format!("tank/{volume}");
        self.engine.snapshot_create(vec![volume], name).await.expect("taken");
    }

    pub async fn again(&self) {
        assert_eq!(self.problems().await, Vec::<String>::new());
    }

    /// Exports the pool, and imports it again; what the checker finds meanwhile.
    pub async fn problems(&self) -> Vec<String> {
        self.engine.pool_export("tank").await.expect("exported");
        let report = check(&self.rt, &self.paths).await.expect("checked");
        self.engine.pool_import("tank", self.paths.clone(), Import::default()).await.expect("imported");
        report.problems
    }

    /// The power fails, and what was not durable is gone.
    pub async fn crash(&self) {
        let images = self.world.power_loss(|_, _| Fate::Lost);
        self.engine.pool_export("tank").await.expect("exported");
        images.into_iter().enumerate().for_each(|(disk, image)| self.world.set_image(disk, image));
        self.engine.pool_import("tank", self.paths.clone(), Import::default()).await.expect("imported");
    }

    pub async fn checkpoint(&self) {
        self.engine.checkpoint("tank").await.expect("it is durable");
    }

    /// Takes a snapshot, for which all that is in the log goes to its place, and deletes it again.
    pub async fn settle(&self, volume: &str) {
        self.snapshot(volume, "settled").await;
        self.engine.snapshot_delete(&format!("tank/{volume}@settled")).await.expect("deleted");
    }

    /// What came after this second.
    pub async fn seconds(&self, after: u64) -> (Vec<Arc<LedgerSecond>>, Vec<Arc<DisksSecond>>) {
        let disks = self.engine.disks_seconds("tank", after).await.expect("it is there");
        (self.engine.ledger("tank", after).await.expect("it is there"), disks)
    }

    pub fn buffer(&self, bytes: &[u8]) -> Buf {
        self.rt.arena().copy(bytes).freeze()
    }
}

/// Runs `main` on pools of several kinds.
pub fn on_pools<W: Future<Output = ()> + 'static>(seeds: u64, main: impl Fn(Rc<Pool>, u64) -> W) {
    on_pools_with(0, seeds, main);
}

/// The same with so many cache disks, which are the last.
pub fn on_pools_with<W: Future<Output = ()> + 'static>(
    cache: usize,
    seeds: u64,
    main: impl Fn(Rc<Pool>, u64) -> W,
) {
    for (layout, data, log, shards) in [
        (Layout::Single, 1, 0, 1),
        (Layout::Mirror, 2, 1, 2),
        (Layout::Parity { data: 2, parity: 1 }, 3, 0, 1),
        (Layout::Parity { data: 3, parity: 2 }, 5, 1, 2),
    ] {
        for seed in 0..seeds {
            let kind = Kind { layout, data, log, cache, shards, disk_bytes: 64 * MIB, memory: 16 * MIB };
            on_pool(kind, seed, |pool| main(pool, seed));
        }
    }
}

/// What a pool is made of.
pub struct Kind {
    pub layout: Layout,
    /// How many disks; their names are in this order.
    pub data: usize,
    pub log: usize,
    pub cache: usize,
    pub shards: usize,
    pub disk_bytes: u64,
    pub memory: u64,
}

/// Runs `main` on a pool.
pub fn on_pool<W: Future<Output = ()> + 'static>(kind: Kind, seed: u64, main: impl FnOnce(Rc<Pool>) -> W) {
    let Kind { layout, data, log, cache, shards, disk_bytes, memory } = kind;
    let world = World::new(WorldConfig::new(seed));
    let others = data + log;
    (0..others + cache).for_each(|_| {
        world.add_disk(Image::new(disk_bytes));
    });
    let (executor, cores): (_, Cores) = world.executor(shards);
    let rt = executor.rt().clone();
    let names = |range: std::ops::Range<usize>| range.map(|nth| format!("sim{nth}")).collect::<Vec<_>>();
    let spec = PoolSpec {
        name: "tank".into(),
        layout,
        disks: names(0..data),
        log_disks: names(data..others),
        spare_disks: Vec::new(),
        cache_disks: names(others..others + cache),
        enclosures: Vec::new(),
        sectors: Vec::new(),
        shards,
        log_bytes: None,
        force: false,
    };
    let config = EngineConfig { memory, events: Arc::new(|_| ()), host: Host::default() };
    let engine = Engine::new(cores, config);
    let paths = names(0..others + cache);
    let pool = Rc::new(Pool { world: world.clone(), rt, engine, paths, shards: shards as u64 });
    let test = main(pool.clone());
    let whole = async move {
        pool.engine.pool_create(spec).await.expect("created");
        test.await;
        pool.again().await;
    };
    world.run(&executor, LIMIT, whole).expect("finishes");
}

/// Zeros, a text, noise, or some of each.
fn contents(random: &mut Random, len: usize) -> Vec<u8> {
    let text = b"select name, price from goods where price > 100 order by name; ";
    let kind = random.below(4);
    let mut bytes = vec![0; len];
    for piece in bytes.chunks_mut(512) {
        match if kind == 3 { random.below(3) } else { kind } {
            0 => {}
            1 => piece.iter_mut().enumerate().for_each(|(at, byte)| *byte = text[at % text.len()]),
            _ => random.fill(piece),
        }
    }
    bytes
}

const KINDS: [Compression; 6] = [
    Compression::Off,
    Compression::Lz4,
    Compression::Lz4,
    Compression::Lzjb,
    Compression::Gzip(1),
    Compression::Zstd(1),
];

/// Goal: whatever is written where, at what alignment and under which compression, is what is read: by clients, after an import, after
/// blocks have been moved.
#[test]
fn histories_read_what_was_written() {
    on_pools(6, |pool, seed| async move {
        let mut random = Random::new(seed);
        let mut models: Vec<(String, u32, Vec<u8>)> = Vec::new();
        for nth in 0..3 {
            let (name, block_size) = (format!("v{nth}"), 4096 << random.below(6));
            let compression = KINDS[random.below(6) as usize];
            pool.volume(&name, block_size, compression).await;
            models.push((name, block_size, vec![0; 8 * MIB as usize]));
        }
        for step in 0..120 {
            let (name, block_size, model) = &mut models[random.below(3) as usize];
            let volume = pool.open(name).await;
            let len = match random.below(6) {
                0 => 512 * (1 + random.below(40)) as usize,
                1 => 1 << (17 + random.below(5)),
                _ => *block_size as usize * (1 + random.below(4) as usize),
            };
            let align = if random.one_in(3) { 512 } else { u64::from(*block_size) };
            let at = (random.below((model.len() - len) as u64 + 1) / align * align) as usize;
            match random.below(12) {
                0..=7 => {
                    let bytes = contents(&mut random, len);
                    let cut = len / 2 / 4096 * 4096;
                    let parts = match cut > 0 && random.one_in(2) {
                        true => vec![pool.buffer(&bytes[..cut]), pool.buffer(&bytes[cut..])],
                        false => vec![pool.buffer(&bytes)],
                    };
                    volume.write(at as u64, parts, random.one_in(2)).await.expect("written");
                    model[at..at + len].copy_from_slice(&bytes);
                }
                8 => {
                    volume.write_zeroes(at as u64, len as u64, false).await.expect("zeroed");
                    model[at..at + len].fill(0);
                }
                9 => {
                    let compression = Setting::Own(KINDS[random.below(6) as usize]);
                    let change = VolumeChange { compression, ..Default::default() };
                    pool.engine.volume_set(&format!("tank/{name}"), change).await.expect("set");
                }
                10 if step % 3 == 0 => {
                    let progress = Arc::default();
                    pool.engine.volume_reclaim(&format!("tank/{name}"), progress).await.expect("searched");
                }
                10 if step % 3 == 1 => drop(pool.engine.pool_compact("tank").await.expect("compacted")),
                10 => pool.again().await,
                _ => {
                    let read = volume.read(at as u64, len).await.expect("readable");
                    let read: Vec<u8> = read.iter().flat_map(|part| part.iter().copied()).collect();
                    assert!(
                        read == model[at..at + len],
                        "seed {seed} step {step}: {name} at {at}, {len} bytes"
                    );
                }
            }
        }
        for import in [false, true] {
            if import {
                pool.again().await;
            }
            for (name, _, model) in &models {
                let volume = pool.open(name).await;
                for at in (0..model.len()).step_by(MIB as usize) {
                    let read = volume.read(at as u64, MIB as usize).await.expect("readable");
                    let read: Vec<u8> = read.iter().flat_map(|part| part.iter().copied()).collect();
                    assert!(
                        read == model[at..at + MIB as usize],
                        "seed {seed}: {name} at {at}, import {import}"
                    );
                }
            }
        }
    });
}

/// Goal: what compression saves is there for others, and zeros cost nothing.
#[test]
fn text_takes_less_and_zeros_take_nothing() {
    on_pools(1, |pool, _| async move {
        let text: Vec<u8> = b"the same again and again, ".iter().copied().cycle().take(4 << 20).collect();
        for (block_size, compression, most) in [
            (8192, Compression::Lz4, 2 << 20),
            (131072, Compression::Lz4, 128 << 10),
            (16384, Compression::Zstd(3), 1 << 20),
            (8192, Compression::Off, 4 << 20),
        ] {
            let volume = pool.volume("a", block_size, compression).await;
            for (nth, part) in text.chunks(1 << 20).enumerate() {
                volume.write((nth << 20) as u64, vec![pool.buffer(part)], false).await.expect("written");
            }
            // For that, all goes to its place.
            let of = || vec!["tank/a".to_string()];
            pool.engine.snapshot_create(of(), "one").await.expect("taken");
            let info = pool.info("a").await;
            assert_eq!(
                (info.mapped, info.stored),
                (4 << 20, most),
                "{compression} in blocks of {block_size}"
            );
            volume.write(0, vec![pool.buffer(&vec![0; 1 << 20])], false).await.expect("written");
            pool.engine.snapshot_create(of(), "two").await.expect("taken");
            let whole = if compression == Compression::Off { 4 } else { 3 };
            assert_eq!(pool.info("a").await.mapped, whole << 20, "{compression} in blocks of {block_size}");
            let purge = VolumeDelete { with_snapshots: true, purge: true };
            pool.engine.volume_delete("tank/a", purge).await.expect("deleted");
        }
    });
}

/// Goal: another compression is for what is written from then on, also after an import; what was written stays as it is.
#[test]
fn a_change_is_for_what_comes() {
    on_pools(1, |pool, _| async move {
        let text: Vec<u8> =
            b"the same again and again, ".iter().copied().cycle().take(MIB as usize).collect();
        pool.volume("a", 8192, Compression::Off).await;
        let mut stored = Vec::new();
        let kinds = [None, Some(Compression::Lz4), Some(Compression::Off), Some(Compression::Zstd(3))];
        for (nth, compression) in kinds.into_iter().enumerate() {
            if let Some(compression) = compression {
                let change = VolumeChange { compression: Setting::Own(compression), ..Default::default() };
                let info = pool.engine.volume_set("tank/a", change).await.expect("set");
                assert_eq!(info.compression, compression);
                if nth == 3 {
                    pool.again().await;
                }
                assert_eq!(pool.info("a").await.compression, compression);
            }
            let volume = pool.open("a").await;
            volume.write(nth as u64 * MIB, vec![pool.buffer(&text)], false).await.expect("written");
            let of = vec!["tank/a".to_string()];
            pool.engine.snapshot_create(of, &format!("s{nth}")).await.expect("taken");
            stored.push(pool.info("a").await.stored);
        }
        let half = MIB / 2;
        assert_eq!(stored, [2 * half, 3 * half, 5 * half, 6 * half]);
    });
}

/// Goal: what was acknowledged as durable is there after a loss of power, in whichever form it was on its way.
#[test]
fn power_losses_take_nothing_back() {
    for seed in 0..12 {
        on_pools(1, move |pool, _| async move {
            let mut random = Random::new(seed);
            let compression = KINDS[1 + random.below(5) as usize];
            let volume = pool.volume("a", 4096 << random.below(6), compression).await;
            let mut model = vec![0; 8 << 20];
            for _ in 0..30 {
                let len = 4096 << random.below(9);
                let at = random.below((model.len() - len) as u64 + 1) as usize / 512 * 512;
                let bytes = contents(&mut random, len);
                volume.write(at as u64, vec![pool.buffer(&bytes)], true).await.expect("written");
                model[at..at + len].copy_from_slice(&bytes);
            }
            // What had no flush may be there or not.
            let images =
                pool.world.power_loss(|_, write| if write % 2 == 0 { Fate::Whole } else { Fate::Lost });
            pool.engine.pool_export("tank").await.expect("exported");
            for (disk, image) in images.into_iter().enumerate() {
                pool.world.set_image(disk, image);
            }
            pool.engine.pool_import("tank", pool.paths.clone(), Import::default()).await.expect("imported");
            let volume = pool.open("a").await;
            for at in (0..model.len()).step_by(1 << 20) {
                let read = volume.read(at as u64, 1 << 20).await.expect("readable");
                let read: Vec<u8> = read.iter().flat_map(|part| part.iter().copied()).collect();
                assert!(read == model[at..at + (1 << 20)], "seed {seed}: at {at}");
            }
        });
    }
}

/// Looks for zeros in a volume that is not compressed while clients replace some of them by data: bytes found, and whether all reads as written.
fn reclaims(seed: u64, format: VolumeFormat) -> (u64, bool) {
    let is_right = Rc::new(Cell::new(true));
    let (all, right) = (Rc::new(Cell::new(0)), is_right.clone());
    let found = all.clone();
    let block = 8192;
    on_pools(1, move |pool, _| {
        let (found, right, mut random) = (found.clone(), right.clone(), Random::new(seed));
        async move {
            let volume = pool.volume("v", block as u32, Compression::Off).await;
            pool.engine.volume_convert("tank/v", format).await.expect("converted");
            let mut model = vec![0; 8 * MIB as usize];
            for piece in model.chunks_mut(block).step_by(3) {
                random.fill(piece);
            }
            volume.write(0, vec![pool.buffer(&model[..4 * MIB as usize])], true).await.expect("written");
            model[4 * MIB as usize..].fill(0);
            pool.again().await;
            let volume = pool.open("v").await;
            let progress: Arc<WorkProgress> = Arc::default();
            let search = pool.engine.volume_reclaim("tank/v", progress.clone());
            let changes = async {
                for nth in 0..64 {
                    let at = (random.below(4 * MIB) as usize / block) * block;
                    let bytes = vec![1 + nth; block];
                    volume.write(at as u64, vec![pool.buffer(&bytes)], nth % 2 == 0).await.expect("written");
                    model[at..at + block].copy_from_slice(&bytes);
                }
            };
            let (searched, ()) = futures_util::future::join(search, changes).await;
            let (done, total) = progress.bytes();
            assert!(done > 0 && total >= done, "{done} of {total}");
            let read = volume.read(0, 8 * MIB as usize).await.expect("readable");
            right.set(right.get() && read.iter().flat_map(|part| part.iter()).eq(model.iter()));
            found.set(found.get() + searched.expect("searched"));
            // Where a client was faster, the zeros beside its block may have been left.
            pool.engine.volume_reclaim("tank/v", Arc::default()).await.expect("searched");
            let holes =
                model[..4 * MIB as usize].chunks(block).filter(|data| data.iter().all(|byte| *byte == 0));
            let left = (4 * MIB as usize - holes.count() * block) as u64;
            assert!(!right.get() || pool.info("v").await.mapped == left, "{left} bytes are no zeros");
        }
    });
    (all.get(), is_right.get())
}

#[test]
fn zeros_that_were_written_are_found_while_clients_work() {
    for (seed, format) in [VolumeFormat::Thin, VolumeFormat::ZeroedThick].into_iter().enumerate() {
        let (found, is_right) = reclaims(seed as u64, format);
        assert!(is_right && found > 8 * MIB, "{found} bytes");
    }
}

#[test]
fn zeros_that_are_none_any_more_stay() {
    for bug in Bug::OF_RECLAIM {
        plant(Some(bug));
        let caught = (0..100).any(|seed| !reclaims(seed, VolumeFormat::Thin).1);
        assert!(caught && times_met() > 0);
        plant(None);
    }
}

#[test]
fn what_has_its_whole_size_is_not_searched() {
    on_pools(1, |pool, _| async move {
        pool.volume("v", 4096, Compression::Off).await;
        pool.engine.volume_convert("tank/v", VolumeFormat::EagerZeroedThick).await.expect("converted");
        let refused = pool.engine.volume_reclaim("tank/v", Arc::default()).await.expect_err("pointless");
        assert_eq!(refused.kind, ErrorKind::Conflict);
        let progress: Arc<WorkProgress> = Arc::default();
        progress.cancel();
        let volume = pool.volume("w", 4096, Compression::Off).await;
        volume.write(0, vec![pool.buffer(&[0; 4096])], true).await.expect("written");
        pool.again().await;
        let canceled = pool.engine.volume_reclaim("tank/w", progress).await.expect_err("canceled");
        assert_eq!(canceled.kind, ErrorKind::Conflict);
        assert_eq!(pool.info("w").await.mapped, 4096);
    });
}
