//! Parity is computed from what was looked at, and from nothing else: what has rotted on one disk stays right on the others, whatever an import
//! does in the same lines.

use forebay_base::MIB;
use forebay_base::planted::{Bug, plant, times_met};
use forebay_pool::{
    Compression, Engine, EngineConfig, Host, Import, IoError, Layout, PoolSpec, SyncPolicy, Volume,
    VolumeFormat, VolumeSpec,
};
use forebay_runtime::Rt;
use forebay_simulation::{Fate, Image, World, WorldConfig};
use futures_util::future::join;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(36_000);
const BLOCK: u64 = 4096;
const DISKS: usize = 3;
const DISK_BYTES: u64 = 24 * MIB;
/// Labels, superblocks and records of chunks are others' turn.
const DATA_FROM: u64 = 2 * MIB / BLOCK;

struct Place {
    world: World,
    engine: Engine,
    rt: Rt,
}

fn paths() -> Vec<String> {
    (0..DISKS).map(|disk| format!("sim{disk}")).collect()
}

/// Runs `main` on a pool of 2+1: a new one, or the one on these images.
fn run<W: Future<Output = ()> + 'static>(
    images: Option<Vec<Image>>,
    main: impl FnOnce(Rc<Place>) -> W + 'static,
) {
    let world = World::new(WorldConfig::new(11));
    let is_new = images.is_none();
    let images = images.unwrap_or_else(|| (0..DISKS).map(|_| Image::new(DISK_BYTES)).collect());
    images.into_iter().for_each(|image| _ = world.add_disk(image));
    let (executor, cores) = world.executor(1);
    let rt = executor.rt().clone();
    let config = EngineConfig { memory: 4 << 20, events: Arc::new(|_| ()), host: Host::default() };
    let place = Rc::new(Place { world: world.clone(), engine: Engine::new(cores, config), rt });
    let whole = async move {
        match is_new {
            true => create(&place).await,
            false => {
                let import = Import { force: true, ..Import::default() };
                place.engine.pool_import("tank", paths(), import).await.map(drop).expect("imported");
            }
        }
        main(place).await;
    };
    world.run(&executor, LIMIT, whole).expect("finishes");
}

async fn create(place: &Place) {
    let spec = PoolSpec {
        name: "tank".into(),
        layout: Layout::Parity { data: 2, parity: 1 },
        disks: paths(),
        log_disks: Vec::new(),
        spare_disks: Vec::new(),
        cache_disks: Vec::new(),
        enclosures: Vec::new(),
        sectors: Vec::new(),
        shards: 1,
        log_bytes: None,
        force: false,
    };
    place.engine.pool_create(spec).await.expect("created");
    let spec = VolumeSpec {
        pool: "tank".into(),
        name: "v".into(),
        size: 64 * MIB,
        block_size: BLOCK as u32,
        sync: Some(SyncPolicy::Always),
        compression: Some(Compression::Off),
        format: VolumeFormat::Thin,
        level: None,
        own_hosts: false,
    };
    place.engine.volume_create(spec).await.expect("created");
}

async fn open(place: &Place) -> Volume {
    let info = place.engine.volume("tank/v").await.expect("there");
    Volume::open(&place.rt, info.id).expect("open")
}

fn content(block: u64) -> u8 {
    (block % 251) as u8 + 1
}

async fn write(place: &Place, volume: &Volume, blocks: std::ops::Range<u64>) -> Result<(), IoError> {
    let mut data = place.rt.buffer(((blocks.end - blocks.start) * BLOCK) as usize);
    for (nth, block) in blocks.clone().enumerate() {
        data[nth * BLOCK as usize..(nth + 1) * BLOCK as usize].fill(content(block));
    }
    volume.write(blocks.start * BLOCK, vec![data.freeze()], true).await
}

/// How many of these blocks are not what was written.
async fn wrong(volume: &Volume, blocks: impl Iterator<Item = u64>) -> usize {
    let mut wrong = 0;
    for block in blocks {
        let read = volume.read(block * BLOCK, BLOCK as usize).await;
        let is_right =
            read.is_ok_and(|parts| parts.iter().all(|part| part.iter().all(|b| *b == content(block))));
        wrong += usize::from(!is_right);
    }
    wrong
}

/// Flips a bit of every page of a disk that is `phase` of four: what has another phase is in other columns of its line.
fn rot(mut flip: impl FnMut(u64), image: &Image, phase: u64) {
    let pages =
        (DATA_FROM..image.size() / BLOCK).filter(|page| page % 4 == phase && image.page(*page).is_some());
    pages.for_each(|page| flip(page * BLOCK + 77));
}

/// Blocks that are lost when the power fails while others are written into the gaps between them, and one disk has rotted.
fn lost_to_an_import() -> usize {
    let (images, blocks) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(0)));
    let (kept, filled) = (images.clone(), blocks.clone());
    run(None, async move |place: Rc<Place>| {
        let volume = open(&place).await;
        let mut end = 0;
        while write(&place, &volume, end..end + 32).await.is_ok() {
            end += 32;
        }
        // Every fourth block goes: gaps everywhere, and no free line.
        for block in (0..end).step_by(4) {
            volume.discard(block * BLOCK, BLOCK, true).await.expect("discarded");
        }
        for _ in 0..3 {
            place.engine.checkpoint("tank").await.expect("a checkpoint");
        }
        for round in 0..4 {
            for nth in 0..16 {
                let block = (round * 16 + nth) * 8;
                write(&place, &volume, block..block + 1).await.expect("there are gaps");
            }
            // A trim has what is in the log go to the gaps, before it discards anything.
            let is_over = Cell::new(false);
            let trim = async {
                place.engine.pool_trim("tank").await.expect("trimmed");
                is_over.set(true);
            };
            let look = async {
                while !is_over.get() {
                    place.rt.sleep(Duration::from_micros(90)).await;
                    // A frame that was written and not flushed is in doubt.
                    let image = place.world.power_loss(|_, _| Fate::Whole);
                    if kept.borrow().len() < 12 * (round as usize + 1) {
                        kept.borrow_mut().push(image);
                    }
                }
            };
            join(trim, look).await;
        }
        *filled.borrow_mut() = end;
    });
    let end = *blocks.borrow();
    let lost = Rc::new(RefCell::new(0));
    for mut images in images.take() {
        let original = images[1].clone();
        let flip = |at: u64| {
            let mut byte = [0];
            images[1].read(at, &mut byte);
            images[1].write(at, &[byte[0] ^ 8]);
        };
        rot(flip, &original, 1);
        let sum = lost.clone();
        run(Some(images), async move |place: Rc<Place>| {
            let volume = open(&place).await;
            *sum.borrow_mut() += wrong(&volume, (0..end).filter(|block| block % 4 > 0)).await;
        });
    }
    lost.take()
}

/// Goal: what one disk has wrong is right on the others after an import.
#[test]
fn nothing_is_computed_from_what_nobody_has_looked_at() {
    assert_eq!(lost_to_an_import(), 0);
    plant(Some(Bug::ParityOfUnseen));
    let (lost, met) = (lost_to_an_import(), times_met());
    plant(None);
    assert!(lost > 0, "not caught: ParityOfUnseen, met {met} times");
}
