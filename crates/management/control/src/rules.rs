//! What may be asked for: the checks that need no engine, so that a dry run says the same as the real thing.
//!
//! Pure functions. The engine checks its own limits again; it does not trust this floor.

pub mod disks;
pub mod projects;
pub mod snapshots;
pub mod text;

use crate::filling::THRESHOLDS_MAX;
use crate::{iscsi_names, levels};
use forebay_api::{
    Code, DiskReplace, PoolAdd, PoolCreate, PoolScrub, Problem, ScrubAction, VolumeCreate, show_duration,
    show_size, show_size_exact,
};
use forebay_base::{Id, KIB, MIB, TIB};
use forebay_pool::{Compression, GroupStatus, Role, SnapshotInfo};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A shelf of 24 disks has a few dozen; a request with more than this is a mistake.
const DISKS_MAX: usize = 1024;
/// Linux's PATH_MAX.
const PATH_BYTES_MAX: usize = 4096;
/// From a minute, in which the engine looks once, to ten years.
const TRASH_SECONDS: RangeInclusive<u32> = 60..=10 * 365 * 24 * 3600;
/// From an hour to ten years: what is closer together never ends, what is further apart never begins.
const SCRUB_SECONDS: RangeInclusive<u32> = 3600..=10 * 365 * 24 * 3600;
pub const NAME_BYTES_MAX: usize = 63;
const VOLUME_NAME_BYTES_MAX: usize = 200;
/// The engine's.
pub const SHARDS_MAX: usize = 32;
/// What a block size may be.
const BLOCK_SIZES: &str = "Choose a power of two from 4 KiB to 128 KiB.";
pub const VOLUME_BYTES_MIN: u64 = MIB;
pub const VOLUME_BYTES_MAX: u64 = 64 * TIB;

pub fn invalid(field: &str, detail: String, remedy: &str) -> Problem {
    Problem::new(Code::Invalid, detail).field(field).remedy(remedy)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

/// A pool's or token's name. It must not look like a UUID, because either may stand in a path.
pub fn name(field: &str, name: &str) -> Result<(), Problem> {
    let well_formed = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_name_byte)
        && name.as_bytes()[0].is_ascii_alphabetic();
    if !well_formed {
        let detail = format!("`{}` is not a valid name", shown(name));
        let remedy = "Use 1 to 63 letters, digits and `._-`, starting with a letter.";
        return Err(invalid(field, detail, remedy));
    }
    if name.parse::<Id>().is_ok() {
        return Err(invalid(
            field,
            format!("`{name}` looks like a UUID"),
            "Choose a name that does not look like a UUID.",
        ));
    }
    Ok(())
}

/// What the user typed, short enough for a message.
pub fn shown(text: &str) -> String {
    let short: String = text.chars().take(80).filter(|c| text::is_seen(*c)).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// Splits `POOL/[PROJECT/]NAME` into the pool and the rest.
pub fn volume_name(name: &str) -> Result<(&str, &str), Problem> {
    let wrong = || {
        invalid(
            "name",
            format!("`{}` is not a volume name", shown(name)),
            "Write POOL/NAME; after the pool use 1 to 200 letters, digits and `._-/`.",
        )
    };
    let (pool, rest) = name.split_once('/').ok_or_else(wrong)?;
    self::name("name", pool).map_err(|_| wrong())?;
    let parts_fine = rest
        .split('/')
        .all(|part| !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_name_byte));
    if !parts_fine || rest.len() > VOLUME_NAME_BYTES_MAX {
        return Err(wrong());
    }
    Ok((pool, rest))
}

pub fn volume_size(size: u64, block_size: u32) -> Result<(), Problem> {
    if !(VOLUME_BYTES_MIN..=VOLUME_BYTES_MAX).contains(&size) {
        return Err(invalid(
            "size_bytes",
            format!("{} is not a possible volume size", show_size(size)),
            "Give 1 MiB to 64 TiB.",
        ));
    }
    if !size.is_multiple_of(u64::from(block_size)) {
        let up = size.next_multiple_of(u64::from(block_size));
        return Err(invalid(
            "size_bytes",
            format!(
                "{} is not a multiple of the block size, {}",
                show_size_exact(size),
                show_size_exact(block_size.into())
            ),
            &format!("The next larger multiple is {}.", show_size_exact(up)),
        ));
    }
    Ok(())
}

/// A volume that may be created.
#[derive(Debug)]
pub struct NewVolume<'a> {
    pub pool: &'a str,
    pub name: &'a str,
    pub size: u64,
    pub block_size: u32,
    pub compression: Option<Compression>,
    pub level: Option<Id>,
}

/// `source` is the snapshot that is asked for, if one is.
pub fn volume<'a>(
    request: &'a VolumeCreate,
    source: Option<&SnapshotInfo>,
    levels: &levels::Content,
) -> Result<NewVolume<'a>, Problem> {
    let (pool, name) = volume_name(&request.name)?;
    let (size, block_size) = match source {
        Some(source) => clone_geometry(request, pool, source)?,
        None => {
            let block_size = request.block_size_bytes.unwrap_or(VolumeCreate::BLOCK_SIZE_DEFAULT);
            let size = request.size_bytes.ok_or_else(|| {
                invalid("size_bytes", "the size is missing".into(), "Give 1 MiB to 64 TiB.")
            })?;
            (size, block_size)
        }
    };
    if !block_size.is_power_of_two() || !(4 * KIB..=128 * KIB).contains(&u64::from(block_size)) {
        return Err(invalid(
            "block_size_bytes",
            format!("{} is not a block size", show_size_exact(block_size.into())),
            BLOCK_SIZES,
        ));
    }
    volume_size(size, block_size)?;
    iscsi_names::logical_block(request.logical_block_bytes)?;
    if request.logical_block_bytes.is_some() && request.hosts.is_empty() {
        return Err(invalid(
            "logical_block_bytes",
            "a logical block size needs a host that the volume is mapped to".into(),
            "Name hosts, too, or choose the size when you map the volume.",
        ));
    }
    let compression = compression(request.compression.as_deref())?;
    let level = levels.asked(request.level.as_deref())?;
    Ok(NewVolume { pool, name, size, block_size, compression, level })
}

/// A compression by its name, if one is given.
pub fn compression(name: Option<&str>) -> Result<Option<Compression>, Problem> {
    let parsed = name.map(str::parse).transpose();
    parsed.map_err(|detail: String| invalid("compression", detail, "Give one of these."))
}

/// A clone has its snapshot's blocks, and is as large or larger.
fn clone_geometry(request: &VolumeCreate, pool: &str, source: &SnapshotInfo) -> Result<(u64, u32), Problem> {
    if pool != source.pool {
        let detail = format!("the snapshot is in pool {}, and a clone shares its blocks", source.pool);
        return Err(invalid("name", detail, &format!("Name it {}/….", source.pool)));
    }
    if request.block_size_bytes.is_some() {
        let detail = "a clone has its snapshot's block size".into();
        return Err(invalid("block_size_bytes", detail, "Omit it."));
    }
    let size = request.size_bytes.unwrap_or(source.size);
    if size < source.size {
        let detail = format!("the snapshot has {}, and a clone cannot be smaller", show_size(source.size));
        return Err(invalid("size_bytes", detail, "Omit the size, or give a larger one."));
    }
    Ok((size, source.block_size))
}

/// What is asked of a pool's scrubs: how long after the last the next begins, where that is given.
pub fn pool_scrub(request: &PoolScrub) -> Result<u32, Problem> {
    let wrong = |detail: String, remedy: &str| Err(invalid("every_seconds", detail, remedy));
    match (request.action, request.every_seconds) {
        (ScrubAction::Schedule, None) => {
            wrong("the interval is missing".into(), "Choose from 1 hour to 10 years, or 0 for never.")
        }
        (ScrubAction::Schedule, Some(every)) if every == 0 || SCRUB_SECONDS.contains(&every) => Ok(every),
        (ScrubAction::Schedule, Some(every)) => wrong(
            format!("a scrub every {} is not possible", show_duration(every)),
            "Choose from 1 hour to 10 years, or 0 for never.",
        ),
        (_, Some(_)) => {
            wrong("an interval belongs to the action `schedule`".into(), "Omit it, or use that action.")
        }
        (_, None) => Ok(0),
    }
}

/// Thresholds, in order, and what they mean in words.
pub fn thresholds(percents: &[u8]) -> Result<(Vec<u8>, String), Problem> {
    let mut sorted = percents.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let is_possible = sorted.iter().all(|percent| (1..=100).contains(percent));
    if sorted.is_empty() || sorted.len() > THRESHOLDS_MAX || !is_possible {
        let remedy = format!("Give 1 to {THRESHOLDS_MAX} percentages from 1 to 100.");
        return Err(invalid("threshold_percents", "these thresholds are not valid".into(), &remedy));
    }
    let each: Vec<String> = sorted.iter().map(|percent| format!("{percent} %")).collect();
    let words = format!("an event reports when {} are used", each.join(" and "));
    Ok((sorted, words))
}

/// How long deleted volumes are kept, in words.
pub fn trash_keep(seconds: u32) -> Result<String, Problem> {
    match seconds {
        0 => Ok("deleted volumes skip the trash; volumes in it are purged".into()),
        _ if TRASH_SECONDS.contains(&seconds) => {
            Ok(format!("deleted volumes stay in the trash for {}", show_duration(seconds)))
        }
        _ => {
            let detail = format!("{} in the trash is out of range", show_duration(seconds));
            let remedy = "Choose from 1 minute to 10 years, or 0 to skip the trash.";
            Err(invalid("trash_keep_seconds", detail, remedy))
        }
    }
}

/// Absolute, plausible, each once.
pub fn disks(field: &str, disks: &[String]) -> Result<(), Problem> {
    if disks.is_empty() {
        return Err(invalid(field, "no disks are given".into(), "Name at least one disk."));
    }
    if disks.len() > DISKS_MAX {
        let detail = format!("{} disks are given", disks.len());
        return Err(invalid(field, detail, "Give at most 1024 at once."));
    }
    for (index, disk) in disks.iter().enumerate() {
        if disk.len() >= PATH_BYTES_MAX || !disk.starts_with('/') || disk.contains('\0') {
            return Err(invalid(
                field,
                format!("`{}` is not an absolute path", shown(disk)),
                "Write the path on the daemon's host from the root, like /dev/sdb. `forebay disk list --free` lists the disks that a pool can use.",
            ));
        }
        if disks[..index].contains(disk) {
            return Err(invalid(
                field,
                format!("`{}` is given twice", shown(disk)),
                "Give each disk once. Two copies on one disk protect nothing.",
            ));
        }
    }
    Ok(())
}

pub fn pool(request: &PoolCreate) -> Result<(), Problem> {
    name("name", &request.name)?;
    disks("disks", &request.disks)?;
    if !request.log_disks.is_empty() {
        disks("log_disks", &request.log_disks)?;
        if request.log_disks.len() > 3 {
            let detail = format!("{} log disks are given", request.log_disks.len());
            return Err(invalid("log_disks", detail, "Give one, or two or three that mirror each other."));
        }
        if let Some(both) = request.log_disks.iter().find(|disk| request.disks.contains(disk)) {
            return Err(invalid(
                "log_disks",
                format!("`{}` is a data disk, too", shown(both)),
                "Give each disk one role.",
            ));
        }
    }
    if !request.spare_disks.is_empty() {
        disks("spare_disks", &request.spare_disks)?;
        let others = || request.disks.iter().chain(&request.log_disks);
        if let Some(both) = request.spare_disks.iter().find(|disk| others().any(|other| other == *disk)) {
            let detail = format!("`{}` is a data or log disk, too", shown(both));
            return Err(invalid("spare_disks", detail, "Give each disk one role."));
        }
    }
    if !request.cache_disks.is_empty() {
        disks("cache_disks", &request.cache_disks)?;
        let others = || request.disks.iter().chain(&request.log_disks).chain(&request.spare_disks);
        if let Some(both) = request.cache_disks.iter().find(|disk| others().any(|other| other == *disk)) {
            let detail = format!("`{}` has another role, too", shown(both));
            return Err(invalid("cache_disks", detail, "Give each disk one role."));
        }
    }
    for (disk, enclosure) in &request.enclosures {
        self::enclosure("enclosures", enclosure)?;
        if !all_disks(request).any(|other| other == disk) {
            let detail = format!("`{}` is not one of the pool's disks", shown(disk));
            return Err(invalid("enclosures", detail, "Write the path as in the list of disks."));
        }
    }
    sectors(&request.sectors, |disk| all_disks(request).any(|other| other == disk))?;
    let layout = crate::convert::layout_in(request.layout);
    if request.disks.len() < layout.width() {
        return Err(invalid(
            "disks",
            format!(
                "layout {} needs at least {} disks, {} given",
                request.layout,
                layout.width(),
                request.disks.len()
            ),
            "Add disks, or choose a layout that needs fewer.",
        ));
    }
    if let Some(shards) = request.shards
        && !(1..=SHARDS_MAX).contains(&(shards as usize))
    {
        return Err(invalid("shards", format!("{shards} shards is out of range"), "Give 1 to 32."));
    }
    Ok(())
}

/// The disks of a new pool, of all roles.
pub fn all_disks(request: &PoolCreate) -> impl Iterator<Item = &String> {
    request.disks.iter().chain(&request.log_disks).chain(&request.spare_disks).chain(&request.cache_disks)
}

/// Physical sectors by disk. Whether they go with the devices, the engine finds out.
fn sectors(sectors: &BTreeMap<String, u32>, is_disk: impl Fn(&String) -> bool) -> Result<(), Problem> {
    match sectors.keys().find(|disk| !is_disk(disk)) {
        None => Ok(()),
        Some(disk) => {
            let detail = format!("`{}` is not one of the disks", shown(disk));
            Err(invalid("sectors", detail, "Write the path as in the list of disks."))
        }
    }
}

pub fn disk_replace(request: &DiskReplace) -> Result<(), Problem> {
    request.new.as_ref().map_or(Ok(()), |path| disks("new", std::slice::from_ref(path)))?;
    if request.new.is_none() && request.sector_bytes.is_some() {
        let detail = "a spare disk already has its sector size";
        return Err(invalid("sector_bytes", detail.into(), "Name the new disk, or omit the sector size."));
    }
    Ok(())
}

/// Disks that are to join a pool with these groups.
pub fn pool_add(request: &PoolAdd, groups: &[GroupStatus]) -> Result<(), Problem> {
    disks("disks", &request.disks)?;
    request.enclosure.as_ref().map_or(Ok(()), |name| enclosure("enclosure", name))?;
    for (disk, name) in &request.enclosures {
        enclosure("enclosures", name)?;
        if !request.disks.contains(disk) {
            let detail = format!("`{}` is not one of the disks", shown(disk));
            return Err(invalid("enclosures", detail, "Write the path as in the list of disks."));
        }
    }
    sectors(&request.sectors, |disk| request.disks.contains(disk))?;
    let ways = [request.layout.is_some(), request.group.is_some(), request.spare, request.cache];
    if ways.into_iter().filter(|way| *way).count() > 1 {
        let detail = "more than one of layout, group, spare and cache is given";
        return Err(invalid("layout", detail.into(), "Give only one of them."));
    }
    let data: Vec<u16> =
        groups.iter().filter(|group| group.role == Role::Data).map(|group| group.number).collect();
    if request.group.is_some_and(|group| !data.contains(&group)) {
        let detail = "the pool has no data group with this number".into();
        return Err(invalid("group", detail, "`forebay pool status` shows its groups."));
    }
    if data.len() > 1 && !ways.contains(&true) {
        let names: Vec<String> = data.iter().map(u16::to_string).collect();
        let detail = format!("the pool has several data groups: {}", names.join(", "));
        return Err(invalid("group", detail, "Choose the group for the disks with --group."));
    }
    Ok(())
}

/// A name for a box of disks; how long it may be says the engine.
pub fn enclosure(field: &str, name: &str) -> Result<(), Problem> {
    if name.is_empty() || !name.chars().all(text::is_seen) {
        let detail = format!("`{}` is not a name for an enclosure", shown(name));
        return Err(invalid(
            field,
            detail,
            "Write the label on the enclosure, such as its slot in the rack.",
        ));
    }
    Ok(())
}

/// Disks of a group with something on them that do not serve.
#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::{Layout, Sync};

    pub(super) fn field<T: std::fmt::Debug>(result: Result<T, Problem>) -> String {
        let problem = result.unwrap_err();
        assert_eq!(problem.code, Code::Invalid);
        assert!(problem.remedy.is_some(), "a remedy for: {}", problem.detail);
        problem.field.expect("the field is named")
    }

    #[test]
    fn thresholds_are_a_few_percentages() {
        assert_eq!(thresholds(&[85, 70, 85]).unwrap().0, [70, 85]);
        for wrong in [&[][..], &[0], &[101], &[1, 2, 3, 4, 5, 6, 7, 8, 9]] {
            assert_eq!(field(thresholds(wrong)), "threshold_percents");
        }
    }

    #[test]
    fn the_trash_keeps_for_a_minute_to_ten_years_or_not_at_all() {
        for seconds in [0, 60, 7 * 24 * 3600, 315_360_000] {
            trash_keep(seconds).unwrap();
        }
        for seconds in [1, 59, 315_360_001, u32::MAX] {
            assert_eq!(field(trash_keep(seconds)), "trash_keep_seconds");
        }
    }

    #[test]
    fn disks_that_join() {
        let request = PoolAdd {
            disks: vec!["/dev/a".into(), "/dev/b".into()],
            layout: None,
            group: None,
            spare: false,
            cache: false,
            enclosure: None,
            enclosures: Default::default(),
            sectors: Default::default(),
            force: false,
        };
        let group = |number: u16, role: Role| GroupStatus {
            number,
            leaving: false,
            role,
            layout: forebay_pool::Layout::Mirror,
            size: 0,
            used: 0,
            disks: Vec::new(),
        };
        let one = [group(0, Role::Data), group(1, Role::Log)];
        let two = [group(0, Role::Data), group(1, Role::Log), group(2, Role::Data)];
        let (layout, spare) = (PoolAdd { layout: Some(Layout::Mirror), ..request.clone() }, true);
        for (request, groups) in [
            (request.clone(), &one[..]),
            (layout.clone(), &two),
            (PoolAdd { spare, ..request.clone() }, &two),
            (PoolAdd { group: Some(2), ..request.clone() }, &two),
        ] {
            pool_add(&request, groups).unwrap();
        }
        assert_eq!(field(pool_add(&request, &two)), "group", "which one?");
        assert_eq!(field(pool_add(&PoolAdd { group: Some(1), ..request.clone() }, &two)), "group");
        assert_eq!(field(pool_add(&PoolAdd { spare, ..layout.clone() }, &one)), "layout");
        assert_eq!(field(pool_add(&PoolAdd { group: Some(0), ..layout }, &one)), "layout");
        let elsewhere = [("/dev/c".to_string(), "left".to_string())].into();
        assert_eq!(
            field(pool_add(&PoolAdd { enclosures: elsewhere, ..request.clone() }, &one)),
            "enclosures"
        );
        let elsewhere = [("/dev/c".to_string(), 4096)].into();
        assert_eq!(field(pool_add(&PoolAdd { sectors: elsewhere, ..request }, &one)), "sectors");
        let spare = DiskReplace { sector_bytes: Some(4096), ..DiskReplace::default() };
        assert_eq!(field(disk_replace(&spare)), "sector_bytes");
    }

    #[test]
    fn names() {
        let long = "x".repeat(64);
        for good in ["a", "tank-1", "A.b_c", &long[..63]] {
            name("name", good).unwrap();
        }
        for bad in ["", "1a", "-a", "a/b", "a b", "a\n", "ä", &long, "a1234567-89ab-4def-bedc-ba9876543210"]
        {
            assert_eq!(field(name("name", bad)), "name", "{bad:?}");
        }
        assert_eq!(volume_name("tank/a").unwrap(), ("tank", "a"));
        assert_eq!(volume_name("tank/web/a").unwrap(), ("tank", "web/a"));
        let long = format!("tank/{}", "x".repeat(201));
        for bad in ["tank", "tank/", "/a", "tank//a", "tank/../a", "tank/.", "tank/a/", "tank/a b", &long] {
            assert_eq!(field(volume_name(bad)), "name", "{bad:?}");
        }
    }

    fn volume<'a>(
        request: &'a VolumeCreate,
        source: Option<&SnapshotInfo>,
    ) -> Result<NewVolume<'a>, Problem> {
        super::volume(request, source, &levels::Content::default())
    }

    #[test]
    fn sizes() {
        let request = |size_bytes, block_size_bytes| VolumeCreate {
            name: "tank/a".into(),
            size_bytes: Some(size_bytes),
            block_size_bytes: Some(block_size_bytes),
            format: None,
            sync: Some(Sync::Always),
            compression: None,
            from_snapshot: None,
            hosts: Vec::new(),
            logical_block_bytes: None,
            level: None,
        };
        for (size, block) in [(MIB, 4096), (64 * TIB, 131072), (MIB + 8192, 8192)] {
            let request = request(size, block);
            let new = volume(&request, None).unwrap();
            assert_eq!((new.pool, new.name, new.size), ("tank", "a", size));
        }
        for (size, block, name) in [
            (0, 8192, "size_bytes"),
            (MIB - 4096, 4096, "size_bytes"),
            (64 * TIB + 8192, 8192, "size_bytes"),
            (u64::MAX, 8192, "size_bytes"),
            (MIB + 1, 8192, "size_bytes"),
            (MIB, 0, "block_size_bytes"),
            (MIB, 512, "block_size_bytes"),
            (MIB, 12288, "block_size_bytes"),
            (MIB, 262144, "block_size_bytes"),
        ] {
            assert_eq!(field(volume(&request(size, block), None)), name, "{size} {block}");
        }
        let bare = VolumeCreate { size_bytes: None, block_size_bytes: None, ..request(0, 0) };
        assert_eq!(field(volume(&bare, None)), "size_bytes");
        let sized = VolumeCreate { size_bytes: Some(MIB), ..bare.clone() };
        assert_eq!(volume(&sized, None).unwrap().block_size, 8192);

        // A clone.
        let source = SnapshotInfo { size: 2 * MIB, block_size: 16384, ..snapshots::tests::snapshot() };
        let new = volume(&bare, Some(&source)).unwrap();
        assert_eq!((new.size, new.block_size), (2 * MIB, 16384));
        let grown = VolumeCreate { size_bytes: Some(3 * MIB), ..bare.clone() };
        assert_eq!(volume(&grown, Some(&source)).unwrap().size, 3 * MIB);
        let uneven = VolumeCreate { size_bytes: Some(2 * MIB + 8192), ..bare.clone() };
        assert_eq!(field(volume(&uneven, Some(&source))), "size_bytes");
        assert_eq!(field(volume(&sized, Some(&source))), "size_bytes");
        let blocks = VolumeCreate { block_size_bytes: Some(16384), ..bare.clone() };
        assert_eq!(field(volume(&blocks, Some(&source))), "block_size_bytes");
        let elsewhere = VolumeCreate { name: "other/a".into(), ..bare };
        assert_eq!(field(volume(&elsewhere, Some(&source))), "name");
    }

    #[test]
    fn pools() {
        let request = |disks: &[&str], logs: &[&str], layout| PoolCreate {
            name: "tank".into(),
            layout,
            disks: disks.iter().map(|d| d.to_string()).collect(),
            log_disks: logs.iter().map(|d| d.to_string()).collect(),
            spare_disks: Vec::new(),
            cache_disks: Vec::new(),
            enclosures: Default::default(),
            sectors: Default::default(),
            shards: None,
            log_bytes: None,
            force: false,
            calibrate: true,
        };
        pool(&request(&["/a"], &[], Layout::Single)).unwrap();
        pool(&request(&["/a", "/b", "/c"], &["/d"], Layout::Mirror)).unwrap();
        for (disks, logs, layout, name) in [
            (&["/a"][..], &[][..], Layout::Mirror, "disks"),
            (&["/a", "/b"], &[], Layout::Mirror3, "disks"),
            (&[], &[], Layout::Single, "disks"),
            (&["a"], &[], Layout::Single, "disks"),
            (&["/a\0"], &[], Layout::Single, "disks"),
            (&["/a", "/a"], &[], Layout::Mirror, "disks"),
            (&["/a"], &["/a"], Layout::Single, "log_disks"),
            (&["/a"], &["/b", "/c", "/d", "/e"], Layout::Single, "log_disks"),
        ] {
            assert_eq!(field(pool(&request(disks, logs, layout))), name, "{disks:?} {logs:?}");
        }
        let shards = PoolCreate { shards: Some(33), ..request(&["/a"], &[], Layout::Single) };
        assert_eq!(field(pool(&shards)), "shards");
        let good = request(&["/a", "/b"], &[], Layout::Mirror);
        let with = |spares: &[&str], boxes: &[(&str, &str)]| PoolCreate {
            spare_disks: spares.iter().map(|d| d.to_string()).collect(),
            enclosures: boxes.iter().map(|(disk, name)| (disk.to_string(), name.to_string())).collect(),
            ..good.clone()
        };
        pool(&with(&["/c"], &[("/a", "left"), ("/c", "right")])).unwrap();
        assert_eq!(field(pool(&with(&["/a"], &[]))), "spare_disks");
        assert_eq!(field(pool(&with(&["c"], &[]))), "spare_disks");
        assert_eq!(field(pool(&with(&[], &[("/c", "left")]))), "enclosures");
        assert_eq!(field(pool(&with(&[], &[("/a", "")]))), "enclosures");
    }
}
