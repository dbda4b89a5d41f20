//! Are pools of every released version of the format imported, with all that is in them? Small ones lie in `tests/fixtures`, a directory for each version:
//! what all disks held at one moment, compressed.
//!
//! `FOREBAY_UPDATE=1` makes those of the newest version anew. Once a version has been released, its files never change again: then what this test makes belongs
//! into a directory of the next one.

use forebay_base::{Id, KIB, MIB};
use forebay_pool::check::check;
use forebay_pool::{
    Compression, Engine, EngineConfig, Host, Import, Layout, PoolSpec, ProjectProperties, SyncPolicy, Volume,
    VolumeDelete, VolumeFormat, VolumeSpec,
};
use forebay_runtime::{Buf, Rt};
use forebay_simulation::{Image, PAGE, World, WorldConfig};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1 << 20);
const VERSION: u32 = 2;
const YEAR: u32 = 365 * 24 * 3600;
const BLOCK: u64 = 8 * KIB;

/// A pool that is kept.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    layout: Layout,
    disks: usize,
    log_disks: usize,
    /// It was exported; otherwise it is as a power failure left it, with what is in its log.
    is_exported: bool,
}

const KINDS: [Kind; 2] = [
    Kind { name: "mirror", layout: Layout::Mirror, disks: 2, log_disks: 0, is_exported: true },
    Kind {
        name: "parity",
        layout: Layout::Parity { data: 2, parity: 1 },
        disks: 3,
        log_disks: 2,
        is_exported: false,
    },
];

fn path(version: u32, kind: &Kind) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    directory.join(version.to_string()).join(format!("{}.zst", kind.name))
}

/// The number of disks; of each its bytes, how many pages it has, and these with their numbers.
fn encode(images: &[Image]) -> Vec<u8> {
    let mut bytes = (images.len() as u64).to_le_bytes().to_vec();
    for image in images {
        let pages = 0..image.size() / PAGE as u64;
        let pages: Vec<_> = pages.filter_map(|number| Some((number, image.page(number)?))).collect();
        bytes.extend(image.size().to_le_bytes());
        bytes.extend((pages.len() as u64).to_le_bytes());
        for (number, page) in pages {
            bytes.extend(number.to_le_bytes());
            bytes.extend(page.iter());
        }
    }
    bytes
}

fn decode(bytes: &[u8]) -> Vec<Image> {
    let mut left = bytes;
    let mut take = |count: usize| left.split_off(..count).expect("as long as it says").to_vec();
    let number = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let disks = number(take(8));
    let mut images = Vec::new();
    for _ in 0..disks {
        let mut image = Image::new(number(take(8)));
        for _ in 0..number(take(8)) {
            let at = number(take(8));
            image.set_page(at, Some(Rc::new(take(PAGE).try_into().expect("a page"))));
        }
        images.push(image);
    }
    images
}

/// What a block of a volume has; each sector of it something else.
fn block(rt: &Rt, name: &str, nth: u64) -> Buf {
    let mut buffer = rt.arena().take_zeroed(BLOCK as usize);
    for (sector, bytes) in buffer.chunks_mut(512).enumerate() {
        let text = format!("{name} block {nth} sector {sector}");
        bytes[..text.len()].copy_from_slice(text.as_bytes());
    }
    buffer.freeze()
}

async fn write(rt: &Rt, volume: &Volume, name: &str, blocks: impl Iterator<Item = u64>) {
    for nth in blocks {
        volume.write(nth * BLOCK, vec![block(rt, name, nth)], true).await.expect("written");
    }
}

/// These blocks, and no others of the first 64, hold what `name` wrote.
async fn holds(rt: &Rt, engine: &Engine, volume: &str, parts: &[(&str, std::ops::Range<u64>)]) {
    let id = engine.volume(volume).await.unwrap_or_else(|error| panic!("{volume}: {error}")).id;
    let open = Volume::open(rt, id).expect("open");
    for nth in 0..64 {
        let read = open.read(nth * BLOCK, BLOCK as usize).await.expect("read");
        let read: Vec<u8> = read.iter().flat_map(|part| part.to_vec()).collect();
        let writer = parts.iter().find(|(_, blocks)| blocks.contains(&nth));
        let want = writer.map_or(vec![0; BLOCK as usize], |(name, _)| block(rt, name, nth).to_vec());
        assert!(read == want, "{volume}: block {nth}");
    }
}

fn run<W: Future<Output = ()> + 'static>(
    images: Vec<Image>,
    main: impl FnOnce(Rc<World>, Engine, Rt) -> W + 'static,
) {
    let world = Rc::new(World::new(WorldConfig::new(7)));
    images.into_iter().for_each(|image| _ = world.add_disk(image));
    let (executor, cores) = world.executor(2);
    let rt = executor.rt().clone();
    let host = Host { id: Id(1), name: "fixture".into() };
    let config = EngineConfig { memory: 16 << 20, events: Arc::new(|_| ()), host };
    let main = main(world.clone(), Engine::new(cores, config), rt);
    world.run(&executor, LIMIT, main).expect("finishes");
}

fn paths(disks: std::ops::Range<usize>) -> Vec<String> {
    disks.map(|disk| format!("sim{disk}")).collect()
}

/// Makes one with something of everything that the format has.
async fn fill(kind: Kind, engine: &Engine, rt: &Rt) {
    let spec = PoolSpec {
        name: "tank".into(),
        layout: kind.layout,
        disks: paths(0..kind.disks),
        log_disks: paths(kind.disks..kind.disks + kind.log_disks),
        spare_disks: Vec::new(),
        cache_disks: Vec::new(),
        enclosures: Vec::new(),
        sectors: Vec::new(),
        shards: 2,
        log_bytes: None,
        force: false,
    };
    engine.pool_create(spec).await.expect("created");
    engine.set_trash_keep("tank", YEAR).await.expect("set");
    let properties = ProjectProperties { quota: Some(64 * MIB), ..ProjectProperties::default() };
    engine.project_create("tank/work", properties).await.expect("created");
    let volumes = [
        ("plain", Compression::Off, VolumeFormat::Thin),
        ("work/packed", Compression::Lz4, VolumeFormat::Thin),
        ("reserved", Compression::Off, VolumeFormat::ZeroedThick),
        ("gone", Compression::Off, VolumeFormat::Thin),
    ];
    for (name, compression, format) in volumes {
        let spec = VolumeSpec {
            pool: "tank".into(),
            name: name.into(),
            size: MIB,
            block_size: BLOCK as u32,
            sync: Some(SyncPolicy::Always),
            compression: Some(compression),
            format,
            level: None,
            own_hosts: false,
        };
        let id = engine.volume_create(spec).await.expect("created").id;
        let volume = Volume::open(rt, id).expect("open");
        write(rt, &volume, name, 0..16).await;
    }
    engine
        .snapshot_create(vec!["tank/plain".into(), "tank/work/packed".into()], "early")
        .await
        .expect("taken");
    engine.snapshot_create_retained(vec!["tank/plain".into()], "kept", YEAR).await.expect("taken");
    engine.volume_clone("tank/plain@early", "copy").await.expect("cloned");
    engine.volume_delete("tank/gone", VolumeDelete::default()).await.expect("in the trash");
    let items = [("long", 3000), ("short", 3), ("gone", 700)];
    let items = items.map(|(key, bytes)| (key.to_string(), Some(item(key, bytes))));
    engine.put_items("tank", items.into()).await.expect("put");
    engine.checkpoint("tank").await.expect("written");
    let later = [("gone".into(), None), ("later".into(), Some(item("later", 5)))];
    engine.put_items("tank", later.into()).await.expect("put");
    // From here on it is in the log alone, if the pool is not exported.
    for (name, blocks) in [("plain", 8..24), ("copy", 40..44), ("work/packed", 4..8)] {
        let id = engine.volume(&format!("tank/{name}")).await.expect("there").id;
        let volume = Volume::open(rt, id).expect("open");
        write(rt, &volume, "later", blocks).await;
        volume.flush().await.expect("durable");
    }
}

/// The value of an item of the registry.
fn item(key: &str, bytes: usize) -> Vec<u8> {
    key.bytes().cycle().take(bytes).collect()
}

async fn verify(engine: &Engine, rt: &Rt) {
    holds(rt, engine, "tank/plain", &[("plain", 0..8), ("later", 8..24)]).await;
    holds(rt, engine, "tank/copy", &[("plain", 0..16), ("later", 40..44)]).await;
    holds(rt, engine, "tank/work/packed", &[("work/packed", 0..4), ("later", 4..8), ("work/packed", 8..16)])
        .await;
    holds(rt, engine, "tank/reserved", &[("reserved", 0..16)]).await;
    engine.volume_clone("tank/plain@kept", "kept").await.expect("cloned");
    holds(rt, engine, "tank/kept", &[("plain", 0..16)]).await;
    let kept = engine.snapshot("tank/plain@kept").await.expect("there");
    assert!(kept.retained_until.is_some() && engine.snapshot_delete("tank/plain@kept").await.is_err());
    let trash = engine.trash(Some("tank")).await.expect("listed");
    assert_eq!(trash.len(), 1);
    let project = engine.project("tank/work").await.expect("there");
    assert_eq!(project.properties.quota, Some(64 * MIB));
    let items = engine.items("tank").await.expect("there");
    let want = [("later", 5), ("long", 3000), ("short", 3)];
    assert!(items.into_iter().eq(want.map(|(key, bytes)| (key.to_string(), item(key, bytes)))));
}

#[test]
fn pools_of_every_version_are_imported_with_all_that_is_in_them() {
    if std::env::var_os("FOREBAY_UPDATE").is_some() {
        KINDS.into_iter().for_each(make);
    }
    for (version, kind) in (2..=VERSION).flat_map(|version| KINDS.map(|kind| (version, kind))) {
        let file = path(version, &kind);
        let packed = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut bytes = vec![0; 64 << 20];
        let len = zstd_safe::decompress(&mut bytes[..], &packed).expect("as it was written");
        let images = decode(&bytes[..len]);
        let disks = paths(0..images.len());
        run(images, move |_, engine, rt| async move {
            let imported = engine.pool_import("tank", disks.clone(), Import::default()).await;
            imported.unwrap_or_else(|error| panic!("format {version}, {}: {error}", kind.name));
            verify(&engine, &rt).await;
            engine.pool_export("tank").await.expect("exported");
            let report = check(&rt, &disks).await.expect("checked");
            assert_eq!(report.problems, Vec::<String>::new());
        });
    }
}

fn make(kind: Kind) {
    let disks = kind.disks + kind.log_disks;
    run(vec![Image::new(24 * MIB); disks], move |world, engine, rt| async move {
        fill(kind, &engine, &rt).await;
        if kind.is_exported {
            engine.pool_export("tank").await.expect("exported");
        }
        let images: Vec<Image> = (0..disks).map(|disk| world.image(disk)).collect();
        let bytes = encode(&images);
        let mut packed = vec![0; zstd_safe::compress_bound(bytes.len())];
        let len = zstd_safe::compress(&mut packed[..], &bytes, 19).expect("there is room");
        packed.truncate(len);
        let file = path(VERSION, &kind);
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("made");
        std::fs::write(file, packed).expect("written");
    });
}
