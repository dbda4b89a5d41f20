//! Are the invariants kept, by every change and across restarts?

use super::*;
use crate::directory::DataDir;
use crate::test_directory;

fn open(temp: &tempfile::TempDir) -> Hosts {
    Hosts::open(std::sync::Arc::new(DataDir::open(temp.path()).unwrap())).unwrap()
}

fn host(name: &str, initiators: &[&str]) -> Host {
    Host {
        id: format!("id-{name}"),
        name: name.into(),
        created_unix_ms: 1,
        revision: 1,
        came_with: None,
        initiators: initiators.iter().map(|name| name.to_string()).collect(),
        chap: Some(Credentials { user: "u".into(), secret: "0123456789ab".into() }),
        mutual: None,
        max_iops: None,
        max_bytes_per_second: None,
    }
}

fn group(name: &str, hosts: &[&str]) -> Group {
    Group {
        id: format!("id-{name}"),
        name: name.into(),
        created_unix_ms: 1,
        revision: 1,
        came_with: None,
        hosts: hosts.iter().map(|name| format!("id-{name}")).collect(),
    }
}

fn wanted<'a>(volume_name: &'a str, host: &'a str, lun: Option<u16>) -> NewMapping<'a> {
    // The name serves as the volume's UUID.
    let pool = volume_name.split('/').next().unwrap();
    NewMapping {
        volume: volume_name,
        pool,
        volume_name,
        host,
        lun,
        logical_block_bytes: None,
        now_unix_ms: 1,
    }
}

/// Three hosts, the first two of them in a group.
fn cluster(temp: &tempfile::TempDir) -> Hosts {
    let hosts = open(temp);
    let begin = |content: &mut Content| {
        content.hosts = ["a", "b", "c"].map(|name| host(name, &[&format!("iqn.{name}")])).into();
        content.groups.push(group("ab", &["a", "b"]));
        Ok(())
    };
    hosts.change(begin).unwrap();
    hosts
}

fn map(hosts: &Hosts, volume: &str, to: &str, lun: Option<u16>) -> Result<u16, Problem> {
    hosts.change(|content| content.map(wanted(volume, to, lun))).map(|mapping| mapping.lun)
}

fn unmap(hosts: &Hosts, volume: &str) {
    let unmap = |content: &mut Content| {
        content.mappings.retain(|mapping| mapping.volume != volume);
        Ok(())
    };
    hosts.change(unmap).unwrap();
}

#[test]
fn what_was_changed_is_there_after_a_restart_and_private() {
    let temp = test_directory();
    let content = {
        let hosts = cluster(&temp);
        map(&hosts, "tank/x", "ab", None).unwrap();
        hosts.content()
    };
    assert_eq!(open(&temp).content(), content);
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(temp.path().join(Content::FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_plan_and_a_refused_change_leave_everything_as_it_was() {
    let temp = test_directory();
    let hosts = cluster(&temp);
    let before = hosts.content();
    assert_eq!(hosts.plan(|content| content.map(wanted("tank/x", "a", None))).unwrap().lun, 0);
    let refused = hosts.change(|content| {
        content.hosts.push(host("d", &["iqn.a"]));
        Ok(())
    });
    let problem = refused.unwrap_err();
    assert_eq!((problem.code, problem.field.as_deref()), (Code::Conflict, Some("initiators")));
    assert!(problem.detail.contains("hosts a and d"), "{}", problem.detail);
    // A directory where the temporary file should go: the write fails.
    std::fs::create_dir(temp.path().join(".hosts.new")).unwrap();
    assert_eq!(map(&hosts, "tank/x", "a", None).unwrap_err().code, Code::Io);
    assert_eq!(hosts.content(), before);
    drop(hosts);
    assert_eq!(open(&temp).content(), before);
}

#[test]
fn numbers_are_the_lowest_free_ones_at_each_target() {
    let temp = test_directory();
    let hosts = cluster(&temp);
    assert_eq!(map(&hosts, "tank/0", "a", None), Ok(0));
    assert_eq!(map(&hosts, "tank/1", "a", None), Ok(1));
    assert_eq!(map(&hosts, "tank/0", "c", None), Ok(0), "another host has numbers of its own");
    assert_eq!(map(&hosts, "other/0", "a", None), Ok(0), "and so has another target");
    assert_eq!(map(&hosts, "tank/2", "ab", None), Ok(2), "a group takes what is free for all its members");
    assert_eq!(map(&hosts, "tank/3", "b", None), Ok(0));
    assert_eq!(map(&hosts, "tank/4", "a", Some(16383)), Ok(16383));
    // What was taken away is chosen for no other volume, though one may be given it; and nobody else's number has moved.
    unmap(&hosts, "tank/1");
    assert_eq!(map(&hosts, "tank/5", "a", None), Ok(3));
    assert_eq!(map(&hosts, "tank/1", "a", None), Ok(1));
    unmap(&hosts, "tank/1");
    assert_eq!(map(&hosts, "tank/7", "a", Some(1)), Ok(1));
    assert_eq!(map(&hosts, "tank/1", "a", None), Ok(4));
    let content = hosts.content();
    let group = content.mappings.iter().find(|mapping| mapping.volume == "tank/2").unwrap();
    assert_eq!(group.lun, 2);
    // Pools whose names differ in case only would share a target: then they share its numbers, too.
    assert_eq!(map(&hosts, "Tank/6", "a", None), Ok(5));
}

#[test]
fn numbers_are_kept_back_for_a_while_and_stay_small() {
    let temp = test_directory();
    let hosts = cluster(&temp);
    let numbers: Vec<u16> = (0..200)
        .map(|nth| {
            let volume = format!("tank/{nth}");
            let lun = map(&hosts, &volume, "a", None).unwrap();
            unmap(&hosts, &volume);
            lun
        })
        .collect();
    assert_eq!(numbers[..65], (0..65).collect::<Vec<_>>());
    // No number is another's before 64 others have been given up, also after a restart.
    for (nth, lun) in numbers.iter().enumerate() {
        assert!(*lun <= 64 && !numbers[nth.saturating_sub(64)..nth].contains(lun), "{numbers:?}");
    }
    drop(hosts);
    let hosts = open(&temp);
    assert_eq!(hosts.content().given_up.len(), 64);
    assert_eq!(map(&hosts, "tank/199", "a", None), Ok(numbers[199]), "its own comes back");
    assert!(!numbers[136..].contains(&map(&hosts, "tank/x", "a", None).unwrap()));
    // What is known of a host goes with it.
    let forget = |content: &mut Content| {
        content.mappings.clear();
        content.groups.clear();
        content.hosts.clear();
        Ok(())
    };
    hosts.change(forget).unwrap();
    assert_eq!(hosts.content().given_up, []);
}

#[test]
fn a_host_sees_a_volume_once_and_a_number_once() {
    let temp = test_directory();
    let hosts = cluster(&temp);
    map(&hosts, "tank/x", "a", Some(7)).unwrap();
    let field = |result: Result<u16, Problem>| {
        let problem = result.unwrap_err();
        assert_eq!(problem.code, Code::Conflict, "{}", problem.detail);
        problem.field.unwrap_or_default()
    };
    assert_eq!(field(map(&hosts, "tank/x", "a", None)), "host");
    assert_eq!(field(map(&hosts, "tank/x", "ab", None)), "host");
    assert_eq!(field(map(&hosts, "tank/y", "a", Some(7))), "lun");
    assert_eq!(field(map(&hosts, "tank/y", "ab", Some(7))), "lun");
    assert_eq!(map(&hosts, "tank/x", "missing", None).unwrap_err().code, Code::NotFound);
    // A new member brings its own volumes along.
    map(&hosts, "tank/z", "ab", Some(0)).unwrap();
    map(&hosts, "tank/w", "c", Some(0)).unwrap();
    let join = |content: &mut Content| {
        content.group_mut("ab")?.hosts.push("id-c".into());
        Ok(())
    };
    assert_eq!(hosts.change(join).unwrap_err().field.as_deref(), Some("lun"));
    // All mappings of a volume have one logical block.
    let other = NewMapping { logical_block_bytes: Some(4096), ..wanted("tank/x", "c", None) };
    let problem = hosts.change(|content| content.map(other)).unwrap_err();
    assert_eq!(problem.field.as_deref(), Some("logical_block_bytes"));
}

#[test]
fn hosts_and_groups_share_their_names() {
    let temp = test_directory();
    let hosts = cluster(&temp);
    for name in ["a", "ab"] {
        let more = |content: &mut Content| {
            content.groups.push(Group { id: "new".into(), ..group(name, &[]) });
            Ok(())
        };
        assert_eq!(hosts.change(more).unwrap_err().field.as_deref(), Some("name"));
    }
    assert!(hosts.content().party("ab").unwrap().2);
    assert_eq!(hosts.content().party("id-a").unwrap().1, "a");
}

#[test]
fn limits_are_refused_in_words() {
    let temp = test_directory();
    let hosts = cluster(&temp);
    let many = |content: &mut Content| {
        for number in 0..MAPPINGS_MAX {
            let name = format!("tank/{number}");
            content.mappings.push(Mapping {
                target: None,
                id: name.clone(),
                created_unix_ms: 0,
                volume: name.clone(),
                pool: "tank".into(),
                volume_name: name,
                to: "id-a".into(),
                lun: number as u16,
                logical_block_bytes: 512,
            });
        }
        Ok(())
    };
    hosts.change(many).unwrap();
    let problem = map(&hosts, "tank/more", "c", None).unwrap_err();
    assert_eq!(problem.code, Code::Busy);
    drop(hosts);
    assert_eq!(open(&temp).content().mappings.len(), MAPPINGS_MAX, "a full file can be read again");
}

#[test]
fn a_damaged_file_is_refused_without_quoting_it() {
    let bad = r#"{"version":1,"hosts":[{"secret":"0123456789ab","name":0}],"groups":[],"mappings":[]}"#;
    let twice = r#"{"version":1,"hosts":[],"groups":[
        {"id":"1","name":"g","created_unix_ms":0,"revision":1,"hosts":[]},
        {"id":"2","name":"g","created_unix_ms":0,"revision":1,"hosts":[]}],"mappings":[]}"#;
    for text in ["{", r#"{"version":2,"hosts":[],"groups":[],"mappings":[]}"#, bad, twice] {
        let temp = test_directory();
        let dir = std::sync::Arc::new(DataDir::open(temp.path()).unwrap());
        dir.write(Content::FILE, text.as_bytes()).unwrap();
        let problem = Hosts::open(dir.clone()).err().expect("refused");
        assert_eq!(problem.code, Code::Corrupt);
        assert!(!problem.detail.contains("0123456789ab"), "{}", problem.detail);
        assert_eq!(dir.read(Content::FILE).unwrap().unwrap(), text.as_bytes());
    }
}

#[test]
fn a_volume_that_moves_stays_where_its_hosts_are_logged_in() {
    let mut content = Content { hosts: vec![host("a", &["iqn.a"])], ..Content::default() };
    content.map(wanted("tank/x", "a", Some(3))).unwrap();
    let before = content.mappings[0].target();
    content.mappings[0].follow("vault-id".into(), "vault/x".into());
    let moved = content.mappings[0].clone();
    assert_eq!((moved.target(), &*moved.pool, &*moved.volume_name), (before.clone(), "vault-id", "vault/x"));
    content.check().unwrap();
    // What the file says is what it was.
    let text = serde_json::to_string(&moved).unwrap();
    assert_eq!(serde_json::from_str::<Mapping>(&text).unwrap(), moved);
    content.mappings[0].follow("tank-id".into(), "tank/x".into());
    assert_eq!((content.mappings[0].target(), content.mappings[0].target.clone()), (before, None));
}

/// Goal: whatever a crash leaves of a move, and whichever pool comes first, no mapping of a volume that may be somewhere is dropped.
#[test]
fn a_mapping_stays_until_both_pools_of_a_move_were_seen() {
    let mut content = Content { hosts: vec![host("a", &["iqn.a"])], ..Content::default() };
    content.map(wanted("tank/x", "a", None)).unwrap();
    let moving = Moving { volume: "tank/x".into(), from: "tank".into(), to: "vault".into() };
    content.moving.push(moving.clone());
    let pools = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<HashSet<_>>();
    let here = |names: &[&str]| Here { pools: pools(names), ..Here::default() };
    let after = |here: &Here, came| {
        let mut content = content.clone();
        content.follow(here, came);
        (content.mappings.iter().map(|mapping| mapping.pool.clone()).collect::<Vec<_>>(), content.moving)
    };
    // It was over, and only the pool that the volume left is there.
    assert_eq!(after(&here(&["tank"]), Some("tank")), (vec!["tank".into()], vec![moving.clone()]));
    assert_eq!(after(&here(&["vault"]), Some("vault")).0.len(), 1, "nor the other one alone");
    assert_eq!(after(&here(&["tank", "vault"]), Some("attic")).0.len(), 1);
    // Nothing is known while one of them closes.
    assert_eq!(after(&here(&[]), Some("vault")).0.len(), 1);
    let volumes = HashMap::from([("tank/x".to_string(), ("vault".to_string(), "vault/x".to_string()))]);
    let there = Here { volumes, ..here(&["tank", "vault"]) };
    assert_eq!(after(&there, Some("vault")), (vec!["vault".into()], vec![]));
    assert_eq!(after(&there, None), (vec!["vault".into()], vec![moving.clone()]), "it still moves");
    let left = Here { left: pools(&["tank/x"]), ..here(&["tank", "vault"]) };
    assert_eq!(after(&left, Some("vault")), (vec!["tank".into()], vec![moving.clone()]));
    assert_eq!(after(&here(&["tank", "vault"]), Some("vault")), (vec![], vec![]), "it is in neither");
    let destroyed = |pool: &str| {
        let mut content = content.clone();
        content.forget_pool(pool);
        content.mappings.first().map(|mapping| mapping.pool.clone())
    };
    assert_eq!([destroyed("tank"), destroyed("vault")], ["vault", "tank"].map(|name| Some(name.into())));
    content.moving.clear();
    content.follow(&here(&["tank"]), Some("tank"));
    assert_eq!(content.mappings, vec![], "one that does not move is dropped as ever");
}
