//! The API's objects as people read them.

mod health;

pub use health::{damaged, import_warnings, is_suspended, scrub_set, scrubbed, small_spares};

use crate::failure::printable;
use crate::levels::rate;
use crate::listing::{Shown, table};
use crate::size::show_time;
use crate::table::{Cell, Tone, colour, render};
use forebay_api::{
    Bookmark, Condition, Disk, DiskState, Event, Host, HostGroup, Mapping, MoveLeft, Plan, Pool, PoolFound,
    PoolSpeed, PoolState, PoolStatus, PoolTrimmed, Rebuild, Receive, Role, Session, Severity, Snapshot,
    SnapshotKeep, Source, Task, TaskState, Token, TrashedVolume, Volume, VolumeReclaimed, VolumeSpec,
};
use forebay_api::{show_duration, show_size};
use health::{schedule_words, scrub_words};
use serde::Serialize;

/// Prints JSON, indented.
pub fn json(value: &impl Serialize) {
    println!("{}", serde_json::to_string_pretty(value).expect("the API's objects are plain data"));
}

/// Prints JSON on one line, for streams.
pub fn json_line(value: &impl Serialize) {
    println!("{}", serde_json::to_string(value).expect("the API's objects are plain data"));
}

/// The word that JSON has, too.
pub fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

fn pool_state(status: &PoolStatus) -> Cell {
    let tone = match status.state {
        PoolState::Online => Tone::Good,
        PoolState::Degraded => Tone::Warning,
        PoolState::Suspended | PoolState::Unavailable | PoolState::Damaged => Tone::Bad,
    };
    let how = if status.read_only { ", read-only" } else { "" };
    Cell::text(format!("{}{how}", word(&status.state))).tone(tone)
}

fn disk_state(state: DiskState) -> Cell {
    let tone = match state {
        DiskState::Online | DiskState::Spare | DiskState::Cache => Tone::Good,
        DiskState::Leaving | DiskState::Offline => Tone::Warning,
        DiskState::Failed | DiskState::Rebuilt | DiskState::Empty | DiskState::Missing => Tone::Bad,
    };
    Cell::text(word(&state)).tone(tone)
}

pub fn pools(pools: &[Pool]) -> Shown {
    let rows = pools.iter().map(|pool| {
        vec![
            Cell::text(&pool.name),
            pool_state(&pool.status),
            Cell::text(pool.spec.layout.map_or_else(|| "-".into(), |layout| word(&layout))),
            Cell::number(show_size(pool.status.size_bytes)),
            Cell::number(show_size(pool.status.used_bytes)),
            Cell::number(show_size(pool.status.available_bytes)),
        ]
    });
    table(
        &["NAME", "STATE", "LAYOUT", "SIZE", "USED", "FREE"],
        rows.collect(),
        "No pools are imported. 'forebay pool import DISK…' finds pools on disks; 'forebay pool create NAME --layout mirror DISK DISK' creates one.",
    )
}

pub fn pool(pool: &Pool) {
    let status = &pool.status;
    print!("{}", render(&[&printable(&pool.name)], &[vec![pool_state(status)]], colour()));
    for condition in pool.conditions.iter().filter(|condition| !condition.message.is_empty()) {
        println!("  {}", printable(&condition.message));
    }
    println!("  id          {}", printable(&pool.id));
    if status.state == PoolState::Unavailable {
        println!("  disks       {}", printable(&pool.spec.disks.join(" ")));
        return;
    }
    println!(
        "  space       {} used of {}, {} reserved, {} free",
        show_size(status.used_bytes),
        show_size(status.size_bytes),
        show_size(status.reserved_bytes),
        show_size(status.available_bytes)
    );
    println!(
        "  provisioned {} for volumes, {}.{:02} times the pool",
        show_size(status.provisioned_bytes),
        status.provisioned_permille / 1000,
        status.provisioned_permille % 1000 / 10
    );
    println!("  shards      {}", status.shards);
    println!("  checkpoint  {}", status.checkpoint);
    println!("  log         {} % full", status.log_fill_permille / 10);
    if let Some(cache) = &status.cache {
        let (held, size) = (show_size(cache.held_bytes), show_size(cache.size_bytes));
        let hits = cache.hits_permille.map_or(String::new(), |hits| {
            format!("; {} of reads in the last minute were cache hits", permille_words(hits))
        });
        println!("  cache       {held} of {size} hold copies{hits}");
    }
    println!("  created     {} UTC", show_time(status.created_unix_ms));
    if let Some(scrub) = &status.scrub {
        println!("  scrub       {}", scrub_words(scrub));
    }
    println!("  scrubs      {}", schedule_words(&status.scrub_schedule));
    match &status.speed {
        Some(speed) => {
            println!(
                "  speed       {}, measured {} UTC",
                speed_words(speed),
                show_time(speed.measured_unix_ms)
            );
            if let Some(possible) = status.guarantee_max_permille.map(permille_words) {
                let guaranteed = permille_words(status.guaranteed_permille);
                let over = status.guarantee_max_permille < Some(status.guaranteed_permille);
                let over = if over { "; some volumes are best effort" } else { "" };
                println!(
                    "  levels      need {guaranteed} of the pool's time; {possible} can be guaranteed{over}"
                );
            }
        }
        None => println!("  speed       not measured; try: forebay pool calibrate {}", printable(&pool.name)),
    }
    let percents: Vec<String> =
        pool.spec.threshold_percents.iter().map(|percent| format!("{percent} %")).collect();
    let full = match status.full_in_days {
        Some(0) => "full within a day".to_string(),
        Some(days) => format!("full in {days} days"),
        None => "not forecast to fill up".into(),
    };
    println!("  filling     {full}; alerts at {}", percents.join(", "));
    if let Some(keep) = pool.spec.trash_keep_seconds {
        let keep = if keep > 0 { format!("kept for {}", show_duration(keep)) } else { "not kept".into() };
        println!("  trash       deleted volumes are {keep}");
    }
    if let Some(rebuild) = &status.rebuild {
        println!("  rebuild     {}", rebuild_words(rebuild));
    }
    for group in &status.groups {
        let role = if group.role == Role::Log { "log" } else { "data" };
        let (used, size) = (show_size(group.used_bytes), show_size(group.size_bytes));
        let room = match group.leaving {
            true => format!("draining, {used} left"),
            false => format!("{used} used of {size}"),
        };
        println!("\ngroup {}, {role}, {}: {room}", group.number, word(&group.layout));
        let row = |disk: &Disk| disk_row(Cell::number(disk.status.number), None, disk);
        let rows: Vec<Vec<Cell>> = group.disks.iter().map(row).collect();
        let text = render(&disk_titles(None), &rows, colour());
        text.lines().for_each(|line| println!("  {line}"));
    }
}

/// The result of a search for zeros, in a sentence.
pub fn reclaimed(task: &Task) -> String {
    let result = task.result.clone().and_then(|value| serde_json::from_value::<VolumeReclaimed>(value).ok());
    let bytes = result.map_or(0, |result| result.reclaimed_bytes);
    format!("{} of zeros in {} were freed.", show_size(bytes), printable(&task.object))
}

pub fn permille_words(permille: u32) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}

fn speed_words(speed: &PoolSpeed) -> String {
    let [read, write] = [speed.read_bytes_per_second, speed.write_bytes_per_second].map(show_size);
    let (reads, writes) = (speed.read_iops, speed.write_iops);
    format!("{reads} read and {writes} write IOPS of 8 KiB, {read}/s read and {write}/s write in 1 MiB")
}

/// The result of a measurement, in a sentence.
pub fn calibrated(task: &Task) -> String {
    let result = task.result.clone().and_then(|result| serde_json::from_value(result).ok());
    let words = result.map_or("measured".into(), |speed: PoolSpeed| speed_words(&speed));
    format!("Pool {}: {words}.", printable(&task.object))
}

/// The result of a trim, in a sentence.
pub fn trimmed(task: &Task) -> String {
    let result = task.result.clone().and_then(|result| serde_json::from_value(result).ok());
    let Some(PoolTrimmed { discarded_bytes, disks_without }) = result else {
        return format!("Pool {} is trimmed.", task.object);
    };
    let told = format!(
        "{} of free space was reported to the disks of pool {}.",
        show_size(discarded_bytes),
        task.object
    );
    match disks_without.is_empty() {
        true => told,
        false => format!("{told} These disks do not support it: {}.", disks_without.join(", ")),
    }
}

fn rebuild_words(rebuild: &Rebuild) -> String {
    let done = show_size(rebuild.done_bytes);
    let how = match rebuild.left_bytes {
        0 => format!("data is spreading over the disks, {done} moved"),
        left => format!("{} left, {done} written", show_size(left)),
    };
    format!("{how} since {} UTC", show_time(rebuild.since_unix_ms))
}

fn disk_titles(role: Option<&'static str>) -> Vec<&'static str> {
    let titles = ["STATE", "ENCLOSURE", "SIZE", "SECTOR", "READ", "WRITE", "CHECKSUM", "PATH"];
    ["DISK"].into_iter().chain(role).chain(titles).collect()
}

fn disk_row(name: Cell, role: Option<Cell>, disk: &Disk) -> Vec<Cell> {
    let status = &disk.status;
    let checksum = errors(
        status.errors_checksum,
        &[(status.repaired, "repaired"), (status.errors_checksum_recent, "recent")],
    );
    let read = errors(status.errors_read, &[(status.errors_read_recent, "recent")]);
    let sector = show_size(u64::from(disk.status.sector_physical_bytes));
    let reported =
        disk.status.sector_reported_bytes.filter(|&said| said != disk.status.sector_physical_bytes);
    let sector = match reported {
        None => sector,
        Some(said) => format!("{sector} (reports {})", show_size(u64::from(said))),
    };
    let cells = [
        disk_state(disk.status.state),
        Cell::text(disk.spec.enclosure.as_deref().unwrap_or("-")),
        Cell::number(show_size(disk.status.size_bytes)),
        Cell::number(sector),
        Cell::number(read),
        Cell::number(disk.status.errors_write),
        Cell::number(checksum),
        Cell::text(match (&disk.name, &status.last_path) {
            (path, _) if !path.is_empty() => path.clone(),
            (_, Some(last)) => format!("- (last seen at {last})"),
            _ => "-".into(),
        }),
    ];
    [name].into_iter().chain(role).chain(cells).collect()
}

/// A total, with what else there is to say of it.
fn errors(total: u64, more: &[(u64, &str)]) -> String {
    let more: Vec<String> =
        more.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if more.is_empty() { total.to_string() } else { format!("{total} ({})", more.join(", ")) }
}

/// Each by the name under which the other commands know it.
pub fn disks(disks: &[Disk]) -> Shown {
    let rows = disks.iter().map(|disk| {
        let name = format!("{}/{}", disk.spec.pool, disk.status.number);
        disk_row(Cell::text(name), Some(Cell::text(word(&disk.spec.role))), disk)
    });
    table(&disk_titles(Some("ROLE")), rows.collect(), "No pool is imported, so no disk is in use.")
}

pub fn found(pools: &[PoolFound]) -> Shown {
    let rows = pools.iter().map(|pool| {
        let complete = match pool.disks_missing {
            0 => Cell::text("complete").tone(Tone::Good),
            missing => Cell::text(format!("{missing} disks missing")).tone(Tone::Warning),
        };
        let host = pool.host.as_deref().unwrap_or("exported");
        let found = pool.disks_found.join(" ");
        vec![Cell::text(&pool.name), Cell::text(&pool.id), Cell::text(host), complete, Cell::text(found)]
    });
    table(&["NAME", "ID", "HOST", "DISKS", "FOUND"], rows.collect(), "No pool was found on these disks.")
}

pub fn volumes(volumes: &[Volume]) -> Shown {
    let rows = volumes.iter().map(|volume| {
        vec![
            Cell::text(&volume.name),
            match volume.status.damaged_bytes {
                0 => Cell::text("online").tone(Tone::Good),
                lost => Cell::text(format!("{} lost", show_size(lost))).tone(Tone::Bad),
            },
            Cell::number(show_size(volume.spec.size_bytes)),
            Cell::text(word(&volume.spec.format)),
            Cell::number(show_size(volume.status.mapped_bytes)),
            Cell::number(show_size(volume.status.reserved_bytes)),
            Cell::number(show_size(volume.status.used_bytes)),
            Cell::number(ratio(volume)),
            Cell::number(show_size(u64::from(volume.spec.block_size_bytes))),
            Cell::text(word(&volume.spec.sync)),
            Cell::text(&volume.spec.compression),
            Cell::number(snapshots_in_words(volume)),
            Cell::text(snapshot_schedule(&volume.spec)),
            Cell::text(&volume.spec.level),
            Cell::text(volume.status.origin.as_deref().unwrap_or("-")),
        ]
    });
    table(
        &[
            "NAME",
            "STATE",
            "SIZE",
            "FORMAT",
            "WRITTEN",
            "RESERVED",
            "USED",
            "RATIO",
            "BLOCK",
            "SYNC",
            "COMPRESSION",
            "SNAPSHOTS",
            "SCHEDULE",
            "LEVEL",
            "ORIGIN",
        ],
        rows.collect(),
        "No volumes. Create one with: forebay volume create POOL/NAME --size 100G",
    )
}

/// How many times smaller what is stored is.
fn ratio(volume: &Volume) -> String {
    match volume.status.stored_bytes {
        0 => "-".into(),
        stored => format!("{:.2}", volume.status.mapped_bytes as f64 / stored as f64),
    }
}

pub fn trash(volumes: &[TrashedVolume]) -> Shown {
    let rows = volumes.iter().map(|volume| {
        vec![
            Cell::text(&volume.name),
            Cell::number(show_size(volume.size_bytes)),
            Cell::number(show_size(volume.mapped_bytes)),
            Cell::number(volume.snapshots),
            Cell::text(show_time(volume.deleted_unix_ms)),
            Cell::text(show_time(volume.purge_unix_ms)),
            Cell::text(&volume.id),
        ]
    });
    table(
        &["NAME", "SIZE", "USED", "SNAPSHOTS", "DELETED (UTC)", "PURGED (UTC)", "ID"],
        rows.collect(),
        "The trash is empty.",
    )
}

pub fn bookmarks(marks: &[Bookmark]) -> Shown {
    let rows = marks.iter().map(|mark| {
        vec![
            Cell::text(&mark.name),
            Cell::number(show_size(mark.size_bytes)),
            Cell::text(show_time(mark.created_unix_ms)),
            Cell::text(if mark.usable { "yes" } else { "no" }),
            Cell::text(&mark.id),
        ]
    });
    table(&["NAME", "SIZE", "SNAPSHOT TAKEN (UTC)", "USABLE", "ID"], rows.collect(), "No bookmarks.")
}

pub fn moves(left: &[MoveLeft]) -> Shown {
    let rows = left.iter().map(|left| {
        vec![
            Cell::text(&left.name),
            Cell::number(show_size(left.size_bytes)),
            Cell::text(word(&left.side)),
            Cell::text(if left.complete { "yes" } else { "no" }),
            Cell::text(&left.other_pool),
            Cell::text(&left.id),
        ]
    });
    table(
        &["NAME", "SIZE", "SIDE", "COMPLETE", "WAITS FOR POOL", "ID"],
        rows.collect(),
        "No interrupted moves.",
    )
}

pub fn receives(receives: &[Receive]) -> Shown {
    let rows = receives.iter().map(|receive| {
        vec![
            Cell::text(&receive.name),
            Cell::number(show_size(receive.size_bytes)),
            Cell::number(show_size(receive.received_bytes)),
            Cell::number(show_size(receive.mapped_bytes)),
            Cell::text(if receive.active { "yes" } else { "no" }),
            Cell::text(show_time(receive.created_unix_ms)),
            Cell::text(&receive.resume_token),
        ]
    });
    table(
        &["NAME", "SIZE", "RECEIVED", "USED", "ACTIVE", "SINCE (UTC)", "RESUME TOKEN"],
        rows.collect(),
        "No interrupted or running receives.",
    )
}

/// What of a volume is lost, if something is.
fn loss(volume: &Volume) -> Option<&Condition> {
    volume.conditions.iter().find(|condition| condition.reason == "DataLost" && !condition.status)
}

pub fn volume(volume: &Volume) {
    println!("{}", printable(&volume.name));
    if let Some(loss) = loss(volume) {
        println!("  {}", printable(&loss.message));
    }
    println!("  id          {}", printable(&volume.id));
    if let Some(project) = &volume.status.project {
        println!("  project     {}", printable(project));
    }
    println!("  size        {}", show_size(volume.spec.size_bytes));
    println!("  format      {}", word(&volume.spec.format));
    println!("  written     {}", show_size(volume.status.mapped_bytes));
    println!("  reserved    {}", show_size(volume.status.reserved_bytes));
    println!("  used        {}", show_size(volume.status.used_bytes));
    println!("  stored as   {} ({})", show_size(volume.status.stored_bytes), ratio(volume));
    let (spec, sources) = (&volume.spec, &volume.spec.sources);
    println!("  compression {} ({})", printable(&spec.compression), word(&sources.compression));
    let (compress, expand) = (volume.status.compress_cpu_us, volume.status.expand_cpu_us);
    if compress + expand > 0 {
        let seconds = |micros: u64| micros as f64 / 1e6;
        println!(
            "  CPU time    {:.1} s to compress, {:.1} s to decompress",
            seconds(compress),
            seconds(expand)
        );
    }
    println!("  block size  {}", show_size(u64::from(volume.spec.block_size_bytes)));
    println!("  sync        {} ({})", word(&spec.sync), word(&sources.sync));
    println!("  snapshots   {}", snapshots_in_words(volume));
    println!("  schedule    {} ({})", snapshot_schedule(spec), word(&sources.snapshot_schedule));
    println!("  level       {}", level_in_words(&spec.level, sources.level, &volume.conditions));
    println!("  hosts       {} ({})", hosts_in_words(&spec.hosts), word(&sources.hosts));
    if let Some(origin) = &volume.status.origin {
        println!("  origin      {}", printable(origin));
    }
    println!("  shard       {}", volume.status.shard);
    println!("  NBD export  {}", printable(&volume.status.nbd_export));
    println!("  iSCSI       {}", printable(&volume.status.iscsi_target));
    println!("  created     {} UTC", show_time(volume.status.created_unix_ms));
}

/// How many, and what only they have, where that is known.
fn snapshots_in_words(volume: &Volume) -> String {
    match (volume.status.snapshots, volume.status.snapshot_bytes) {
        (1, Some(bytes)) => format!("1 holding {}", show_size(bytes)),
        (count @ 2.., Some(bytes)) => format!("{count} holding {}", show_size(bytes)),
        (count, _) => count.to_string(),
    }
}

pub fn level_in_words(level: &str, source: Source, conditions: &[Condition]) -> String {
    let amiss = conditions.iter().find(|condition| condition.kind.starts_with("Level") && !condition.status);
    let amiss = match amiss.map(|condition| condition.reason.as_str()) {
        None => "",
        Some("BestEffort") => "; best effort: the pool is too slow to guarantee its minimum",
        Some("CannotBeMet") => "; cannot be met: disks are out of service or slower than measured",
        Some("Unmeasured") => "; not guaranteed: the pool has not been measured",
        Some(_) => "; unknown on this appliance, and treated as none",
    };
    format!("{} ({}){amiss}", printable(level), word(&source))
}

pub fn hosts_in_words(hosts: &[String]) -> String {
    if hosts.is_empty() { "-".into() } else { printable(&hosts.join(" ")) }
}

fn snapshot_schedule(spec: &VolumeSpec) -> String {
    schedule_in_words(spec.snapshot_every_seconds, spec.snapshot_keep)
}

pub fn schedule_in_words(every_seconds: u32, keep: SnapshotKeep) -> String {
    match every_seconds {
        0 => "-".into(),
        seconds if keep == SnapshotKeep::last(keep.last) => {
            format!("every {}, {keep} kept", show_duration(seconds))
        }
        seconds => format!("every {}, kept {keep}", show_duration(seconds)),
    }
}

/// What sets a snapshot apart, in words.
fn snapshot_flags(snapshot: &Snapshot) -> String {
    let (spec, status) = (&snapshot.spec, &snapshot.status);
    let flags = [(spec.held, "held"), (spec.template, "template"), (status.scheduled, "scheduled")];
    let retained = status.retained_until_unix_ms.map(|until| format!("retained until {}", show_time(until)));
    let flags = flags.into_iter().filter(|(is, _)| *is).map(|(_, name)| name.to_string());
    let flags: Vec<String> = retained.into_iter().chain(flags).collect();
    if flags.is_empty() { "-".into() } else { flags.join(" ") }
}

fn clones(snapshot: &Snapshot) -> String {
    let clones = &snapshot.status.clones;
    if clones.is_empty() { "-".into() } else { clones.join(" ") }
}

pub fn snapshots(snapshots: &[Snapshot]) -> Shown {
    let rows = snapshots.iter().map(|snapshot| {
        vec![
            Cell::text(&snapshot.name),
            Cell::text(show_time(snapshot.status.created_unix_ms)),
            Cell::number(show_size(snapshot.status.size_bytes)),
            Cell::number(show_size(snapshot.status.mapped_bytes)),
            Cell::number(unique(snapshot)),
            Cell::text(snapshot_flags(snapshot)),
            Cell::text(clones(snapshot)),
        ]
    });
    table(
        &["NAME", "CREATED (UTC)", "SIZE", "USED", "UNIQUE", "FLAGS", "CLONES"],
        rows.collect(),
        "No snapshots. Take one with: forebay snapshot create POOL/VOLUME@NAME",
    )
}

fn unique(snapshot: &Snapshot) -> String {
    snapshot.status.unique_bytes.map_or("unknown".into(), show_size)
}

pub fn snapshot(snapshot: &Snapshot) {
    println!("{}", printable(&snapshot.name));
    println!("  id          {}", printable(&snapshot.id));
    println!("  size        {}", show_size(snapshot.status.size_bytes));
    println!("  used        {}", show_size(snapshot.status.mapped_bytes));
    println!("  unique      {}", unique(snapshot));
    println!("  block size  {}", show_size(u64::from(snapshot.status.block_size_bytes)));
    println!("  flags       {}", snapshot_flags(snapshot));
    if let Some(until) = snapshot.status.retained_until_unix_ms {
        println!("  retained    until {} UTC, by the pool's clock", show_time(until));
    }
    println!("  clones      {}", printable(&clones(snapshot)));
    println!("  created     {} UTC", show_time(snapshot.status.created_unix_ms));
}

pub fn hosts(hosts: &[Host]) -> Shown {
    let rows = hosts.iter().map(|host| {
        let proof = match (&host.spec.chap_user, &host.spec.mutual_user) {
            (None, _) => "name",
            (Some(_), None) => "CHAP",
            (Some(_), Some(_)) => "mutual CHAP",
        };
        vec![
            Cell::text(&host.name),
            Cell::text(proof),
            Cell::number(host.status.volumes),
            Cell::number(host.status.sessions),
            Cell::text(host.spec.initiators.join(" ")),
        ]
    });
    table(
        &["NAME", "LOGIN BY", "VOLUMES", "SESSIONS", "INITIATORS"],
        rows.collect(),
        "No hosts, so no initiator can log in over iSCSI. Create one with: forebay host create NAME --iqn IQN",
    )
}

pub fn host(host: &Host) {
    println!("{}", printable(&host.name));
    println!("  id          {}", printable(&host.id));
    for initiator in &host.spec.initiators {
        println!("  initiator   {}", printable(initiator));
    }
    if let Some(user) = &host.spec.chap_user {
        println!("  CHAP        {}", printable(user));
    }
    if let Some(user) = &host.spec.mutual_user {
        println!("  mutual      {}", printable(user));
    }
    if !host.status.groups.is_empty() {
        println!("  groups      {}", printable(&host.status.groups.join(" ")));
    }
    println!("  limit       {}", rate(host.spec.max_iops, host.spec.max_bytes_per_second));
    println!("  sessions    {}", host.status.sessions);
    println!("  created     {} UTC", show_time(host.status.created_unix_ms));
}

pub fn host_groups(groups: &[HostGroup]) -> Shown {
    let rows = groups.iter().map(|group| {
        vec![
            Cell::text(&group.name),
            Cell::number(group.status.volumes),
            Cell::text(group.spec.hosts.join(" ")),
        ]
    });
    table(
        &["NAME", "VOLUMES", "HOSTS"],
        rows.collect(),
        "No host groups. Create one with: forebay host group create NAME --host HOST HOST",
    )
}

pub fn host_group(group: &HostGroup) {
    println!("{}", printable(&group.name));
    println!("  id          {}", printable(&group.id));
    println!("  hosts       {}", printable(&group.spec.hosts.join(" ")));
    println!("  created     {} UTC", show_time(group.status.created_unix_ms));
}

pub fn mappings(mappings: &[Mapping]) -> Shown {
    let rows = mappings.iter().map(|mapping| {
        let is_here = mapping.conditions.iter().all(|condition| condition.status);
        let state =
            if is_here { Cell::text("") } else { Cell::text("pool not imported").tone(Tone::Warning) };
        vec![
            Cell::text(&mapping.spec.volume),
            Cell::text(&mapping.spec.host),
            Cell::number(mapping.spec.lun),
            Cell::number(show_size(u64::from(mapping.spec.logical_block_bytes))),
            Cell::text(&mapping.status.target),
            state,
        ]
    });
    table(&["VOLUME", "HOST", "LUN", "BLOCK", "TARGET", ""], rows.collect(), "No mappings.")
}

pub fn sessions(sessions: &[Session]) -> Shown {
    let rows = sessions.iter().map(|session| {
        vec![
            Cell::text(&session.id),
            Cell::text(session.host.as_ref().unwrap_or(&session.initiator)),
            Cell::text(session.target.as_deref().unwrap_or("discovery")),
            Cell::text(&session.address),
            Cell::text(&session.portal),
            Cell::text(show_time(session.since_unix_ms)),
            Cell::number(session.commands),
            Cell::number(show_size(session.read_bytes)),
            Cell::number(show_size(session.written_bytes)),
        ]
    });
    let titles = ["ID", "HOST", "TARGET", "FROM", "PORTAL", "SINCE (UTC)", "COMMANDS", "READ", "WRITTEN"];
    table(&titles, rows.collect(), "No iSCSI sessions.")
}

pub fn tasks(tasks: &[Task]) -> Shown {
    let rows = tasks.iter().map(|task| {
        let tone = match task.state {
            TaskState::Succeeded => Tone::Good,
            TaskState::Failed => Tone::Bad,
            TaskState::Queued | TaskState::Running | TaskState::Cancelled => Tone::Plain,
        };
        let why = task.error.as_ref().map(|problem| problem.detail.as_str()).unwrap_or_default();
        vec![
            Cell::text(&task.id),
            Cell::text(&task.name),
            Cell::text(&task.object),
            Cell::text(word(&task.state)).tone(tone),
            Cell::text(show_time(task.started_unix_ms)),
            Cell::text(why),
        ]
    });
    table(&["ID", "TASK", "OBJECT", "STATE", "STARTED (UTC)", ""], rows.collect(), "No tasks.")
}

pub fn event(event: &Event) {
    let tone = match event.severity {
        Severity::Info => Tone::Plain,
        Severity::Warning => Tone::Warning,
        Severity::Error => Tone::Bad,
    };
    // No titles and no columns that depend on other lines: `--follow` prints one at a time.
    let cells = vec![
        Cell::text(show_time(event.at_unix_ms)),
        Cell::text(format!("{:<7}", word(&event.severity))).tone(tone),
        Cell::text(format!("{:<18}", event.code)),
        Cell::text(format!("{}: {}", event.object, event.message)),
    ];
    let text = render(&["", "", "", ""], &[cells], colour());
    print!("{}", text.strip_prefix('\n').unwrap_or(&text));
}

pub fn tokens(tokens: &[Token]) -> Shown {
    let rows = tokens.iter().map(|token| {
        vec![
            Cell::text(&token.name),
            Cell::text(word(&token.role)),
            Cell::text(show_time(token.expires_unix_ms)),
            Cell::text(&token.id),
        ]
    });
    table(
        &["NAME", "ROLE", "EXPIRES (UTC)", "ID"],
        rows.collect(),
        "No tokens. Create one with: forebay token create NAME",
    )
}

pub fn plan(plan: &Plan) {
    println!("{} {} would do this:", printable(&plan.action), printable(&plan.object));
    if plan.changes.is_empty() {
        println!("  nothing: this is the case already");
    }
    plan.changes.iter().for_each(|change| println!("  {}", printable(change)));
}
