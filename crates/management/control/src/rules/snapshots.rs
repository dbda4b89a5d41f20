//! What may be done with snapshots.
//!
//! The loss of a held snapshot is a conflict and not `unsafe`: no flag overrides it, it has to be released.

use super::{invalid, shown};
use crate::convert;
use forebay_api::{Code, Problem, SnapshotCreate, SnapshotKeep, show_duration};
use forebay_base::WallTime;
use forebay_pool::{SnapshotInfo, SnapshotSchedule, VolumeInfo, utc};
use std::ops::RangeInclusive;

const NAME_BYTES_MAX: usize = 100;
/// All of them halt for the moment in which they are taken.
const GROUP_MAX: usize = 256;
/// From a minute, in which an unused snapshot costs more than it is worth, to a leap year.
const EVERY_SECONDS: RangeInclusive<u32> = 60..=366 * 24 * 3600;
/// A hundred years.
const RETAIN_SECONDS: RangeInclusive<u64> = 1..=100 * 365 * 24 * 3600;
/// Names in a message; there may be hundreds.
const NAMES_SHOWN: usize = 5;

/// What follows the `@`, or the `#` of a bookmark.
pub fn name(name: &str) -> Result<(), Problem> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_fine) {
        return Ok(());
    }
    let detail = format!("`{}` cannot be the name of a snapshot or bookmark", shown(name));
    let remedy = "Use 1 to 100 letters, digits and `._-:`, without the volume and the `@` or `#` before it.";
    Err(invalid("name", detail, remedy))
}

/// That a volume's bookmarks go with it.
pub fn bookmarks_gone(count: usize) -> String {
    match count {
        1 => "Its bookmark goes with it.".into(),
        count => format!("Its {count} bookmarks go with it."),
    }
}

/// That a volume goes back behind bookmarks.
pub fn bookmarks_behind(count: usize) -> String {
    match count {
        1 => {
            "One later bookmark can no longer be the base of an incremental send of this volume's snapshots."
                .into()
        }
        count => format!(
            "{count} later bookmarks can no longer be the base of an incremental send of this volume's snapshots."
        ),
    }
}

/// How long a snapshot is retained.
pub fn retain(seconds: Option<u64>) -> Result<Option<u32>, Problem> {
    match seconds {
        Some(seconds) if !RETAIN_SECONDS.contains(&seconds) => {
            let detail = format!("a snapshot cannot be retained for {}", show_duration(seconds));
            Err(invalid("retain_seconds", detail, "Choose from one second to 36500 days."))
        }
        seconds => Ok(seconds.map(|seconds| seconds as u32)),
    }
}

/// Whether a retention is not made shorter.
pub fn lengthen(snapshot: &SnapshotInfo, seconds: Option<u32>, now: WallTime) -> Result<(), Problem> {
    let (Some(until), Some(seconds)) = (snapshot.retained_until, seconds) else { return Ok(()) };
    if now.0 + u64::from(seconds) * 1000 >= until.0 {
        return Ok(());
    }
    let detail = format!("it is retained until {} already, and a retention cannot be shortened", utc(until));
    let problem = Problem::new(Code::Conflict, detail).object(full(snapshot)).field("retain_seconds");
    Err(problem.remedy("Choose a longer time."))
}

/// What needs no look at the volumes.
pub fn create(request: &SnapshotCreate) -> Result<(), Problem> {
    name(&request.name)?;
    retain(request.retain_seconds)?;
    match request.volumes.len() {
        0 => Err(invalid("volumes", "no volumes are given".into(), "Name at least one.")),
        count => few_enough(count),
    }
}

fn few_enough(volumes: usize) -> Result<(), Problem> {
    match volumes {
        0..=GROUP_MAX => Ok(()),
        more => Err(invalid("volumes", format!("{more} volumes are given"), "Give at most 256 at once.")),
    }
}

/// Whether there is one moment for all of these volumes, and none is twice among them. Gives their pool.
pub fn group(volumes: &[VolumeInfo]) -> Result<&str, Problem> {
    let first = volumes.first().ok_or_else(|| invalid("volumes", "no volumes are given".into(), ""))?;
    few_enough(volumes.len())?;
    for (index, volume) in volumes.iter().enumerate() {
        let (pool, name) = (&volume.pool, &volume.name);
        if *pool != first.pool {
            let detail = format!(
                "{}/{} and {pool}/{name} are in two pools, and one snapshot cannot span pools",
                first.pool, first.name
            );
            return Err(invalid("volumes", detail, "Take a snapshot in each pool, one after the other."));
        }
        if volumes[..index].iter().any(|other| other.id == volume.id) {
            return Err(invalid(
                "volumes",
                format!("{pool}/{name} is given twice"),
                "Give each volume once.",
            ));
        }
    }
    Ok(&first.pool)
}

/// Full name.
pub fn full(snapshot: &SnapshotInfo) -> String {
    format!("{}/{}@{}", snapshot.pool, snapshot.volume, snapshot.name)
}

/// The first few of many names.
pub fn few(names: &[String]) -> String {
    let first = names.iter().take(NAMES_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Whether a snapshot may be deleted.
pub fn delete(snapshot: &SnapshotInfo) -> Result<(), Problem> {
    let refused = |detail: String, remedy: String| {
        Err(Problem::new(Code::Conflict, detail).object(full(snapshot)).remedy(remedy))
    };
    if let Some(until) = snapshot.retained_until {
        let detail = format!("it is retained until {} and cannot be deleted before", utc(until));
        return refused(detail, "Wait until then.".into());
    }
    if snapshot.held {
        let remedy = format!("Release it with `forebay snapshot release {}`.", full(snapshot));
        return refused("it is held".into(), remedy);
    }
    if snapshot.template {
        let remedy = format!(
            "Make it an ordinary snapshot with `forebay snapshot set {} --template false`.",
            full(snapshot)
        );
        return refused("it is a template".into(), remedy);
    }
    if !snapshot.clones.is_empty() {
        let clones: Vec<String> =
            snapshot.clones.iter().map(|clone| format!("{}/{clone}", snapshot.pool)).collect();
        let remedy = "Delete and purge the clones first, or make one the owner of the snapshot with `forebay clone promote CLONE`.";
        return refused(format!("it has clones: {}", few(&clones)), remedy.into());
    }
    Ok(())
}

/// Whether a volume with so many snapshots may be deleted, as far as its snapshots may be deleted.
pub fn volume_delete(volume: &str, snapshots: u32, with_snapshots: bool) -> Result<(), Problem> {
    if with_snapshots || snapshots == 0 {
        return Ok(());
    }
    let detail = format!("it has {}, which would be deleted with it", counted(snapshots));
    Err(Problem::new(Code::Unsafe, detail)
        .object(volume)
        .field("with_snapshots")
        .remedy("Delete them first, or all together with --with-snapshots."))
}

pub fn counted(snapshots: u32) -> String {
    if snapshots == 1 { "1 snapshot".into() } else { format!("{snapshots} snapshots") }
}

/// The schedule that is asked for, if one is: how often, and which are kept.
pub fn schedule(
    before: SnapshotSchedule,
    every: Option<u32>,
    keep: Option<SnapshotKeep>,
) -> Result<Option<SnapshotSchedule>, Problem> {
    if (every, keep) == (None, None) {
        return Ok(None);
    }
    let every = every.unwrap_or(before.every_seconds);
    let none = SnapshotKeep::default();
    if every == 0 {
        if keep.is_some_and(|keep| keep != none) {
            let detail = "no snapshots are scheduled, so none are kept".into();
            return Err(invalid("snapshot_keep", detail, "Give the interval, too, with --snapshot-every."));
        }
        return Ok(Some(SnapshotSchedule::default()));
    }
    if !EVERY_SECONDS.contains(&every) {
        let detail = format!("a snapshot every {} is not possible", show_duration(every));
        let remedy = "Choose from 1 minute to 366 days, or 0 for never.";
        return Err(invalid("snapshot_every_seconds", detail, remedy));
    }
    let kept = keep.unwrap_or(convert::snapshot_keep(before.keep));
    if kept == none || kept.last > SnapshotKeep::LAST_MAX {
        let detail = match kept.last {
            0 => "the snapshots to keep are missing".into(),
            last => format!("{last} snapshots cannot be kept"),
        };
        let remedy = "Give 1 to 1000 with --snapshot-keep, or like hourly=24,daily=7,weekly=4,monthly=12.";
        return Err(invalid("snapshot_keep", detail, remedy));
    }
    Ok(Some(SnapshotSchedule { every_seconds: every, keep: convert::snapshot_keep_in(kept) }))
}

pub fn schedule_in_words(schedule: SnapshotSchedule) -> String {
    let SnapshotSchedule { every_seconds, keep } = schedule;
    let every = show_duration(every_seconds);
    match convert::snapshot_keep(keep) {
        _ if every_seconds == 0 => "no more scheduled snapshots".into(),
        keep if keep == SnapshotKeep::last(keep.last) => {
            format!("a snapshot every {every}, the newest {keep} of them kept")
        }
        keep => format!("a snapshot every {every}, kept: {keep}"),
    }
}

/// Refuses to roll back a volume in use: cached data of clients would be mixed with the old contents.
pub fn rollback(volume: &str, users: &[String], force: bool) -> Result<(), Problem> {
    unused(volume, users, force, "data in their caches would be mixed with the old contents")
}

/// Refuses to receive into a volume in use.
pub fn receive(volume: &str, users: &[String], force: bool) -> Result<(), Problem> {
    unused(volume, users, force, "data in their caches would be mixed with the new contents")
}

/// Refuses to delete a volume in use.
pub fn delete_used(volume: &str, users: &[String], force: bool) -> Result<(), Problem> {
    unused(volume, users, force, "they would lose the volume while it is open")
}

/// Refuses to take a pool's volumes from those who use them.
pub fn leave_used(pool: &str, used: &[String], force: bool) -> Result<(), Problem> {
    if used.is_empty() || force {
        return Ok(());
    }
    let detail = format!("clients use it: {}", few(used));
    Err(Problem::new(Code::Unsafe, detail).object(pool).field("force").remedy(
        "Unmount its volumes there and log out or disconnect. With --force, the clients lose the volumes.",
    ))
}

fn unused(volume: &str, users: &[String], force: bool, why: &str) -> Result<(), Problem> {
    if users.is_empty() || force {
        return Ok(());
    }
    let detail = format!("it is in use by {}: {why}", few(users));
    Err(Problem::new(Code::Unsafe, detail)
        .object(volume)
        .field("force")
        .remedy("Unmount it there and log out or disconnect. If no client writes, use --force."))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::field;
    use super::*;
    use crate::access::tests::volume;
    use forebay_base::{Id, WallTime};

    pub fn snapshot() -> SnapshotInfo {
        SnapshotInfo {
            retained_until: None,
            id: Id(9),
            pool: "tank".into(),
            volume: "a".into(),
            name: "s".into(),
            size: 1 << 20,
            block_size: 8192,
            created: WallTime(0),
            mapped: 0,
            unique: Some(0),
            held: false,
            template: false,
            scheduled: false,
            clones: Vec::new(),
        }
    }

    #[test]
    fn names_and_groups() {
        let request = |volumes: usize, name: &str| SnapshotCreate {
            retain_seconds: None,
            volumes: vec!["tank/a".into(); volumes],
            name: name.into(),
        };
        let long = "x".repeat(101);
        for good in ["a", "1", "before-upgrade_2", "2026-11-22T14:45:33", "..", &long[..100]] {
            create(&request(1, good)).unwrap();
        }
        for bad in ["", "a/b", "a@b", "a b", "ä", "a\n", &long] {
            assert_eq!(field(create(&request(1, bad))), "name", "{bad:?}");
        }
        create(&request(256, "s")).unwrap();
        assert_eq!(field(create(&request(0, "s"))), "volumes");
        assert_eq!(field(create(&request(257, "s"))), "volumes");

        let (a, b) = (volume(1, "tank", "a", 0), volume(2, "tank", "b", 0));
        assert_eq!(group(&[a.clone(), b.clone()]).unwrap(), "tank");
        assert_eq!(field(group(&[a.clone(), b, a.clone()])), "volumes");
        let problem = group(&[a, volume(3, "other", "c", 0)]).unwrap_err();
        assert!(problem.detail.contains("tank/a and other/c are in two pools"), "{}", problem.detail);
    }

    #[test]
    fn what_is_held_on_to_stays() {
        delete(&snapshot()).unwrap();
        let held = SnapshotInfo { held: true, ..snapshot() };
        let template = SnapshotInfo { template: true, ..snapshot() };
        let cloned = SnapshotInfo { clones: vec!["web/b".into()], ..snapshot() };
        for (snapshot, detail, remedy) in [
            (&held, "it is held", "snapshot release tank/a@s"),
            (&template, "it is a template", "set tank/a@s --template false"),
            (&cloned, "has clones: tank/web/b", "clone promote"),
        ] {
            let problem = delete(snapshot).unwrap_err();
            assert_eq!((problem.code, problem.object.as_deref()), (Code::Conflict, Some("tank/a@s")));
            assert!(problem.detail.contains(detail), "{}", problem.detail);
            assert!(problem.remedy.as_ref().unwrap().contains(remedy), "{:?}", problem.remedy);
        }
        volume_delete("tank/a", 0, false).unwrap();
        volume_delete("tank/a", 2, true).unwrap();
        let problem = volume_delete("tank/a", 2, false).unwrap_err();
        assert_eq!((problem.code, problem.object.as_deref()), (Code::Unsafe, Some("tank/a")));
        assert!(problem.detail.contains("2 snapshots"), "{}", problem.detail);
    }

    #[test]
    fn schedules() {
        let set = |every: Option<u32>, keep: Option<u32>| (every, keep.map(SnapshotKeep::last));
        let of = |every_seconds, keep| SnapshotSchedule {
            every_seconds,
            keep: convert::snapshot_keep_in(SnapshotKeep::last(keep)),
        };
        let (never, hourly) = (of(0, 0), of(3600, 24));
        for (before, request, after) in [
            (never, set(None, None), None),
            (never, set(Some(0), None), Some(never)),
            (never, set(Some(0), Some(0)), Some(never)),
            (never, set(Some(3600), Some(24)), Some(hourly)),
            (hourly, set(Some(3600), Some(24)), Some(hourly)),
            (hourly, set(Some(60), None), Some(of(60, 24))),
            (hourly, set(None, Some(1000)), Some(of(3600, 1000))),
            (hourly, set(Some(0), None), Some(never)),
            (hourly, set(None, None), None),
        ] {
            assert_eq!(schedule(before, request.0, request.1).unwrap(), after, "{before:?} {request:?}");
        }
        for (before, request, name) in [
            (never, set(Some(3600), None), "snapshot_keep"),
            (never, set(None, Some(24)), "snapshot_keep"),
            (hourly, set(Some(0), Some(24)), "snapshot_keep"),
            (hourly, set(None, Some(0)), "snapshot_keep"),
            (hourly, set(None, Some(1001)), "snapshot_keep"),
            (hourly, set(Some(59), None), "snapshot_every_seconds"),
            (hourly, set(Some(u32::MAX), None), "snapshot_every_seconds"),
        ] {
            assert_eq!(field(schedule(before, request.0, request.1)), name, "{before:?} {request:?}");
        }
        assert_eq!(schedule_in_words(hourly), "a snapshot every 1h, the newest 24 of them kept");
        let keep = SnapshotKeep { hourly: 24, daily: 7, ..SnapshotKeep::default() };
        let tiers = schedule(hourly, None, Some(keep)).unwrap().unwrap();
        assert_eq!(schedule_in_words(tiers), "a snapshot every 1h, kept: hourly=24,daily=7");
        assert_eq!(schedule(tiers, Some(60), None).unwrap().unwrap().keep, tiers.keep);
    }

    #[test]
    fn a_volume_in_use_is_put_back_only_by_force() {
        rollback("tank/a", &[], false).unwrap();
        let users: Vec<String> = (1..8).map(|n| format!("NBD client 10.0.0.{n}:5")).collect();
        rollback("tank/a", &users, true).unwrap();
        delete_used("tank/a", &users, true).unwrap();
        let used = delete_used("tank/a", &users, false).unwrap_err();
        assert!(used.code == Code::Unsafe && used.field.as_deref() == Some("force"), "{used:?}");
        let problem = rollback("tank/a", &users, false).unwrap_err();
        assert_eq!((problem.code, problem.field.as_deref()), (Code::Unsafe, Some("force")));
        assert!(problem.detail.contains("10.0.0.5:5 and 2 more"), "{}", problem.detail);
        assert!(problem.remedy.unwrap().contains("--force"));
    }
}
