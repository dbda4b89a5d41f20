//! How pools are: what scrubs found, what is lost, and what else there is to say of a pool that was imported.

use super::{Cell, printable, word};
use crate::listing::{Shown, table};
use crate::size::show_time;
use forebay_api::{
    DamagedRange, Disk, DiskState, Pool, PoolState, Scrub, ScrubAction, ScrubSchedule, ScrubState,
    show_duration, show_size,
};

fn found_words(scrub: &Scrub) -> String {
    format!("{} repaired, {} lost", scrub.repaired, scrub.lost)
}

/// Whether a pool has stopped writing, also one that is called damaged.
pub fn is_suspended(pool: &Pool) -> bool {
    pool.conditions.iter().any(|condition| condition.reason == "Suspended")
}

/// The result of a scrub, in a sentence.
pub fn scrubbed(pool: &Pool) -> String {
    let name = printable(&pool.name);
    let Some(scrub) = &pool.status.scrub else { return format!("Pool {name} has not been scrubbed.") };
    let found = found_words(scrub);
    match scrub.state {
        _ if is_suspended(pool) => format!(
            "The scrub of pool {name} has stopped because the pool is suspended: {found} so far. To see what to do: \
             forebay alert list"
        ),
        ScrubState::Done if pool.status.damage.open_places > 0 => format!(
            "The scrub of pool {name} is done: {found}. Data is lost. To list it: forebay pool status {name} --errors"
        ),
        ScrubState::Done if scrub.lost > 0 => format!(
            "The scrub of pool {name} is done: {found}; all loss was accepted before. To list it: forebay pool status {name} --errors"
        ),
        ScrubState::Done if pool.status.state == PoolState::Degraded => format!(
            "The scrub of pool {name} is done: {found}. A disk is failed, missing or offline: forebay alert list"
        ),
        ScrubState::Done => format!("The scrub of pool {name} is done: {found}."),
        ScrubState::Running => format!("The scrub of pool {name} is still running: {found} so far."),
        ScrubState::Paused => format!(
            "The scrub of pool {name} was paused: {found} so far. Resume it with: forebay pool scrub {name}"
        ),
        ScrubState::Stopped => {
            format!("The scrub of pool {name} was stopped before it was complete: {found} so far.")
        }
    }
}

/// What was asked of a pool's scrubs, other than to begin one, in a sentence.
pub fn scrub_set(pool: &str, action: ScrubAction, every_seconds: Option<u32>) -> String {
    let pool = printable(pool);
    match (action, every_seconds) {
        (ScrubAction::Start, _) => format!("The scrub of pool {pool} has started."),
        (ScrubAction::Pause, _) => {
            format!("The scrub of pool {pool} is paused. Resume it with: forebay pool scrub {pool}")
        }
        (ScrubAction::Stop, _) => format!("The scrub of pool {pool} is stopped."),
        (ScrubAction::Schedule, None | Some(0)) => {
            format!("Automatic scrubs of pool {pool} are off. Start one with: forebay pool scrub {pool}")
        }
        (ScrubAction::Schedule, Some(every)) => {
            format!("Pool {pool} is scrubbed automatically every {}.", show_duration(every))
        }
    }
}

/// Spare disks that are smaller than those whose place they may take: a sentence for each.
pub fn small_spares(pool: &Pool) -> Vec<String> {
    let mut said = Vec::new();
    for group in &pool.status.groups {
        let serves = |disk: &&Disk| matches!(disk.status.state, DiskState::Online | DiskState::Leaving);
        let Some(least) = group.disks.iter().filter(serves).map(|disk| disk.status.size_bytes).min() else {
            continue;
        };
        let is_small = |disk: &&Disk| disk.status.state == DiskState::Spare && disk.status.size_bytes < least;
        said.extend(group.disks.iter().filter(is_small).map(|disk| {
            let size = show_size(disk.status.size_bytes);
            format!(
                "spare disk {} has {size}, less than the {} of the smallest disk of its group: if it replaces a disk, the pool loses capacity",
                disk.name,
                show_size(least)
            )
        }));
    }
    said
}

/// What is to be said of a pool that was imported from `disks`, beside that it was.
pub fn import_warnings(pool: &Pool, disks: &[String]) -> Vec<String> {
    let state = word(&pool.status.state);
    let amiss = pool.conditions.iter().filter(|condition| !condition.status && !condition.message.is_empty());
    let mut warnings: Vec<String> =
        amiss.map(|condition| format!("pool {} is {state}: {}", pool.name, condition.message)).collect();
    let own = pool.status.groups.iter().flat_map(|group| &group.disks);
    let own: Vec<&String> = own.map(|disk| &disk.name).collect();
    let others = disks.iter().filter(|disk| !own.contains(disk));
    warnings.extend(others.map(|disk| {
        format!(
            "{disk} does not serve in pool {}: it is not part of this pool, cannot be read, or is stale; see `forebay event list`",
            pool.name
        )
    }));
    warnings
}

/// Which bytes of which volumes and snapshots are lost, where so many places are.
pub fn damaged(ranges: &[DamagedRange], places: u64) -> Shown {
    let nothing = match places {
        0 => "No data loss is known.",
        // It is counted until a checkpoint has it that nobody points there any more.
        _ => {
            "No volume and no snapshot has known lost bytes, but the pool still counts lost blocks. Either they were just overwritten or deleted, \
             and the count is updated within seconds, or their owner is unknown."
        }
    };
    let row = |range: &DamagedRange| {
        vec![
            Cell::text(&range.name),
            Cell::number(range.offset_bytes.to_string()),
            Cell::number(range.length_bytes.to_string()),
            Cell::text(format!("{} UTC", show_time(range.found_unix_ms))),
            Cell::text(if range.accepted { "yes" } else { "no" }),
        ]
    };
    let titles = ["NAME", "OFFSET", "LENGTH", "FOUND", "ACCEPTED"];
    table(&titles, ranges.iter().map(row).collect(), nothing)
}

pub(super) fn scrub_words(scrub: &Scrub) -> String {
    let (state, done) = (word(&scrub.state), show_size(scrub.done_bytes));
    let (found, begun) = (found_words(scrub), show_time(scrub.since_unix_ms));
    match (scrub.state, scrub.ended_unix_ms) {
        (ScrubState::Running | ScrubState::Paused, _) => {
            // Every copy counts, and what is written meanwhile.
            let all = show_size(scrub.used_bytes);
            format!("{state}, {done} of about {all} read, {found}, started {begun} UTC")
        }
        (_, Some(ended)) => {
            format!("{state} {} UTC, {done} read, {found}, started {begun} UTC", show_time(ended))
        }
        (_, None) => format!("{state}, {done} read, {found}, started {begun} UTC"),
    }
}

pub(super) fn schedule_words(schedule: &ScrubSchedule) -> String {
    let last = schedule.last_unix_ms.map_or("never".into(), |last| format!("{} UTC", show_time(last)));
    let next =
        schedule.next_unix_ms.map_or("none scheduled".into(), |next| format!("{} UTC", show_time(next)));
    format!("last {last}, next {next}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool(state: &str, open_places: u64, lost: u64) -> Pool {
        serde_json::from_value(json!({
            "id": "0", "name": "tank", "conditions": [
                {"type": "Intact", "status": false, "reason": "DataLost", "message": "8 places are lost."},
                {"type": "Ready", "status": true, "reason": if state == "suspended" { "Suspended" } else { "Online" }, "message": ""},
            ],
            "spec": {"disks": [], "log_disks": [], "spare_disks": [], "threshold_percents": []},
            "status": {
                "state": state, "size_bytes": 1000, "used_bytes": 100, "free_bytes": 900, "available_bytes": 900, "shards": 1, "checkpoint": 1,
                "log_fill_permille": 0, "created_unix_ms": 0, "groups": [],
                "damage": {"places": lost, "open_places": open_places, "stored_bytes": 4096},
                "scrub": {
                    "state": if state == "suspended" { "paused" } else { "done" }, "done_bytes": 1, "used_bytes": 1, "repaired": 0,
                    "lost": lost, "since_unix_ms": 0,
                },
            },
        }))
        .unwrap()
    }

    #[test]
    fn what_is_accepted_is_no_news_and_what_cannot_go_on_is_not_advised() {
        assert!(scrubbed(&pool("damaged", 1, 2)).contains("Data is lost"));
        assert!(scrubbed(&pool("online", 0, 2)).contains("accepted before"));
        let suspended = scrubbed(&pool("suspended", 0, 0));
        assert!(suspended.contains("alert list") && !suspended.contains("forebay pool scrub"), "{suspended}");
    }

    #[test]
    fn an_import_says_what_is_amiss_and_which_disks_were_left_alone() {
        let warnings = import_warnings(&pool("damaged", 1, 1), &["/d0".to_string()]);
        assert_eq!(warnings[0], "pool tank is damaged: 8 places are lost.");
        assert!(
            warnings.len() == 2 && warnings[1].starts_with("/d0 does not serve in pool tank"),
            "{warnings:?}"
        );
    }

    #[test]
    fn each_change_of_scrubs_has_its_own_words() {
        let said = |action, every| scrub_set("tank", action, every);
        assert!(said(ScrubAction::Schedule, Some(0)).contains("are off"));
        assert!(said(ScrubAction::Schedule, Some(3600)).contains("every 1h"));
        assert!(said(ScrubAction::Pause, None).contains("forebay pool scrub tank"));
    }
}
