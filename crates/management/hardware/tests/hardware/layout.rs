//! Would an experienced administrator suggest the same?

use crate::machine::TB;
use forebay_hardware::{Candidate, Layout, Suggestion, Suggestions, suggest};

const GB: u64 = TB / 1000;

fn disks(count: usize, size: u64, rotational: bool, prefix: &str) -> Vec<Candidate> {
    let disk =
        |nth| Candidate { device: format!("/dev/{prefix}{nth:03}"), size, rotational, enclosure: None };
    (0..count).map(disk).collect()
}

fn names(suggestions: &Suggestions) -> Vec<String> {
    suggestions.ranked.iter().map(|one| one.layout.to_string()).collect()
}

#[test]
fn layouts_follow_number_size_and_kind_of_disks() {
    let cases: &[(usize, u64, bool, &[&str])] = &[
        (0, TB, false, &[]),
        (1, TB, false, &["single"]),
        (2, TB, false, &["mirror"]),
        (2, 12 * TB, true, &["mirror"]),
        (3, TB, false, &["mirror", "2+1"]),
        (4, TB, false, &["mirror", "2+1"]),
        (4, 12 * TB, true, &["mirror3", "2+2"]),
        (6, 2 * TB, false, &["4+1", "mirror", "2+2"]),
        (8, 12 * TB, true, &["4+2", "mirror3", "4+3"]),
        (12, 12 * TB, true, &["8+2", "mirror3", "8+3"]),
        (11, 4 * TB, false, &["8+1", "mirror", "8+2"]),
        (24, 4 * TB, false, &["8+2", "mirror3", "16+2", "8+3"]),
        (60, 18 * TB, true, &["8+2", "mirror3", "16+2", "8+3"]),
    ];
    for (count, size, rotational, expected) in cases {
        let suggestions = suggest(&disks(*count, *size, *rotational, "sd"));
        assert_eq!(names(&suggestions), *expected, "{count} of {size}");
        assert!(suggestions.notes.is_empty());
        for one in &suggestions.ranked {
            assert_eq!(one.disks.len(), *count);
            assert!(one.layout.width() <= *count && one.why.ends_with('.') && !one.survives_enclosure);
            assert!(one.usable < one.raw && one.survives_disks == one.layout.redundancy());
        }
    }
}

#[test]
fn capacity_is_what_the_narrowest_place_allows() {
    let usable = |count, layout: &str| {
        let suggestions = suggest(&disks(count, 4 * TB, false, "sd"));
        let one = suggestions
            .ranked
            .into_iter()
            .find(|one| one.layout.to_string() == layout)
            .expect("it is suggested");
        one.usable
    };
    // 31 of 32 parts, after redundancy.
    assert_eq!(usable(2, "mirror"), 4 * TB / 32 * 31);
    assert_eq!(usable(3, "2+1"), 8 * TB / 32 * 31);
    assert_eq!(usable(11, "8+1") / TB, 11 * 4 * 8 / 9 * 31 / 32);
    // Two disks that differ a little: no more than the smaller one.
    let mut pair = disks(2, 4 * TB, false, "sd");
    pair[0].size = 4 * TB - TB / 4;
    assert_eq!(suggest(&pair).ranked[0].usable, (4 * TB - TB / 4) / 32 * 31);
}

#[test]
fn size_classes_and_kinds_are_not_mixed() {
    let mut all = disks(4, 4 * TB, true, "big");
    all.extend(disks(2, TB, true, "small"));
    all.extend(disks(1, 3_900 * GB, true, "near"));
    all.extend(disks(1, 1 << 20, true, "tiny"));
    let suggestions = suggest(&all);
    for one in &suggestions.ranked {
        assert_eq!(one.disks.len(), 5, "the four and the one that is nearly as large");
        assert!(one.disks.iter().all(|disk| disk.contains("big") || disk.contains("near")));
    }
    assert_eq!(
        suggestions.notes,
        ["1 disk is too small.", "2 disks are left over: turning disks of 1.0 TB are another class."]
    );
    // The same, in whatever order.
    all.reverse();
    assert_eq!(suggest(&all), suggestions);
    // Given twice is given once.
    let twice = [disks(3, TB, false, "sd"), disks(3, TB, false, "sd")].concat();
    assert_eq!(suggest(&twice), suggest(&disks(3, TB, false, "sd")));
}

#[test]
fn flash_beside_turning_disks_becomes_log_and_cache() {
    let roles = |flash: usize, size: u64| {
        let all = [disks(12, 12 * TB, true, "sd"), disks(flash, size, false, "nvme")].concat();
        let first: Suggestion = suggest(&all).ranked.into_iter().next().expect("there is one");
        assert_eq!(first.layout, Layout::Parity { data: 8, parity: 2 });
        (first.log_disks.len(), first.cache_disks.len())
    };
    assert_eq!(roles(1, TB), (0, 1), "one log disk would be one loss");
    assert_eq!(roles(2, TB), (0, 2), "a log of two does not survive what 8+2 does");
    assert_eq!(roles(3, TB), (3, 0));
    assert_eq!(roles(5, TB), (3, 2));
    assert_eq!(roles(3, 2 * GB), (0, 0), "too small");
    // Beside flash, flash is no help.
    let all = [disks(6, 2 * TB, false, "ssd"), disks(2, 400 * GB, false, "nvme")].concat();
    let suggestions = suggest(&all);
    assert!(suggestions.ranked.iter().all(|one| one.log_disks.is_empty() && one.cache_disks.is_empty()));
    assert_eq!(suggestions.notes, ["2 disks are left over: flash disks of 400 GB are another class."]);
}

#[test]
fn enclosures_are_survived_where_enough_of_them_hold_the_disks() {
    let mut shelves = disks(24, 12 * TB, true, "sd");
    for (nth, disk) in shelves.iter_mut().enumerate() {
        disk.enclosure = Some(format!("shelf-{}", nth % 4));
    }
    let suggestions = suggest(&shelves);
    let survives: Vec<(String, bool)> =
        suggestions.ranked.iter().map(|one| (one.layout.to_string(), one.survives_enclosure)).collect();
    // Four shelves, two parts in each: 8 of 10 parts; three copies fit; 8+3 has three in each, which is enough for 11.
    assert_eq!(
        survives,
        [("8+2".into(), false), ("mirror3".into(), true), ("16+2".into(), false), ("8+3".into(), true)]
    );
    shelves[0].enclosure = None;
    assert!(suggest(&shelves).ranked.iter().all(|one| !one.survives_enclosure), "one is somewhere");
}

#[test]
fn rebuilding_at_once_needs_a_disk_more() {
    let at = |count: usize| suggest(&disks(count, 12 * TB, true, "sd")).ranked;
    assert!(!at(4).iter().find(|one| one.layout.to_string() == "2+2").expect("it is there").rebuilds_at_once);
    assert!(at(8).iter().find(|one| one.layout.to_string() == "4+2").expect("it is there").rebuilds_at_once);
    assert!(!at(2)[0].rebuilds_at_once);
}

#[test]
fn absurd_disks_do_no_harm() {
    let mut all = disks(300, u64::MAX, true, "sd");
    all.extend(disks(3000, u64::MAX, false, "nvme"));
    all.extend(disks(10, 0, false, "zero"));
    let suggestions = suggest(&all);
    for one in &suggestions.ranked {
        assert!(one.disks.len() + one.log_disks.len() + one.cache_disks.len() <= 1024);
    }
    assert!(suggestions.ranked.len() <= 4 && !suggestions.notes.is_empty());
}
