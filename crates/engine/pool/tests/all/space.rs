//! Space that is reserved: a pool is filled by thin volumes, and a reserved one can be written all the same, whole and again and again.

use forebay_base::{KIB, MIB, Random};
use forebay_pool::check::check;
use forebay_pool::{
    Compression, Engine, EngineConfig, ErrorKind, Host, Import, IoError, Layout, PoolSpec, SyncPolicy,
    Volume, VolumeDelete, VolumeFormat, VolumeInfo, VolumeSpec,
};
use forebay_runtime::{Buf, Cores, Rt};
use forebay_simulation::{Image, World, WorldConfig};
use futures_util::future::join_all;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(36_000);
const PURGE: VolumeDelete = VolumeDelete { with_snapshots: true, purge: true };
/// Bytes of one write, and of what the model knows one by one.
const PIECE: u64 = 64 * KIB;

struct Pool {
    rt: Rt,
    engine: Engine,
    paths: Vec<String>,
    random: RefCell<Random>,
    seed: Cell<u64>,
}

/// A volume, and what was written to it: the seed of each piece, 0 for zeros.
struct Known {
    name: String,
    pieces: RefCell<Vec<u64>>,
}

impl Pool {
    async fn create(
        &self,
        name: &str,
        size: u64,
        block_size: u32,
        format: VolumeFormat,
    ) -> Result<Known, ErrorKind> {
        let sync = SyncPolicy::Always;
        let spec = VolumeSpec {
            pool: "tank".into(),
            name: name.into(),
            size,
            block_size,
            sync: Some(sync),
            format,
            compression: Some(Compression::Off),
            level: None,
            own_hosts: false,
        };
        self.engine.volume_create(spec).await.map_err(|error| error.kind)?;
        let pieces = RefCell::new(vec![0; (size / PIECE) as usize]);
        Ok(Known { name: format!("tank/{name}"), pieces })
    }

    async fn info(&self, known: &Known) -> VolumeInfo {
        self.engine.volume(&known.name).await.expect("it is there")
    }

    async fn open(&self, known: &Known) -> Volume {
        Volume::open(&self.rt, self.info(known).await.id).expect("it opens")
    }

    fn content(&self, seed: u64) -> Buf {
        let mut buffer = self.rt.buffer(PIECE as usize);
        match seed {
            0 => buffer.fill(0),
            seed => Random::new(seed).fill(&mut buffer),
        }
        buffer.freeze()
    }

    async fn write(&self, volume: &Volume, known: &Known, piece: usize) -> Result<(), IoError> {
        self.seed.set(self.seed.get() + 1);
        let seed = self.seed.get();
        let written = volume.write(piece as u64 * PIECE, vec![self.content(seed)], false).await;
        if written.is_ok() {
            known.pieces.borrow_mut()[piece] = seed;
        }
        written
    }

    /// Writes to a thin volume until there is no space; how many bytes.
    async fn fill(&self, known: &Known) -> u64 {
        let (volume, pieces) = (self.open(known).await, known.pieces.borrow().len());
        for piece in 0..pieces {
            match self.write(&volume, known, piece).await {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error, IoError::NoSpace, "{}", known.name);
                    return piece as u64 * PIECE;
                }
            }
        }
        panic!("{} is larger than the pool", known.name);
    }

    /// Writes to a reserved volume, which must be possible: all of it in order, or as much at random, by several at a time.
    async fn overwrite(&self, known: &Known, in_order: bool) {
        let (volume, pieces) = (self.open(known).await, known.pieces.borrow().len());
        for at in (0..pieces).step_by(4) {
            let mut batch: Vec<usize> = match in_order {
                true => (at..pieces.min(at + 4)).collect(),
                false => (0..4).map(|_| self.random.borrow_mut().below(pieces as u64) as usize).collect(),
            };
            batch.sort_unstable();
            batch.dedup();
            for written in join_all(batch.iter().map(|piece| self.write(&volume, known, *piece))).await {
                assert_eq!(written, Ok(()), "{}: what is reserved can be written", known.name);
            }
        }
    }

    async fn verify(&self, known: &Known) {
        let volume = self.open(known).await;
        let pieces = known.pieces.borrow().clone();
        for (piece, seed) in pieces.iter().enumerate() {
            let parts = volume.read(piece as u64 * PIECE, PIECE as usize).await.expect("it is readable");
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            assert!(bytes == self.content(*seed)[..], "{}: piece {piece}", known.name);
        }
    }

    async fn again(&self) {
        self.engine.pool_export("tank").await.expect("exported");
        let report = check(&self.rt, &self.paths).await.expect("checked");
        assert_eq!(report.problems, Vec::<String>::new());
        self.engine.pool_import("tank", self.paths.clone(), Import::default()).await.expect("imported");
    }
}

/// Layout, data disks, log disks, shards.
type Kind = (Layout, usize, usize, usize);

const KINDS: [Kind; 5] = [
    (Layout::Single, 1, 0, 1),
    (Layout::Mirror, 2, 0, 2),
    (Layout::Mirror, 2, 1, 1),
    (Layout::Parity { data: 4, parity: 1 }, 5, 0, 1),
    (Layout::Parity { data: 4, parity: 1 }, 5, 1, 2),
];

/// Runs `main` on a pool of a kind, of disks of `bytes` bytes.
fn on_pool<W: Future<Output = ()> + 'static>(kind: Kind, bytes: u64, main: impl FnOnce(Rc<Pool>) -> W) {
    let (layout, data, log, shards) = kind;
    let world = World::new(WorldConfig::new(1));
    (0..data + log).for_each(|_| {
        world.add_disk(Image::new(bytes));
    });
    let (executor, cores): (_, Cores) = world.executor(shards);
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
    let config = EngineConfig { memory: 16 << 20, events: Arc::new(|_| ()), host: Host::default() };
    let (random, seed) = (RefCell::new(Random::new(7)), Cell::new(0));
    let paths = names(0..data + log);
    let pool =
        Rc::new(Pool { rt: executor.rt().clone(), engine: Engine::new(cores, config), paths, random, seed });
    let test = main(pool.clone());
    let whole = async move {
        pool.engine.pool_create(spec).await.expect("created");
        test.await;
        pool.again().await;
    };
    world.run(&executor, LIMIT, whole).expect("finishes");
}

/// Disks so large that a pool of a kind holds about as much as the others.
fn disk_bytes((layout, ..): Kind) -> u64 {
    96 * MIB / u64::from(layout.data()) + 16 * MIB
}

#[test]
fn what_is_reserved_can_be_written_in_a_pool_that_is_full() {
    for kind in KINDS {
        for block_size in [4 << 10, 16 << 10, 128 << 10] {
            on_pool(kind, disk_bytes(kind), move |pool| async move {
                let size = 12 * MIB;
                // One on each shard, of which one is reserved.
                let (zeroed, thin) = (VolumeFormat::ZeroedThick, VolumeFormat::Thin);
                let reserved =
                    pool.create("reserved", size, block_size, zeroed).await.expect("there is room");
                let info = pool.info(&reserved).await;
                assert_eq!((info.reserved, info.used), (size, 0));
                let mut others = Vec::new();
                for (nth, block_size) in [4 << 10, 8 << 10, 128 << 10, block_size].into_iter().enumerate() {
                    let other = pool.create(&format!("thin{nth}"), 512 * MIB, block_size, thin).await;
                    others.push(other.expect("nothing is reserved for it"));
                }
                let mut filled = 0;
                for other in &others {
                    filled += pool.fill(other).await;
                }
                assert!(filled > 16 * MIB, "{kind:?}: only {filled} bytes");
                pool.overwrite(&reserved, true).await;
                let info = pool.info(&reserved).await;
                assert_eq!((info.mapped, info.reserved, info.used), (size, 0, size));
                for _ in 0..3 {
                    pool.overwrite(&reserved, false).await;
                }
                pool.verify(&reserved).await;
                pool.again().await;
                for other in &others {
                    pool.fill(other).await;
                }
                for _ in 0..2 {
                    pool.overwrite(&reserved, false).await;
                }
                let discarded = pool.open(&reserved).await.discard(0, size / 2, false).await;
                discarded.expect("a discard needs no space");
                reserved.pieces.borrow_mut()[..(size / 2 / PIECE) as usize].fill(0);
                // A checkpoint finds what was replaced in leaves that are not in memory; what leaves the log meanwhile is for the next.
                for _ in 0..2 {
                    pool.engine.checkpoint("tank").await.expect("checkpoint");
                }
                let info = pool.info(&reserved).await;
                assert_eq!((info.reserved, info.mapped), (size / 2, size / 2), "{kind:?} {block_size}");
                for other in &others {
                    pool.fill(other).await;
                }
                pool.overwrite(&reserved, true).await;
                pool.verify(&reserved).await;
            });
        }
    }
}

#[test]
fn a_snapshot_is_refused_when_what_it_keeps_could_not_be_written_anew() {
    for kind in KINDS {
        on_pool(kind, disk_bytes(kind), |pool| async move {
            let size = 8 * MIB;
            let eager = VolumeFormat::EagerZeroedThick;
            let reserved = pool.create("reserved", size, 8 << 10, eager).await.expect("there is room");
            assert_eq!(pool.info(&reserved).await.used, size, "though nothing is written");
            pool.overwrite(&reserved, true).await;
            let volumes = || vec!["tank/reserved".to_string()];
            pool.engine.snapshot_create(volumes(), "first").await.expect("there is room for all of it again");
            let thin = pool.create("thin", 512 * MIB, 4 << 10, VolumeFormat::Thin).await.expect("created");
            pool.fill(&thin).await;
            pool.overwrite(&reserved, true).await;
            let refused = pool.engine.snapshot_create(volumes(), "second").await.expect_err("no room");
            assert_eq!(refused.kind, ErrorKind::NoSpace);
            // All of it, or less what waits in the log: that has its places already.
            let lacks = |mib: &str| refused.message.contains(&format!("{mib} MiB of that are not free"));
            assert!(lacks("8") || lacks("7") || lacks("6"), "{refused:?}");
            pool.overwrite(&reserved, false).await;
            pool.again().await;
            pool.overwrite(&reserved, false).await;
            pool.verify(&reserved).await;
            let purged = pool.engine.volume_delete("tank/thin", PURGE).await;
            purged.expect("deleting needs no space");
            pool.rt.sleep(Duration::from_secs(5)).await;
            pool.engine.snapshot_create(volumes(), "second").await.expect("there is room again");
            pool.overwrite(&reserved, true).await;
            for name in ["first", "second"] {
                pool.engine.snapshot_delete(&format!("tank/reserved@{name}")).await.expect("deleted");
            }
            pool.rt.sleep(Duration::from_secs(5)).await;
            let thin = pool.create("thin", 512 * MIB, 4 << 10, VolumeFormat::Thin).await.expect("created");
            pool.fill(&thin).await;
            pool.overwrite(&reserved, false).await;
            pool.verify(&reserved).await;
        });
    }
}

#[test]
fn a_reservation_that_does_not_fit_is_refused_and_converting_gives_it_back() {
    for kind in KINDS {
        on_pool(kind, disk_bytes(kind), |pool| async move {
            let capacity = pool.engine.pools().await[0].size;
            let thick = VolumeFormat::ZeroedThick;
            let refused = pool.create("large", capacity, 8 << 10, thick).await.err();
            assert_eq!(refused, Some(ErrorKind::NoSpace));
            let free = pool.create("thin", 512 * MIB, 8 << 10, VolumeFormat::Thin).await.expect("created");
            pool.fill(&free).await;
            let refused = pool.create("small", 4 * MIB, 8 << 10, thick).await.err();
            assert_eq!(refused, Some(ErrorKind::NoSpace));
            pool.engine.volume_delete("tank/thin", PURGE).await.expect("deleted");
            pool.rt.sleep(Duration::from_secs(5)).await;
            let a = pool.create("a", 8 * MIB, 8 << 10, VolumeFormat::Thin).await.expect("created");
            pool.overwrite(&a, true).await;
            for format in [thick, VolumeFormat::EagerZeroedThick, thick] {
                let info = pool.engine.volume_convert(&a.name, format).await.expect("there is room");
                assert_eq!((info.format, info.reserved, info.used), (format, 0, 8 * MIB), "all is written");
            }
            assert_eq!(
                pool.engine.volume_resize(&a.name, capacity / 64 * 64 * KIB).await.err().map(|e| e.kind),
                Some(ErrorKind::NoSpace)
            );
            pool.engine.volume_resize(&a.name, 12 * MIB).await.expect("there is room");
            a.pieces.borrow_mut().resize((12 * MIB / PIECE) as usize, 0);
            assert_eq!(pool.info(&a).await.reserved, 4 * MIB);
            pool.again().await;
            let info = pool.info(&a).await;
            // What waits in the log may be new or not, as long as nobody has looked.
            assert!(info.format == thick && (4 * MIB..8 * MIB).contains(&info.reserved), "{info:?}");
            let other = pool.create("b", 512 * MIB, 8 << 10, VolumeFormat::Thin).await.expect("created");
            let before = pool.fill(&other).await;
            pool.overwrite(&a, false).await;
            pool.engine.volume_convert(&a.name, VolumeFormat::Thin).await.expect("always");
            pool.rt.sleep(Duration::from_secs(1)).await;
            pool.engine.checkpoint("tank").await.expect("checkpoint");
            pool.engine.checkpoint("tank").await.expect("checkpoint");
            assert!(pool.fill(&other).await > before, "what was held is anybody's");
            pool.verify(&a).await;
        });
    }
}

/// Goal: a reservation that is refused takes nothing, neither from volumes of its own shard nor of others, while it is looked for or after.
/// Method: writes that are to overwrite all beside each way to be refused and right after it, in a pool that is nearly empty.
#[test]
fn a_refused_reservation_takes_nothing() {
    for kind in KINDS.into_iter().chain([(Layout::Mirror, 2, 0, 4), (Layout::Single, 2, 0, 3)]) {
        on_pool(kind, disk_bytes(kind), |pool| async move {
            let capacity = pool.engine.pools().await[0].size / MIB * MIB;
            let mut others = Vec::new();
            for nth in 0..4 {
                let name = format!("v{nth}");
                let other = pool.create(&name, 4 * MIB, 8 << 10, VolumeFormat::Thin).await.expect("created");
                pool.overwrite(&other, true).await;
                others.push(other);
            }
            let large = 4 * capacity;
            pool.create("grown", large, 8 << 10, VolumeFormat::Thin).await.expect("thin ones may be larger");
            let small =
                pool.create("small", 2 * MIB, 8 << 10, VolumeFormat::ZeroedThick).await.expect("fits");
            for round in 0..6 {
                let (size, format) = (large + round * MIB, VolumeFormat::ZeroedThick);
                let asked = async {
                    match round % 3 {
                        0 => pool.create("large", size, 8 << 10, format).await.err(),
                        1 => pool.engine.volume_convert("tank/grown", format).await.err().map(|e| e.kind),
                        _ => pool.engine.volume_resize(&small.name, size).await.err().map(|e| e.kind),
                    }
                };
                let written = join_all(others.iter().map(|other| pool.overwrite(other, true)));
                let (refused, _) = futures_util::future::join(asked, written).await;
                assert_eq!(refused, Some(ErrorKind::NoSpace), "round {round}");
                for other in &others {
                    pool.overwrite(other, round % 2 == 0).await;
                }
            }
            for other in &others {
                pool.verify(other).await;
            }
        });
    }
}
