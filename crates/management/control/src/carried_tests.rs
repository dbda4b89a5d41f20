//! Does a pool carry what belongs to it, does the newer of two states win, and does nothing that a registry says break what is here?

use super::taken::{Pool, Taken, take, take_levels, thresholds};
use super::*;
use crate::hosts::{Credentials, HOSTS_MAX, MAPPINGS_MAX, Moving, Uncounted};
use crate::levels::Level;
use crate::store::Kept;
use forebay_api::LevelSpec;
use std::collections::{BTreeSet, HashMap};

#[path = "carried/trust_tests.rs"]
mod trust;

const APPLIANCE: u128 = 1;
const OTHER: u128 = 2;
const POOL: u128 = 0x1000;
const VOLUME: u128 = 0x2000;
const PROJECT_ID: u128 = 0x3000;
const HOST_ID: u128 = 0x4000;
const GROUP_ID: u128 = 0x5000;
const MAPPING_ID: u128 = 0x6000;
const LEVEL_ID: u128 = 0x7000;

fn id(number: u128) -> String {
    Id(number).to_string()
}

fn host(nth: u128, name: &str, initiators: &[&str]) -> Host {
    Host {
        id: id(HOST_ID + nth),
        name: name.into(),
        created_unix_ms: 1,
        revision: 3,
        came_with: None,
        initiators: initiators.iter().map(|name| name.to_string()).collect(),
        chap: Some(Credentials { user: "u".into(), secret: "0123456789ab".into() }),
        mutual: None,
        max_iops: Some(500),
        max_bytes_per_second: None,
    }
}

fn iqn(name: &str) -> String {
    format!("iqn.2026-01.example:{name}")
}

fn group(nth: u128, name: &str, hosts: &[u128]) -> Group {
    let hosts = hosts.iter().map(|nth| id(HOST_ID + nth)).collect();
    Group {
        id: id(GROUP_ID + nth),
        name: name.into(),
        created_unix_ms: 1,
        revision: 2,
        came_with: None,
        hosts,
    }
}

/// Of volume `nth` of tank.
fn mapping(nth: u128, volume: u128, to: String, lun: u16) -> Mapping {
    Mapping {
        id: id(MAPPING_ID + nth),
        created_unix_ms: nth as u64,
        volume: id(VOLUME + volume),
        pool: id(POOL),
        volume_name: format!("tank/{volume}"),
        target: None,
        to,
        lun,
        logical_block_bytes: 512,
    }
}

/// Host a, hosts b and c in group bc, three mappings of tank, and one of another pool.
fn full() -> Content {
    let mut content = Content { appliance: id(APPLIANCE), ..Content::default() };
    for (nth, name) in [(0, "a"), (1, "b"), (2, "c"), (3, "d")] {
        content.hosts.push(host(nth, name, &[&iqn(name)]));
    }
    content.groups.push(group(0, "bc", &[1, 2]));
    content.mappings.push(mapping(0, 0, id(HOST_ID), 5));
    content.mappings.push(mapping(1, 0, id(GROUP_ID), 9));
    content.mappings.push(mapping(2, 1, id(HOST_ID), 0));
    content.mappings.push(Mapping {
        pool: id(POOL + 1),
        volume_name: "vault/20".into(),
        ..mapping(3, 20, id(HOST_ID + 3), 0)
    });
    content.projects.push(ProjectHosts {
        pool: id(POOL),
        project: id(PROJECT_ID),
        name: "tank/web".into(),
        hosts: vec![id(HOST_ID), id(GROUP_ID)],
    });
    content.revisions.insert(id(POOL), Revision { number: 4, is_own: true, ..Revision::default() });
    content.check().expect("it is what requests make");
    content
}

fn level(nth: u128, name: &str) -> Level {
    let spec = LevelSpec { max_iops: Some(500), ..LevelSpec::default() };
    Level { id: id(LEVEL_ID + nth), name: name.into(), created_unix_ms: 1, revision: 1, spec }
}

fn levels(names: &[&str]) -> levels::Content {
    let levels = names.iter().enumerate().map(|(nth, name)| level(nth as u128, name)).collect();
    levels::Content { levels, ..levels::Content::default() }
}

/// Tank with ten volumes and project web.
fn tank<'a>(id_of_pool: &'a str) -> Pool<'a> {
    Pool {
        id: id_of_pool,
        name: "tank",
        volumes: (0..10).map(|nth| (id(VOLUME + nth), format!("tank/{nth}"))).collect(),
        projects: HashMap::from([(id(PROJECT_ID), "tank/web".to_string())]),
        elsewhere: HashSet::new(),
        targets: HashSet::new(),
    }
}

fn origin(appliance: u128, revision: u64) -> Origin {
    Origin { version: VERSION, appliance: id(appliance), revision }
}

fn take_into(content: &mut Content, items: &Items) -> Taken {
    let before = content.clone();
    let taken = take(content, items, Some(&origin(OTHER, 40)), &tank(&id(POOL)), true, 1000);
    content.check().expect("whatever a registry says, the content is one that could be");
    content.follow_up(&before);
    taken
}

fn sorted(mut content: Content) -> Content {
    content.hosts.sort_by(|a, b| a.id.cmp(&b.id));
    content.mappings.sort_by(|a, b| a.id.cmp(&b.id));
    content
}

/// A registry with these values in place of what [`full`] makes.
fn with(changes: &[(String, serde_json::Value)]) -> Items {
    let mut items = items_of(&full(), &levels(&[]), &[], &id(POOL));
    items.extend(changes.iter().map(|(key, value)| (key.clone(), value.to_string().into_bytes())));
    items
}

fn value<T: Serialize>(value: &T) -> serde_json::Value {
    serde_json::to_value(value).expect("plain data")
}

#[test]
fn a_pool_carries_what_belongs_to_it_and_nothing_else() {
    let items = items_of(&full(), &levels(&["gold"]), &[70], &id(POOL));
    let keys: Vec<&str> = items.keys().map(String::as_str).collect();
    let mut expected: Vec<String> = [0, 1, 2].map(|nth| format!("host/{}", id(HOST_ID + nth))).into();
    expected.extend([0, 1, 2].map(|nth| format!("mapping/{}", id(MAPPING_ID + nth))));
    expected.push(format!("group/{}", id(GROUP_ID)));
    expected.push(format!("project/{}", id(PROJECT_ID)));
    expected.push(format!("level/{}", id(LEVEL_ID)));
    expected.extend(["origin", "thresholds"].map(String::from));
    expected.sort();
    assert_eq!(keys, expected);
    assert_eq!(age(&items), Age::Known(origin(APPLIANCE, 4)));
    let text = String::from_utf8(items[&format!("host/{}", id(HOST_ID))].clone()).expect("JSON");
    assert!(text.contains("0123456789ab"), "a host's secret goes with it: {text}");
}

#[test]
fn what_a_pool_carries_is_all_there_in_an_empty_appliance() {
    let (before, gold) = (full(), levels(&["gold", "silver"]));
    let items = items_of(&before, &gold, &[70, 95], &id(POOL));
    let mut after = Content::default();
    let mut taken = take_into(&mut after, &items);
    assert_eq!(taken.left_out_in_words(), None);
    let mut expected = before;
    expected.hosts.retain(|host| host.name != "d");
    expected.mappings.retain(|mapping| mapping.pool == id(POOL));
    expected.appliance.clear();
    let revision = Revision { number: 41, taken: Some(origin(OTHER, 40)), ..Revision::default() };
    expected.revisions.insert(id(POOL), revision);
    expected.hosts.iter_mut().for_each(|host| host.came_with = Some(id(POOL)));
    expected.groups.iter_mut().for_each(|group| group.came_with = Some(id(POOL)));
    assert_eq!(sorted(after), sorted(expected));
    let mut known = levels::Content::default();
    take_levels(&mut known, &items, &BTreeSet::from([Id(0), Id(LEVEL_ID), Id(1), Id(99)]), None, &mut taken);
    assert_eq!(known, levels(&["gold"]), "only the level that is used");
    assert_eq!(thresholds(&items, &mut taken), [70, 95]);
    let words = taken.in_words().expect("something came");
    let told = "1 host group, 3 new mappings, 1 project with hosts, 1 service level, 2 fill thresholds";
    assert!(words.starts_with("hosts a (iqn") && words.contains(told), "{words}");
}

#[test]
fn the_newer_of_files_and_registry_wins() {
    let ours = |number, taken| Revision { number, taken, ..Revision::default() };
    let cases = [
        ("our own, equal", origin(APPLIANCE, 4), Some(ours(4, None)), Newer::Files),
        ("our own, and changed since", origin(APPLIANCE, 4), Some(ours(5, None)), Newer::Files),
        ("an older backup was restored", origin(APPLIANCE, 6), Some(ours(5, None)), Newer::Registry),
        ("no change has concerned it yet", origin(APPLIANCE, 0), None, Newer::Files),
        ("it was elsewhere", origin(OTHER, 1), Some(ours(5, None)), Newer::Registry),
        ("nothing is known of it", origin(OTHER, 0), None, Newer::Registry),
        (
            "taken, and not written since",
            origin(OTHER, 7),
            Some(ours(9, Some(origin(OTHER, 7)))),
            Newer::Files,
        ),
        ("elsewhere once more", origin(OTHER, 8), Some(ours(9, Some(origin(OTHER, 7)))), Newer::Registry),
    ];
    for (case, origin, ours, expected) in cases {
        let mut content = Content { appliance: id(APPLIANCE), ..Content::default() };
        content.revisions.extend(ours.map(|ours| (id(POOL), ours)));
        assert_eq!(newer(&origin, &content, &id(POOL)), expected, "{case}");
    }
    let said = |text: &str| age(&Items::from([(ORIGIN.to_string(), text.as_bytes().to_vec())]));
    let known = format!(r#"{{"version":1,"appliance":"{}","revision":3}}"#, id(OTHER));
    assert_eq!(said(&known), Age::Known(origin(OTHER, 3)));
    assert_eq!(said(r#"{"version":2,"anything":[]}"#), Age::Later(2));
    let wrong = [
        "",
        "{",
        "[]",
        r#"{"version":0,"appliance":"x","revision":3}"#,
        r#"{"version":1,"appliance":"x","revision":3}"#,
        r#"{"version":1,"appliance":"","revision":3}"#,
        r#"{"version":1,"revision":-3}"#,
    ];
    for text in wrong {
        assert_eq!(said(text), Age::Unknown, "{text}");
    }
    assert_eq!(age(&Items::new()), Age::Unknown);
}

/// Goal: a change counts for the pools that it concerns and for no others. Each line is a change and the pools whose revision it raises.
#[test]
fn changes_are_counted_for_the_pools_that_they_concern() {
    type Change = fn(&mut Content);
    let cases: [(&str, Change, &[u128]); 8] = [
        ("a host of both", |c| c.host_mut("a").expect("there").revision += 1, &[0]),
        ("a member of a group", |c| c.host_mut("b").expect("there").revision += 1, &[0]),
        ("a host of the other", |c| c.host_mut("d").expect("there").revision += 1, &[1]),
        ("a group", |c| c.groups[0].revision += 1, &[0]),
        ("a mapping", |c| _ = c.mappings.pop(), &[1]),
        ("a project's hosts", |c| _ = c.projects[0].hosts.pop(), &[0]),
        ("a host that sees nothing", |c| c.hosts.push(host(9, "z", &["iqn.2026-01.example:z"])), &[]),
        ("a pool that is destroyed", |c| c.forget_pool(&id(POOL)), &[]),
    ];
    for (case, change, pools) in cases {
        let before = full();
        let mut after = before.clone();
        change(&mut after);
        after.follow_up(&before);
        for nth in 0..2 {
            let number = |content: &Content| content.revisions.get(&id(POOL + nth)).map(|one| one.number);
            let raised = pools.contains(&nth).then(|| number(&before).unwrap_or_default() + 1);
            let expected = match case {
                "a pool that is destroyed" if nth == 0 => None,
                _ => raised.or(number(&before)),
            };
            assert_eq!(number(&after), expected, "{case}, pool {nth}");
        }
    }
}

#[test]
fn only_the_pool_that_has_come_is_replaced() {
    let mut here = full();
    // Here it is another one that sees tank/1, and host a has been changed.
    here.mappings[2].to = id(HOST_ID + 3);
    here.host_mut("a").expect("there").initiators = vec![iqn("changed")];
    let mut changed = full();
    changed.mappings.retain(|mapping| mapping.id != id(MAPPING_ID));
    changed.projects.clear();
    let items = items_of(&changed, &levels(&[]), &[], &id(POOL));
    take_into(&mut here, &items);
    let kept = |content: &Content| {
        let all = content.mappings.iter().map(|mapping| (mapping.id.clone(), mapping.to.clone()));
        all.collect::<BTreeSet<_>>()
    };
    assert_eq!(kept(&here), kept(&changed), "with the one of the other pool");
    assert_eq!(here.projects, []);
    assert_eq!(here.host("a").expect("there").initiators, [iqn("changed")], "a known host stays as it is");
    assert_eq!(here.hosts.len(), 4);
    assert_eq!(
        here.revisions[&id(POOL)],
        Revision { number: 41, is_own: true, taken: Some(origin(OTHER, 40)), ..Revision::default() }
    );
}

#[test]
fn a_volume_that_moves_keeps_the_mappings_that_it_has_here() {
    let mut here = full();
    here.moving.push(Moving { volume: id(VOLUME), from: id(POOL), to: id(POOL + 1) });
    let mut changed = full();
    changed.mappings.clear();
    changed.mappings.push(mapping(8, 0, id(HOST_ID), 77));
    take_into(&mut here, &items_of(&changed, &levels(&[]), &[], &id(POOL)));
    let luns: Vec<u16> = here.mappings.iter().map(|mapping| mapping.lun).collect();
    assert_eq!(luns, [5, 9, 0], "tank/0 as it was, tank/1 unmapped, vault/20");
    // One that has moved to a pool that is here is not this pool's to say.
    let mut here = full();
    let pool = Pool { elsewhere: HashSet::from([id(VOLUME + 10)]), ..tank("") };
    let (id_of_pool, moved) = (id(POOL), mapping(8, 10, id(HOST_ID), 33));
    here.mappings.push(moved.clone());
    take(&mut here, &Items::new(), Some(&origin(OTHER, 1)), &Pool { id: &id_of_pool, ..pool }, true, 1000);
    assert_eq!(here.mappings.len(), 2);
    assert!(here.mappings.contains(&moved));
}

#[test]
fn a_host_with_a_known_initiator_stands_for_the_one_that_is_here() {
    let mut here = Content { appliance: id(APPLIANCE), ..Content::default() };
    here.hosts.push(host(50, "other-name", &[&iqn("x"), &iqn("b")]));
    here.hosts.push(host(51, "a", &[&iqn("y")]));
    here.groups.push(group(51, "bc", &[]));
    let taken = take_into(&mut here, &items_of(&full(), &levels(&[]), &[], &id(POOL)));
    assert_eq!(taken.left_out_in_words(), None);
    let names: BTreeSet<&str> = here.hosts.iter().map(|host| &*host.name).collect();
    assert_eq!(names, BTreeSet::from(["other-name", "a", "a-2", "c"]), "b is the one that is here");
    let group = here.group("bc-2").expect("its name was taken");
    assert_eq!(group.hosts, [id(HOST_ID + 50), id(HOST_ID + 2)]);
    assert_eq!(here.host("other-name").expect("there").initiators.len(), 2);
    // Two of a group that are one here.
    let mut here = Content { appliance: id(APPLIANCE), ..Content::default() };
    here.hosts.push(host(50, "both", &[&iqn("c"), &iqn("b")]));
    take_into(&mut here, &items_of(&full(), &levels(&[]), &[], &id(POOL)));
    assert_eq!(here.group("bc").expect("there").hosts, [id(HOST_ID + 50)]);
}

#[test]
fn names_that_are_taken_get_a_number_and_stay_names() {
    let long = "x".repeat(63);
    let hosts =
        vec![host(50, "a", &[&iqn("1")]), host(51, "a-2", &[&iqn("2")]), host(52, &long, &[&iqn("3")])];
    let mut here = Content { hosts, ..Content::default() };
    let named = Host { name: long.clone(), ..host(1, "b", &[&iqn("b")]) };
    take_into(&mut here, &with(&[(format!("host/{}", id(HOST_ID + 1)), value(&named))]));
    let names: BTreeSet<String> = here.hosts.iter().map(|host| host.name.clone()).collect();
    let expected = ["a", "a-2", "a-3", "c", &long, &format!("{}-2", &long[..61])];
    assert_eq!(names, expected.iter().map(|name| name.to_string()).collect());
}

/// Goal: one value of a registry that is wrong takes nothing else with it. Each line is a registry with one wrong value, and how many mappings are left of three.
#[test]
fn what_is_wrong_is_left_out_by_itself() {
    use serde_json::json;
    let mapping_key = format!("mapping/{}", id(MAPPING_ID));
    let one = || mapping(0, 0, id(HOST_ID), 5);
    let host_key = format!("host/{}", id(HOST_ID));
    let a = || host(0, "a", &[&iqn("a")]);
    let secret = |secret: &str| Some(Credentials { user: "u".into(), secret: secret.into() });
    let cases = [
        ("garbage", mapping_key.clone(), json!("x"), 2),
        ("another UUID than its key", mapping_key.clone(), value(&mapping(9, 0, id(HOST_ID), 5)), 2),
        (
            "no UUID",
            "mapping/x".into(),
            value(&Mapping { id: "x".into(), ..mapping(9, 3, id(HOST_ID), 6) }),
            3,
        ),
        ("another pool", mapping_key.clone(), value(&Mapping { pool: id(POOL + 1), ..one() }), 2),
        (
            "a volume that is not there",
            mapping_key.clone(),
            value(&Mapping { volume: id(VOLUME + 99), ..one() }),
            2,
        ),
        ("a LUN beyond all", mapping_key.clone(), value(&Mapping { lun: 16384, ..one() }), 2),
        ("no logical block", mapping_key.clone(), value(&Mapping { logical_block_bytes: 520, ..one() }), 2),
        (
            "the other logical block",
            mapping_key.clone(),
            value(&Mapping { logical_block_bytes: 4096, ..one() }),
            2,
        ),
        ("no target", mapping_key.clone(), value(&Mapping { target: Some("iqn.x".into()), ..one() }), 2),
        ("nobody", mapping_key.clone(), value(&Mapping { to: id(HOST_ID + 99), ..one() }), 2),
        ("a LUN twice", mapping_key.clone(), value(&Mapping { lun: 0, ..one() }), 2),
        (
            "a volume twice",
            format!("mapping/{}", id(MAPPING_ID + 8)),
            value(&mapping(8, 0, id(HOST_ID), 6)),
            3,
        ),
        (
            "a UUID of another's mapping",
            format!("mapping/{}", id(MAPPING_ID + 3)),
            value(&mapping(3, 3, id(HOST_ID), 6)),
            3,
        ),
        ("a host's garbage", host_key.clone(), json!([]), 1),
        ("a host's name", host_key.clone(), value(&Host { name: "a b\u{1b}[2J".into(), ..a() }), 1),
        ("a host's IQN", host_key.clone(), value(&Host { initiators: vec!["x".into()], ..a() }), 1),
        ("a host's IQN in capitals", host_key.clone(), value(&Host { initiators: vec![iqn("A")], ..a() }), 1),
        ("a host without any", host_key.clone(), value(&Host { initiators: vec![], ..a() }), 1),
        ("a host's short secret", host_key.clone(), value(&Host { chap: secret("short"), ..a() }), 1),
        ("a host's one secret", host_key.clone(), value(&Host { mutual: secret("0123456789ab"), ..a() }), 1),
        ("a host's ceiling", host_key.clone(), value(&Host { max_iops: Some(1), ..a() }), 1),
        ("a host's revision", host_key.clone(), value(&Host { revision: u64::MAX, ..a() }), 1),
        (
            "a group's name",
            format!("group/{}", id(GROUP_ID)),
            value(&Group { name: String::new(), ..group(0, "bc", &[1]) }),
            2,
        ),
    ];
    for (case, key, wrong, left) in cases {
        let mut here = Content::default();
        // Of another pool, with a UUID that one of the cases has, too.
        here.hosts.push(host(3, "d", &[&iqn("d")]));
        here.mappings.push(full().mappings[3].clone());
        let taken = take_into(&mut here, &with(&[(key, wrong)]));
        let its = here.mappings.iter().filter(|mapping| mapping.pool == id(POOL)).count();
        assert_eq!(its, left, "{case}");
        let told = taken.left_out_in_words().unwrap_or_else(|| panic!("{case}: it is not told"));
        assert!(told.len() < 400 && !told.contains('\u{1b}'), "{case}: {told}");
    }
}

#[test]
fn a_registry_cannot_change_a_host_that_is_here_nor_take_its_place() {
    let forged = Host { chap: None, initiators: vec![iqn("evil")], ..host(0, "a", &[]) };
    let mut here = full();
    let before = here.hosts.clone();
    let as_group = Group { id: id(HOST_ID), ..group(0, "evil", &[3]) };
    let key = |kind: &str, number| format!("{kind}/{}", id(number));
    take_into(
        &mut here,
        &with(&[(key("host", HOST_ID), value(&forged)), (key("group", HOST_ID), value(&as_group))]),
    );
    assert_eq!((here.hosts, here.groups), (before, full().groups));
    // A group as a member of a group, and a host with the UUID of a group.
    let mut here = full();
    let within =
        Group { id: id(GROUP_ID + 1), hosts: vec![id(GROUP_ID), id(HOST_ID)], ..group(0, "all", &[]) };
    let as_host = Host { id: id(GROUP_ID), ..host(0, "evil", &[&iqn("evil")]) };
    let more = [
        (key("group", GROUP_ID + 1), value(&within)),
        (key("host", GROUP_ID), value(&as_host)),
        (key("mapping", MAPPING_ID + 5), value(&mapping(5, 5, id(GROUP_ID + 1), 20))),
    ];
    let taken = take_into(&mut here, &with(&more));
    assert_eq!(here.group("all").expect("it came").hosts, [id(HOST_ID)]);
    assert!(here.host("evil").is_err());
    assert!(taken.left_out_in_words().expect("told").contains("members of host group all"));
}

#[test]
fn what_projects_say_is_checked_as_well() {
    let key = format!("project/{}", id(PROJECT_ID));
    let said = |hosts: Vec<String>| ProjectHosts { hosts, ..full().projects[0].clone() };
    let twice = vec![id(HOST_ID + 1), id(GROUP_ID), id(HOST_ID + 1), id(HOST_ID + 77), id(HOST_ID)];
    let mut here = Content::default();
    let taken = take_into(&mut here, &with(&[(key.clone(), value(&said(twice)))]));
    assert_eq!(here.projects[0].hosts, [id(HOST_ID + 1), id(HOST_ID)]);
    let told = taken.left_out_in_words().expect("told");
    assert!(told.contains("hosts of tank/web") && told.contains("some hosts were not taken"), "{told}");
    let elsewhere = ProjectHosts { pool: id(POOL + 1), ..said(vec![id(HOST_ID)]) };
    let unknown = ProjectHosts { project: id(PROJECT_ID + 1), ..said(vec![id(HOST_ID)]) };
    for (key, wrong) in [(key, elsewhere), (format!("project/{}", id(PROJECT_ID + 1)), unknown)] {
        let mut here = Content::default();
        let mut items = with(&[]);
        items.retain(|key, _| !key.starts_with("project/"));
        items.insert(key, json(&wrong));
        take_into(&mut here, &items);
        assert_eq!(here.projects, []);
    }
}

#[test]
fn limits_hold_and_it_takes_no_time() {
    let mut large = Content { appliance: id(APPLIANCE), ..Content::default() };
    let hosts = (0..HOSTS_MAX as u128).map(|nth| host(nth, &format!("h{nth}"), &[&iqn(&nth.to_string())]));
    large.hosts = hosts.collect();
    let all: Vec<u128> = (0..HOSTS_MAX as u128).collect();
    large.groups = vec![group(0, "all", &all)];
    let mut items = items_of(&large, &levels(&[]), &[], &id(POOL));
    items.extend(large.hosts.iter().map(|host| (format!("host/{}", host.id), json(host))));
    items.insert(format!("group/{}", id(GROUP_ID)), json(&large.groups[0]));
    let pool_id = id(POOL);
    let mut pool = tank(&pool_id);
    for nth in 0..2 * MAPPINGS_MAX as u128 {
        pool.volumes.insert(id(VOLUME + nth), format!("tank/{nth}"));
    }
    // So many of them to all hosts, and so many mappings of another pool that are here already; how many come.
    for (to_all, others, expected) in [(0, 1000, MAPPINGS_MAX - 1000), (70, 0, 65 + 601)] {
        for nth in 0..2 * MAPPINGS_MAX as u128 {
            let to = if nth < to_all { id(GROUP_ID) } else { id(HOST_ID + nth % 900) };
            items.insert(
                format!("mapping/{}", id(MAPPING_ID + nth)),
                json(&mapping(nth, nth, to, nth as u16)),
            );
        }
        let mut here = Content::default();
        here.hosts.push(host(5000, "here", &[&iqn("here")]));
        let other = |nth: u128| Mapping {
            pool: id(1),
            ..mapping(20_000 + nth, 20_000 + nth, id(HOST_ID + 5000), nth as u16)
        };
        here.mappings = (0..others).map(other).collect();
        let begun = std::time::Instant::now();
        let taken = take(&mut here, &items, Some(&origin(OTHER, 1)), &pool, true, 1000);
        println!("{:?}", begun.elapsed());
        here.check().expect("within all limits");
        // The group has all of them, and one has no place.
        assert_eq!(
            (here.hosts.len(), taken.hosts.len()),
            if to_all > 0 { (HOSTS_MAX, HOSTS_MAX - 1) } else { (901, 900) }
        );
        assert_eq!(taken.mappings, expected);
        let told = taken.left_out_in_words().expect("told");
        assert!(
            told.contains("limit of this appliance is reached") && told.contains("more than 4096"),
            "{told}"
        );
    }
}

#[test]
fn levels_come_where_they_are_used_and_not_known() {
    let items = items_of(&full(), &levels(&["gold", "silver", "bronze"]), &[], &id(POOL));
    let wanted: BTreeSet<Id> = [0, 1, 2, 9].map(|nth| Id(LEVEL_ID + nth)).into();
    // Gold is known and another one; another level is called silver.
    let mut here = levels::Content::default();
    let gold = Level { spec: LevelSpec::default(), ..level(0, "our-gold") };
    here.levels = vec![gold.clone(), level(50, "silver")];
    let mut taken = Taken::default();
    take_levels(&mut here, &items, &wanted, Some(false), &mut taken);
    here.check().expect("one that could be");
    assert_eq!(taken.levels, 2);
    assert!(taken.left_out_in_words().expect("told").contains("level our-gold"));
    assert_eq!(here.levels[..2], [gold, level(50, "silver")]);
    assert_eq!(here.levels[2..], [level(1, "silver-2"), level(2, "bronze")]);
    // What no request could have made is left out.
    for wrong in [
        Level { name: "a b".into(), ..level(0, "x") },
        Level { id: id(LEVEL_ID + 1), ..level(0, "x") },
        Level { revision: u64::MAX, ..level(0, "x") },
        Level { spec: LevelSpec { max_iops: Some(1), ..LevelSpec::default() }, ..level(0, "x") },
    ] {
        let mut items = Items::from([(format!("level/{}", id(LEVEL_ID)), json(&wrong))]);
        items.insert("thresholds".into(), b"[0, 300]".to_vec());
        let (mut here, mut taken) = (levels::Content::default(), Taken::default());
        take_levels(&mut here, &items, &wanted, None, &mut taken);
        assert_eq!(thresholds(&items, &mut taken), Vec::<u8>::new());
        assert!(here.levels.is_empty() && taken.in_words().is_none(), "{wrong:?}");
        assert!(taken.left_out_in_words().expect("told").contains("thresholds"));
    }
}

/// Goal: batches are small enough, what others name is there before them, and the origin comes last.
#[test]
fn a_difference_is_put_in_order_and_leaves_what_others_wrote() {
    let mut large = full();
    for nth in 100..1100 {
        large.mappings.push(mapping(nth, nth, id(HOST_ID), nth as u16));
    }
    large.revisions.insert(id(POOL), Revision { number: 5, ..Revision::default() });
    let wanted = items_of(&large, &levels(&["gold"]), &[80], &id(POOL));
    let mut registry = items_of(&full(), &levels(&["silver", "bronze"]), &[], &id(POOL));
    let later = ("later/x".to_string(), vec![1]);
    // Deletions take more than one batch, too.
    registry.extend((50_000..54_000).map(|nth| (format!("mapping/{}", id(nth)), vec![4])));
    registry.extend([later.clone(), (format!("host/{}", id(1)), vec![2]), ("mapping/".to_string(), vec![3])]);
    let known = super::known(registry.clone(), &BTreeSet::new());
    assert!(!known.contains_key("later/x"));
    let found = difference(&known, &wanted);
    assert!(found.batches.len() > 2 && found.too_long.is_empty());
    let order: Vec<&String> = found.batches.iter().flat_map(|batch| batch.keys()).collect();
    assert_eq!(order.len(), order.iter().collect::<HashSet<_>>().len(), "each once");
    let last = found.batches.len() - 1;
    for (nth, batch) in found.batches.iter().enumerate() {
        let bytes: usize =
            batch.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len)).sum();
        assert!(bytes <= ITEMS_PUT_MAX && batch.len() <= ITEMS_CHANGED_MAX, "{bytes}, {}", batch.len());
        assert_eq!(batch.contains_key(ORIGIN), nth == last);
        // All that is named is there, whatever comes after this batch.
        apply(&mut registry, batch.clone());
        assert!(registry.contains_key(&format!("host/{}", id(HOST_ID))));
    }
    assert_eq!(super::known(registry.clone(), &BTreeSet::new()), wanted);
    assert_eq!(registry.remove("later/x"), Some(later.1));
    assert!(difference(&wanted, &wanted).batches.is_empty());
    // Only what says more than a registry takes stays away, and is told.
    let mut long = large.projects[0].clone();
    long.hosts = (0..2000).map(|nth| id(GROUP_ID + nth)).collect();
    large.projects[0] = long;
    let found = difference(&wanted, &items_of(&large, &levels(&["gold"]), &[80], &id(POOL)));
    // What it said before is not what holds now.
    let gone: Vec<_> = found.batches.iter().flatten().map(|(key, value)| (&**key, value.is_none())).collect();
    assert_eq!((found.too_long.len(), gone), (1, vec![(&*format!("project/{}", id(PROJECT_ID)), true)]));
}

/// Goal: no text that a registry may have stops the daemon or breaks an invariant. Method: values of a good registry are cut, exchanged and changed by a small generator of
/// numbers; [`take_into`] checks the rest.
#[test]
fn no_registry_breaks_anything() {
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let good = items_of(&full(), &levels(&["gold"]), &[80], &id(POOL));
    let values: Vec<Vec<u8>> = good.values().cloned().collect();
    for _ in 0..2000 {
        let mut items = good.clone();
        for _ in 0..=random(3) {
            let key = good.keys().nth(random(good.len())).expect("one of them").clone();
            let mut text = match random(3) {
                0 => values[random(values.len())].clone(),
                _ => items[&key].clone(),
            };
            match random(4) {
                0 => text.truncate(random(text.len().max(1))),
                1 => {
                    let at = random(text.len().max(1));
                    text.iter_mut().skip(at).take(1).for_each(|byte| *byte = random(256) as u8);
                }
                2 => {
                    let from = id(HOST_ID + random(4) as u128);
                    let to = id([HOST_ID, GROUP_ID, VOLUME][random(3)] + random(4) as u128);
                    text = String::from_utf8_lossy(&text).replace(&from, &to).into_bytes();
                }
                _ => {}
            }
            items.insert(key, text);
        }
        let mut here = if random(2) == 0 { full() } else { Content::default() };
        let mut taken = take_into(&mut here, &items);
        age(&items);
        take_levels(
            &mut levels::Content::default(),
            &items,
            &BTreeSet::from([Id(LEVEL_ID)]),
            None,
            &mut taken,
        );
        thresholds(&items, &mut taken);
    }
}
