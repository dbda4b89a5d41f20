//! The rows of the matrix about what is lost: told whose it is, known after a restart, and forgotten when it is written anew.

use crate::content::SECTOR;
use crate::harness::Failure;
use crate::matrix::Shown;
use crate::rows_heal::failed;
use crate::scene::{self, Scene};
use crate::setup::{POOL, Setup};
use crate::workload::{Tolerance, read_sectors};
use forebay_pool::{Compression, Damaged, Import, Layout, ScrubState, Volume, VolumeDelete, VolumeInfo};
use std::collections::{BTreeMap, BTreeSet};

const PAGE: usize = 4096;
/// As much of each volume is read: what clients write is there, or in islands further on, of which nothing is lost.
const READ_BYTES_MAX: u64 = 8 << 20;
/// Blocks that are lost of each run.
const LOST: u64 = 12;

/// Where each block is that reads as an error: the volume or snapshot, within the pool, and the byte it begins at.
type Failing = BTreeSet<(String, u64)>;

pub fn has_copies(setup: &Setup) -> bool {
    matches!(setup.layout, Layout::Mirror | Layout::Mirror3)
}

/// Blocks whose every copy rots can be told from what is on the disks only where they are stored as they are.
pub fn can_lose(setup: &Setup) -> bool {
    matches!(setup.layout, Layout::Single | Layout::Mirror | Layout::Mirror3)
}

fn wrong(what: String) -> Failure {
    Failure::Outcome(what)
}

fn path(info: &VolumeInfo) -> String {
    format!("{POOL}/{}", info.name)
}

/// The blocks of a volume that hold something, and those that cannot be read.
async fn read_through(scene: &Scene, name: &str) -> Result<(BTreeMap<u64, Vec<u8>>, Failing), Failure> {
    let info = scene.engine.volume(name).await.map_err(failed("looking at a volume failed"))?;
    let volume =
        Volume::open(&scene.rt, info.id).map_err(|error| wrong(format!("opening {name}: {error}")))?;
    let (mut found, mut failing) = (BTreeMap::new(), Failing::new());
    let sectors = info.block_size / SECTOR as u32;
    for block in 0..info.size.min(READ_BYTES_MAX) / u64::from(info.block_size) {
        let from = block * u64::from(sectors);
        let within = name.split_once('/').map_or(name, |(_, within)| within);
        match read_sectors(&volume, from as u32, from as u32 + sectors).await {
            Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => {}
            Ok(bytes) => drop(found.insert(block, bytes)),
            Err(_) => drop(failing.insert((within.to_string(), block * u64::from(info.block_size)))),
        }
    }
    Ok((found, failing))
}

/// Everything that reads as an error, of volumes, and of snapshots by way of clones.
async fn failing(scene: &Scene) -> Result<Failing, Failure> {
    let mut all = Failing::new();
    for info in scene.engine.volumes(Some(POOL)).await.map_err(failed("listing volumes failed"))? {
        all.extend(read_through(scene, &path(&info)).await?.1);
    }
    for snapshot in scene.engine.snapshots(Some(POOL)).await.map_err(failed("listing snapshots failed"))? {
        let (path, within) = (
            format!("{POOL}/{}@{}", snapshot.volume, snapshot.name),
            format!("{}@{}", snapshot.volume, snapshot.name),
        );
        let clone = format!("{POOL}/look");
        scene.engine.volume_clone(&path, "look").await.map_err(failed("cloning a snapshot failed"))?;
        let (_, own) = read_through(scene, &clone).await?;
        all.extend(own.into_iter().map(|(_, at)| (within.clone(), at)));
        let how = VolumeDelete { purge: true, ..VolumeDelete::default() };
        scene.engine.volume_delete(&clone, how).await.map_err(failed("deleting a clone failed"))?;
    }
    Ok(all)
}

/// The same, as the pool tells it.
async fn told(scene: &Scene) -> Result<(Failing, Vec<Damaged>), Failure> {
    let ranges = scene.engine.damage(POOL).await.map_err(failed("asking for the damage failed"))?;
    let mut sizes = BTreeMap::new();
    for info in scene.engine.volumes(Some(POOL)).await.map_err(failed("listing volumes failed"))? {
        sizes.insert(info.name.clone(), u64::from(info.block_size));
    }
    let mut all = Failing::new();
    for range in &ranges {
        let volume = range.name.split('@').next().unwrap_or_default();
        let Some(block) = sizes.get(volume) else { return Err(wrong(format!("nobody has {}", range.name))) };
        all.extend(
            (range.first..range.first + range.bytes)
                .step_by(*block as usize)
                .map(|at| (range.name.clone(), at)),
        );
    }
    Ok((all, ranges))
}

/// What the pool says is lost is what cannot be read, no more and no less.
async fn agree(scene: &Scene, when: &str) -> Result<Failing, Failure> {
    let (failing, (told, _)) = (failing(scene).await?, told(scene).await?);
    if failing != told {
        let unknown: Vec<_> = failing.difference(&told).take(4).collect();
        let wrongly: Vec<_> = told.difference(&failing).take(4).collect();
        return Err(wrong(format!("{when}: lost and not told: {unknown:?}; told and not lost: {wrongly:?}")));
    }
    let status = scene.engine.pool_scrubbed(POOL).await.map_err(failed("asking for the pool failed"))?;
    if (status.damage.places > 0) == told.is_empty() {
        return Err(wrong(format!("{when}: {:?}, and {} blocks are lost", status.damage, told.len())));
    }
    Ok(told)
}

async fn import_again(scene: &Scene, setup: &Setup) -> Result<(), Failure> {
    scene
        .engine
        .pool_import(POOL, setup.paths(), Import::default())
        .await
        .map(drop)
        .map_err(failed("the import failed"))
}

async fn scrub(scene: &Scene) -> Result<u64, Failure> {
    scene.engine.scrub_start(POOL).await.map_err(failed("starting a scrub failed"))?;
    let status = scene.engine.pool_scrubbed(POOL).await.map_err(failed("scrubbing failed"))?;
    match status.scrub {
        Some(scrub) if scrub.state == ScrubState::Done => Ok(scrub.lost),
        other => Err(wrong(format!("a scrub ended as {other:?}"))),
    }
}

/// What there is in these volumes, block by block.
async fn contents(scene: &Scene, paths: &[String]) -> Result<Vec<Vec<u8>>, Failure> {
    let mut blocks = Vec::new();
    for path in paths {
        blocks.extend(read_through(scene, path).await?.0.into_values());
    }
    Ok(blocks)
}

/// The first pages of some of these blocks.
fn choose(scene: &Scene, blocks: &[Vec<u8>]) -> BTreeSet<Vec<u8>> {
    let any = |_| blocks.get(scene.clients.below(blocks.len().max(1) as u64) as usize);
    (0..LOST).filter_map(any).map(|block| block[..PAGE].to_vec()).collect()
}

/// These pages change on these disks, wherever they are.
fn rot(scene: &Scene, disks: impl Iterator<Item = usize>, chosen: &BTreeSet<Vec<u8>>) {
    for disk in disks {
        let image = scene.world.image(disk);
        for page in 0..image.size() / PAGE as u64 {
            if image.page(page).is_some_and(|known| chosen.contains(&known[..])) {
                scene.world.rot(disk, page * PAGE as u64 + scene.clients.below(PAGE as u64), &[1]);
            }
        }
    }
}

/// What a disk has that was out of service rots on all others meanwhile. As soon as a scrub has found that, the disk is taken back: what it missed is
/// copied to it, and what it alone has right is right everywhere after one more scrub.
pub fn taken_back(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup {
        groups: 1,
        second: false,
        cache_disks: 0,
        log_disks: 0,
        disks: None,
        volumes: 2,
        compression: Some(Compression::Off),
        management: false,
        policies: false,
        ..setup.clone()
    };
    let own = setup.clone();
    let world = scene::world(setup);
    let ended = scene::play(
        &world,
        setup,
        Tolerance { errors: false, no_space: true },
        async move |scene: &Scene| {
            scene.clients.run(own.operations).await?;
            let volumes = scene.engine.volumes(Some(POOL)).await.map_err(failed("listing volumes failed"))?;
            let paths: Vec<String> = volumes.iter().map(path).collect();
            // Everything is in its place, on all disks.
            scene.export().await?;
            import_again(scene, &own).await?;
            scene.clients.open_again().await?;
            let old: BTreeSet<Vec<u8>> = contents(scene, &paths).await?.into_iter().collect();
            let last = scene.world.disk_count() - 1;
            let disk = last.to_string();
            scene.engine.disk_offline(POOL, &disk).await.map_err(failed("taking a disk out failed"))?;
            scene.clients.run(own.operations / 2).await?;
            let now = contents(scene, &paths).await?;
            scene.export().await?;
            // Not what the pool itself has moved meanwhile: that is where the disk never had it.
            let (first, image) = (scene.world.image(0), scene.world.image(last));
            let mut places: BTreeMap<&[u8], Vec<u64>> = BTreeMap::new();
            for page in 0..first.size() / PAGE as u64 {
                if let Some(bytes) = first.page(page) {
                    places.entry(&bytes[..]).or_default().push(page);
                }
            }
            let is_held = |block: &Vec<u8>| match places.get(&block[..PAGE]).map(Vec::as_slice) {
                Some([page]) => image.page(*page).is_some_and(|bytes| bytes[..] == block[..PAGE]),
                _ => false,
            };
            let kept: Vec<Vec<u8>> =
                now.into_iter().filter(|block| old.contains(block) && is_held(block)).collect();
            let chosen = choose(scene, &kept);
            rot(scene, 0..last, &chosen);
            import_again(scene, &own).await?;
            let lost = scrub(scene).await?;
            if (lost > 0) == chosen.is_empty() {
                return Err(wrong(format!("{} blocks rotted, and the scrub found {lost}", chosen.len())));
            }
            scene.engine.disk_online(POOL, &disk, None).await.map_err(failed("taking it back failed"))?;
            scene.engine.pool_healed(POOL).await.map_err(failed("waiting failed"))?;
            let left = scrub(scene).await?;
            let known = agree(scene, "after the disk was taken back").await?;
            if left > 0 || !known.is_empty() {
                return Err(wrong(format!(
                    "the disk had all of the {lost} that were lost, and {left} are: {known:?}"
                )));
            }
            scene.export().await
        },
    )?;
    Ok(Shown { cases: 1, faults: world.faults_fired().max(1), errors: ended.excused, ..Shown::default() })
}

/// Blocks rot on every disk that has them, of volumes, snapshots and clones. A scrub finds all of them; a restart forgets none, nor what the scrub
/// said; those that are written anew, or go with what had them, are forgotten.
pub fn damaged(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup {
        groups: 1,
        second: false,
        cache_disks: 0,
        log_disks: 0,
        disks: None,
        volumes: 3,
        compression: Some(Compression::Off),
        management: false,
        policies: false,
        ..setup.clone()
    };
    let own = setup.clone();
    let world = scene::world(setup);
    let ended = scene::play(
        &world,
        setup,
        Tolerance { errors: false, no_space: true },
        async move |scene: &Scene| {
            scene.clients.run(own.operations).await?;
            let volumes = scene.engine.volumes(Some(POOL)).await.map_err(failed("listing volumes failed"))?;
            let paths: Vec<String> = volumes.iter().map(path).collect();
            scene.engine.snapshot_create(paths.clone(), "kept").await.map_err(failed("a snapshot failed"))?;
            scene
                .engine
                .volume_clone(&format!("{}@kept", paths[0]), "clone")
                .await
                .map_err(failed("a clone failed"))?;
            scene.clients.run(own.operations / 2).await?;
            let blocks = contents(scene, &paths).await?;
            // Nothing of it is in memory after that.
            scene.export().await?;
            let all = 0..scene.world.disk_count();
            rot(scene, all, &choose(scene, &blocks));
            import_again(scene, &own).await?;
            let lost = scrub(scene).await?;
            let known = agree(scene, "after a scrub").await?;
            if (lost > 0) == known.is_empty() {
                return Err(wrong(format!("the scrub found {lost}, and {} blocks are lost", known.len())));
            }
            scene.export().await?;
            import_again(scene, &own).await?;
            let (again, _) = told(scene).await?;
            let status =
                scene.engine.pool_scrubbed(POOL).await.map_err(failed("asking for the pool failed"))?;
            if again != known || status.scrub.as_ref().map(|scrub| scrub.lost) != Some(lost) {
                return Err(wrong(format!(
                    "{} blocks were known to be lost before a restart, {} after it; the scrub that found {lost} is {:?}",
                    known.len(),
                    again.len(),
                    status.scrub
                )));
            }
            agree(scene, "after a restart").await?;
            let status = scene.engine.damage_accept(POOL).await.map_err(failed("accepting failed"))?;
            if status.damage.open > 0 {
                return Err(wrong("what was accepted is told as new".into()));
            }
            // Half of it is written anew, and then what has the rest goes.
            for (name, at) in
                known.iter().filter(|(name, at)| !name.contains('@') && (at / PAGE as u64).is_multiple_of(2))
            {
                let info = scene
                    .engine
                    .volume(&format!("{POOL}/{name}"))
                    .await
                    .map_err(failed("looking at a volume failed"))?;
                let volume = Volume::open(&scene.rt, info.id)
                    .map_err(|error| wrong(format!("opening {name}: {error}")))?;
                let mut bytes = scene.rt.arena().take_zeroed(info.block_size as usize);
                bytes[0] = 1;
                volume
                    .write(*at, vec![bytes.freeze()], true)
                    .await
                    .map_err(|error| wrong(format!("writing {name}: {error}")))?;
            }
            for _ in 0..2 {
                scene.engine.checkpoint(POOL).await.map_err(failed("a checkpoint failed"))?;
            }
            agree(scene, "after half was written anew").await?;
            for path in paths.iter().chain([&format!("{POOL}/clone")]).rev() {
                let how = VolumeDelete { with_snapshots: true, purge: true };
                scene.engine.volume_delete(path, how).await.map_err(failed("deleting a volume failed"))?;
            }
            scene.engine.pool_healed(POOL).await.map_err(failed("waiting failed"))?;
            for _ in 0..40 {
                scene.engine.checkpoint(POOL).await.map_err(failed("a checkpoint failed"))?;
                if scene.engine.pool_scrubbed(POOL).await.map_err(failed("asking failed"))?.damage.places == 0
                {
                    return scene.export().await;
                }
                scene.rt.sleep(std::time::Duration::from_millis(100)).await;
            }
            Err(wrong(format!("all that had what is lost is gone, and still {:?}", told(scene).await?.1)))
        },
    )?;
    Ok(Shown { cases: 1, faults: world.faults_fired().max(1), errors: ended.excused, ..Shown::default() })
}
