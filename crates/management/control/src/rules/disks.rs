//! What may be done with the disks of a pool, and what there is to say of their sizes.

use forebay_api::{Code, Problem, ScrubAction, show_size};
use forebay_pool::{DiskState, DiskStatus, GroupStatus, ScrubState};
use std::collections::BTreeSet;

/// Bytes of the smallest disk that serves in a group.
pub fn smallest_disk(group: &GroupStatus) -> Option<u64> {
    let serves = |disk: &&DiskStatus| matches!(disk.state, DiskState::Online | DiskState::Leaving);
    group.disks.iter().filter(serves).map(|disk| disk.size).min()
}

/// What is to be said of a disk of `size` bytes that may take the place of one that has `least`: nothing if it is as large.
pub fn small_disk(path: &str, size: u64, least: Option<u64>) -> Option<String> {
    let least = least.filter(|least| size < *least)?;
    Some(format!(
        "{path} has {}, less than the {} of the disk that it may replace: the pool then has less room.",
        show_size(size),
        show_size(least)
    ))
}

/// Refuses to pause or end a scrub where there is none that could be.
pub fn scrub_is_there(action: ScrubAction, state: Option<ScrubState>) -> Result<(), Problem> {
    let (is_possible, what) = match action {
        ScrubAction::Start | ScrubAction::Schedule => return Ok(()),
        ScrubAction::Pause => (state == Some(ScrubState::Running), "no scrub is running"),
        ScrubAction::Stop => {
            (matches!(state, Some(ScrubState::Running | ScrubState::Paused)), "no scrub is running or paused")
        }
    };
    match is_possible {
        true => Ok(()),
        false => Err(Problem::new(Code::Conflict, what)
            .remedy("`forebay pool status` shows when the last one ended and when the next begins.")),
    }
}

fn out_of_service(group: &GroupStatus) -> usize {
    let is_out = |disk: &&DiskStatus| {
        matches!(disk.state, DiskState::Failed | DiskState::Missing | DiskState::Offline)
    };
    // One that came back and failed again is listed under each of its numbers.
    group.disks.iter().filter(is_out).map(|disk| disk.joined_as).collect::<BTreeSet<_>>().len()
}

/// How many disks a group can lose when `disk` is taken out of service.
pub fn disk_offline(group: &GroupStatus, disk: &DiskStatus) -> Result<usize, Problem> {
    let why = match disk.state {
        DiskState::Online | DiskState::Leaving => None,
        DiskState::Cache => Some("a cache disk cannot be taken offline: it holds copies only"),
        DiskState::Spare => Some("a spare disk cannot be taken offline: it holds no data yet"),
        DiskState::Failed
        | DiskState::Missing
        | DiskState::Offline
        | DiskState::Rebuilt
        | DiskState::Empty => {
            return Err(Problem::new(Code::Conflict, "the disk is out of service already")
                .remedy("`forebay disk online DISK` brings it back."));
        }
    };
    if let Some(why) = why {
        return Err(Problem::new(Code::Conflict, why)
            .remedy("Remove it from the pool with `forebay disk remove DISK`."));
    }
    let (out, most) = (out_of_service(group), usize::from(group.layout.redundancy()));
    if most == 0 {
        let detail = "its group has no redundancy, so the data of the disk could not be read";
        let remedy = "Move its data to another disk while it works: `forebay disk replace DISK NEW`.";
        return Err(Problem::new(Code::Unsafe, detail).remedy(remedy));
    }
    if out >= most {
        let disks = if out == 1 {
            "1 disk of its group is".to_string()
        } else {
            format!("{out} disks of its group are")
        };
        let detail = format!("{disks} out of service already, and the layout can lose {most}");
        let remedy = "Bring the others back, or wait until they are rebuilt.";
        return Err(Problem::new(Code::Unsafe, detail).remedy(remedy));
    }
    Ok(most - out - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Id;

    #[test]
    fn a_disk_that_is_too_small_is_told_of() {
        assert_eq!(small_disk("/d", 10, Some(10)), None);
        assert_eq!(small_disk("/d", 10, None), None);
        assert!(small_disk("/d", 9, Some(10)).unwrap().starts_with("/d has 9"));
    }

    #[test]
    fn a_scrub_that_is_not_there_is_not_paused_or_ended() {
        use ScrubState::{Done, Paused, Running, Stopped};
        for (action, states) in [
            (ScrubAction::Pause, &[Running][..]),
            (ScrubAction::Stop, &[Running, Paused]),
            (ScrubAction::Start, &[Running, Paused, Done, Stopped]),
        ] {
            for state in [Running, Paused, Done, Stopped] {
                let is_refused = scrub_is_there(action, Some(state)).is_err();
                assert_eq!(is_refused, !states.contains(&state), "{action:?} {state:?}");
            }
        }
        assert!(scrub_is_there(ScrubAction::Stop, None).is_err());
    }

    #[test]
    fn disks_that_are_taken_out() {
        use DiskState::*;
        let disk = |number: u16, state| DiskStatus {
            id: Id::from_random(0, number.into()),
            number,
            joined_as: number,
            path: String::new(),
            size: 0,
            sector_physical: 512,
            sector_reported: None,
            rotational: false,
            enclosure: String::new(),
            state,
            errors: forebay_pool::ErrorCounts::default(),
        };
        // A layout that needs three disks and can lose one.
        let group = |states: &[DiskState]| GroupStatus {
            number: 0,
            leaving: false,
            size: 0,
            used: 0,
            role: forebay_pool::Role::Data,
            layout: forebay_pool::Layout::Parity { data: 2, parity: 1 },
            disks: states.iter().enumerate().map(|(number, state)| disk(number as u16, *state)).collect(),
        };
        // How many can be lost without the first disk.
        for (states, offline) in [
            (&[Online, Online, Online][..], Ok(0)),
            (&[Leaving, Online, Online, Online], Ok(0)),
            (&[Online, Online, Online, Empty], Ok(0)),
            (&[Online, Failed, Online, Online], Err(Code::Unsafe)),
            (&[Online, Missing, Online, Online, Online], Err(Code::Unsafe)),
            (&[Online, Offline, Online, Online], Err(Code::Unsafe)),
            (&[Offline, Online, Online, Online], Err(Code::Conflict)),
            (&[Spare, Online, Online, Online], Err(Code::Conflict)),
        ] {
            let group = group(states);
            let left = disk_offline(&group, &group.disks[0]).map_err(|problem| problem.code);
            assert_eq!(left, offline, "{states:?}");
        }
    }
}
