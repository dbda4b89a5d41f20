//! Do volumes get the mappings that their projects say, those and no others, under numbers that stay?
//!
//! Names serve as UUIDs, except that a project's is its name's last part.

use super::*;
use crate::hosts::{Group, Here, Host, Moving, NewMapping};
use crate::store::Kept;
use forebay_base::Random;
use std::collections::BTreeSet;

fn host(name: &str) -> Host {
    Host {
        id: name.into(),
        name: name.into(),
        created_unix_ms: 0,
        revision: 1,
        came_with: None,
        initiators: vec![format!("iqn.{name}")],
        chap: None,
        mutual: None,
        max_iops: None,
        max_bytes_per_second: None,
    }
}

fn group(name: &str, hosts: &[&str]) -> Group {
    let hosts = hosts.iter().map(|name| name.to_string()).collect();
    Group { id: name.into(), name: name.into(), created_unix_ms: 0, revision: 1, came_with: None, hosts }
}

/// Three hosts, the first two of them in a group, and an empty group.
fn cluster() -> Content {
    let groups = vec![group("ab", &["a", "b"]), group("none", &[])];
    Content { hosts: ["a", "b", "c"].map(host).into(), groups, ..Content::default() }
}

fn said(project: &str, hosts: &[&str]) -> ProjectHosts {
    ProjectHosts {
        pool: "tank".into(),
        project: project.into(),
        name: format!("tank/{project}"),
        hosts: hosts.iter().map(|name| name.to_string()).collect(),
    }
}

/// Of `PROJECT/NAME` or `NAME`.
fn heir(name: &str) -> Heir {
    Heir {
        id: name.into(),
        pool: "tank".into(),
        project: name.split_once('/').map(|(project, _)| project.into()),
        name: format!("tank/{name}"),
    }
}

fn heirs(names: &[&str]) -> Vec<Heir> {
    names.iter().map(|name| heir(name)).collect()
}

/// `VOLUME HOST LUN`, sorted.
fn mapped(content: &Content) -> Vec<String> {
    let in_words = |one: &Mapping| format!("{} {} {}", one.volume, one.to, one.lun);
    content.mappings.iter().map(in_words).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Has a project say this and its volumes follow; what is mapped then.
fn follow(content: &mut Content, project: &str, hosts: &[&str], volumes: &[&str]) -> Vec<String> {
    content.say(said(project, hosts));
    assert_eq!(content.inherit(&heirs(volumes), 1), []);
    content.check().expect("what a project says is possible");
    let once = content.clone();
    assert_eq!(content.inherit(&heirs(volumes), 2), []);
    assert_eq!(*content, once, "nothing is to be done any more");
    mapped(content)
}

fn map(content: &mut Content, volume: &str, host: &str, lun: Option<u16>) {
    let name = format!("tank/{volume}");
    let wanted = NewMapping {
        volume,
        pool: "tank",
        volume_name: &name,
        host,
        lun,
        logical_block_bytes: None,
        now_unix_ms: 0,
    };
    content.map(wanted).expect("possible");
}

#[test]
fn volumes_are_mapped_in_the_order_of_their_names_and_keep_their_numbers() {
    let mut content = cluster();
    let volumes = ["w/y", "w/x", "alone", "v/x"];
    assert_eq!(follow(&mut content, "w", &["a"], &volumes), ["w/x a 0", "w/y a 1"]);
    // One that comes gets what is free, and the others stay where they are.
    let more = ["w/y", "w/x", "w/a"];
    assert_eq!(follow(&mut content, "w", &["a"], &more), ["w/a a 2", "w/x a 0", "w/y a 1"]);
    assert_eq!(
        follow(&mut content, "w", &["c", "a"], &more),
        ["w/a a 2", "w/a c 0", "w/x a 0", "w/x c 1", "w/y a 1", "w/y c 2"]
    );
    assert_eq!(follow(&mut content, "w", &["c"], &more), ["w/a c 0", "w/x c 1", "w/y c 2"]);
    assert_eq!(follow(&mut content, "v", &["none"], &volumes).len(), 4, "a group without members counts");
    assert_eq!(follow(&mut content, "w", &[], &more), ["v/x none 0"]);
    assert_eq!(content.projects.len(), 1, "a project that says nothing has no entry");
}

/// Goal: a host that goes on using a number never reaches another volume with it, also where hosts had different ones.
#[test]
fn a_number_is_not_another_volume_s_with_the_same_change() {
    let mut content = cluster();
    map(&mut content, "own", "b", Some(0));
    let volumes = ["w/x", "w/y", "w/z"];
    let before = follow(&mut content, "w", &["a", "b"], &volumes);
    let (of_a, of_b) = (["w/x a 0", "w/y a 1", "w/z a 2"], ["w/x b 1", "w/y b 2", "w/z b 3"]);
    assert!(of_a.iter().chain(&of_b).all(|one| before.contains(&one.to_string())), "{before:?}");
    // Each has to have one number for both; none of those that another had.
    let now = follow(&mut content, "w", &["ab"], &volumes);
    assert_eq!(now, ["own b 0", "w/x ab 4", "w/y ab 5", "w/z ab 3"]);
}

#[test]
fn others_are_left_alone() {
    let mut content = cluster();
    // Volumes of the project with hosts of their own, and such as are not here.
    for (volume, lun) in [("w/own", 1), ("w/gone", 2), ("other", 0)] {
        map(&mut content, volume, "a", Some(lun));
    }
    let others = mapped(&content);
    let now = follow(&mut content, "w", &["a", "c"], &["w/x"]);
    assert_eq!(now, ["other a 0", "w/gone a 2", "w/own a 1", "w/x a 3", "w/x c 0"]);
    assert_eq!(follow(&mut content, "w", &[], &["w/x"]), others);
    // One that follows again keeps what the project says as well.
    map(&mut content, "w/own", "c", None);
    let now = follow(&mut content, "w", &["c", "b"], &["w/own"]);
    assert_eq!(now, ["other a 0", "w/gone a 2", "w/own b 0", "w/own c 0"]);
    // While it moves it stays as it was, whatever it inherits.
    let moving = Moving { volume: "w/own".into(), from: "tank".into(), to: "vault".into() };
    content.moving.push(moving);
    assert_eq!(follow(&mut content, "w", &["a"], &["w/own"]), now);
}

#[test]
fn a_host_that_goes_on_seeing_a_volume_sees_it_where_it_was() {
    let mut content = cluster();
    let volumes = ["w/x", "w/y", "w/z"];
    for (volume, host, lun) in [("w/x", "a", 7), ("w/y", "a", 5), ("w/z", "a", 0), ("other", "b", 7)] {
        map(&mut content, volume, host, Some(lun));
    }
    content.mappings[1].target = Some("iqn.attic".into());
    content.mappings[1].logical_block_bytes = 4096;
    // Seven is not free at b. Neither what gets another number nor what is new takes one that is to stay.
    let now = follow(&mut content, "w", &["ab"], &["w/a", "w/x", "w/y", "w/z"]);
    assert_eq!(now, ["other b 7", "w/a ab 1", "w/x ab 2", "w/y ab 5", "w/z ab 0"]);
    let y = content.mappings.iter().find(|mapping| mapping.volume == "w/y").expect("mapped");
    assert_eq!((&*y.target(), y.logical_block_bytes), ("iqn.attic", 4096));
    let now = follow(&mut content, "w", &["b", "a"], &volumes);
    let split = ["w/x a 2", "w/x b 2", "w/y a 5", "w/y b 5", "w/z a 0", "w/z b 0"];
    assert_eq!(now, [&["other b 7", "w/a ab 1"], &split[..]].concat());
    // Another host begins at the pool's target.
    follow(&mut content, "w", &["c"], &volumes);
    let y = content.mappings.iter().find(|mapping| mapping.volume == "w/y").expect("mapped");
    assert_eq!((y.target.clone(), y.logical_block_bytes), (None, 4096));
}

#[test]
fn what_is_beyond_the_limits_is_left_out_and_told_once() {
    let mut content = cluster();
    for number in 0..MAPPINGS_MAX - 1 {
        map(&mut content, &format!("v{number}"), "c", Some(number as u16));
    }
    content.say(said("w", &["a"]));
    let volumes = heirs(&["w/x", "w/y", "w/z"]);
    let refused = content.inherit(&volumes, 1);
    content.check().expect("the limit is kept");
    let names = |refused: &[Refused]| refused.iter().map(|one| one.volume.clone()).collect::<Vec<_>>();
    assert_eq!(names(&refused), ["tank/w/y", "tank/w/z"]);
    assert!(refused[0].problem.detail.contains("4096 mappings"), "{refused:?}");
    assert_eq!(refused[0].problem.object.as_deref(), Some("tank/w/y"));
    let problem = content.clone().inherit_wholly(&volumes, 1).unwrap_err();
    assert!(problem.detail.starts_with("it cannot be mapped to a: there are 4096"), "{}", problem.detail);

    let refusals = Refusals::default();
    assert_eq!(refusals.news(refused.clone()).len(), 2);
    assert_eq!(refusals.news(refused.clone()), []);
    assert_eq!(refusals.news(refused[1..].to_vec()), []);
    assert_eq!(names(&refusals.news(refused)), ["tank/w/y"], "it is refused again");

    // Where there is room again, they are mapped.
    content.mappings.retain(|mapping| mapping.to != "c");
    assert_eq!(content.inherit(&volumes, 1), []);
    assert_eq!(mapped(&content), ["w/x a 0", "w/y a 1", "w/z a 2"]);

    // What hosts see, all together.
    let hosts: Vec<String> = (0..1000).map(|number| format!("h{number}")).collect();
    let mut content = Content { hosts: hosts.iter().map(|name| host(name)).collect(), ..Content::default() };
    content.groups.push(group("all", &hosts.iter().map(String::as_str).collect::<Vec<_>>()));
    content.say(said("w", &["all"]));
    content.say(said("x", &["h0"]));
    let volumes: Vec<Heir> = (10..76).map(|number| heir(&format!("w/{number}"))).collect();
    let refused = content.inherit(&[&volumes[..], &heirs(&["x/a"])].concat(), 1);
    content.check().expect("the limit is kept");
    assert_eq!(names(&refused), ["tank/w/75"]);
    assert_eq!(content.mappings.len(), 66, "one that fits is mapped");
}

#[test]
fn a_project_names_what_is_there_and_no_host_twice() {
    let check = |hosts: &[&str]| {
        let content = Content { projects: vec![said("w", hosts)], ..cluster() };
        content.check().map_err(|problem| {
            assert_eq!(
                (problem.object.as_deref(), problem.field.as_deref()),
                (Some("tank/w"), Some("hosts"))
            );
            problem.detail
        })
    };
    assert_eq!(check(&["ab", "c", "none"]), Ok(()));
    assert_eq!(check(&["a", "b"]), Ok(()));
    assert_eq!(check(&["c", "c"]), Err("it names c twice".into()));
    assert_eq!(check(&["none", "none"]), Err("it names none twice".into()));
    assert_eq!(check(&["a", "ab"]), Err("it names host a twice: through a and through ab".into()));
    assert!(check(&["d"]).unwrap_err().contains("not a host"));
    let many = (0..NAMED_MAX).map(|number| said(&number.to_string(), &["a"]));
    let mut full = Content { projects: many.collect(), ..cluster() };
    full.check().unwrap();
    full.say(said("w", &["a"]));
    assert!(full.check().unwrap_err().detail.contains("4096 hosts named"));
    // Nor does it after a change of a group.
    let mut content = Content { projects: vec![said("w", &["ab", "c"])], ..cluster() };
    content.group_mut("ab").unwrap().hosts.push("c".into());
    assert_eq!(content.check().unwrap_err().detail, "it names host c twice: through ab and through c");
}

#[test]
fn entries_go_with_what_they_are_about() {
    let mut content = cluster();
    let elsewhere = ProjectHosts { pool: "vault".into(), ..said("y", &["c"]) };
    content.projects = vec![said("w", &["ab", "c"]), said("x", &["c"]), elsewhere];
    let named = |content: &Content| {
        content
            .projects
            .iter()
            .map(|entry| format!("{} {:?}", entry.project, entry.hosts))
            .collect::<Vec<_>>()
    };
    assert_eq!(content.projects_naming("c"), ["tank/w", "tank/x", "tank/y"]);
    assert_eq!(content.projects_naming("ab"), ["tank/w"]);
    let mut without = content.clone();
    without.unsay("c");
    assert_eq!(named(&without), [r#"w ["ab"]"#]);
    let mut destroyed = content.clone();
    destroyed.forget_pool("tank");
    assert_eq!(named(&destroyed), [r#"y ["c"]"#]);
    let mut unknown = content.clone();
    unknown.follow(&Here::default(), Some("tank"));
    assert_eq!(unknown, content);
    let here = Here { projects: Some([("x".to_string(), "tank/x".to_string())].into()), ..Here::default() };
    content.follow(&here, Some("tank"));
    assert_eq!(named(&content), [r#"x ["c"]"#, r#"y ["c"]"#]);
    // Who says nothing has nothing in the file.
    let text = serde_json::to_string(&cluster()).unwrap();
    assert!(!text.contains("projects"), "{text}");
    assert_eq!(serde_json::from_str::<Content>(&text).unwrap(), cluster());
    let text = serde_json::to_string(&content).unwrap();
    assert_eq!(serde_json::from_str::<Content>(&text).unwrap(), content);
}

#[test]
fn what_hosts_gain_and_lose_is_told_in_words() {
    let mut content = cluster();
    let volumes = ["w/x", "w/y"];
    let mut told = |hosts: &[&str], volumes: &[&str]| {
        let before = content.clone();
        follow(&mut content, "w", hosts, volumes);
        differences(&before, &content).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(told(&["a"], &["w/x"]), ["a gains tank/w/x as LUN 0"]);
    assert_eq!(told(&["a"], &["w/x"]), Vec::<String>::new());
    assert_eq!(told(&["c"], &["w/x"]), ["a loses tank/w/x (LUN 0)", "c gains tank/w/x as LUN 0"]);
    assert_eq!(told(&["ab"], &volumes), ["a, b gain 2 volumes", "c loses tank/w/x (LUN 0)"]);
    assert_eq!(told(&["a"], &volumes), ["b loses 2 volumes"], "a sees them where they were");
    assert_eq!(told(&["none"], &volumes), ["a loses 2 volumes"]);
    let before = content.clone();
    content.mappings.clear();
    for (lun, host) in (3..).zip(["a", "c"]) {
        map(&mut content, "w/x", host, Some(lun));
    }
    let with_c = content.clone();
    assert_eq!(
        differences(&before, &content).iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["a gains tank/w/x as LUN 3", "c gains tank/w/x as LUN 4"]
    );
    content.mappings[0].lun = 9;
    content.mappings[1].volume = "w/y".into();
    content.mappings[1].volume_name = "tank/w/y".into();
    assert_eq!(
        differences(&with_c, &content).iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["a sees tank/w/x as LUN 9 from now on", "c gains tank/w/y as LUN 4; loses tank/w/x (LUN 4)"]
    );
}

/// Goal: whatever projects say one after the other, and whoever maps volumes of their own between, all invariants hold, every heir is
/// mapped to whom its project says, and no mapping that stays gets another number.
#[test]
fn after_any_changes_what_projects_say_is_what_is_mapped() {
    let parties = ["a", "b", "c", "ab", "none"];
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut content = cluster();
        for step in 0..30 {
            let project = ["v", "w"][random.below(2) as usize];
            let mut hosts: Vec<&str> = parties.into_iter().filter(|_| random.one_in(3)).collect();
            if hosts.contains(&"ab") {
                hosts.retain(|name| !["a", "b"].contains(name));
            }
            content.say(said(project, &hosts));
            let own = format!("own{}", random.below(6));
            content.mappings.retain(|mapping| mapping.volume != own);
            if random.one_in(2) {
                map(&mut content, &own, parties[random.below(5) as usize], None);
            }
            let volumes: Vec<Heir> = (0..random.below(8))
                .map(|_| heir(&format!("{}/{}", ["v", "w"][random.below(2) as usize], random.below(9))))
                .collect::<Vec<_>>();
            let mut volumes = volumes;
            volumes.sort_by(|a, b| a.id.cmp(&b.id));
            volumes.dedup();
            let before = content.clone();
            assert_eq!(content.inherit(&volumes, step), []);
            content.check().unwrap_or_else(|problem| panic!("seed {seed}, step {step}: {}", problem.detail));
            let to = |content: &Content, volume: &str| -> BTreeSet<String> {
                let own = content.mappings.iter().filter(|mapping| mapping.volume == volume);
                own.map(|mapping| mapping.to.clone()).collect()
            };
            for heir in &volumes {
                let said = content.said(heir.project.as_deref().expect("in a project"));
                assert_eq!(
                    to(&content, &heir.id),
                    said.iter().cloned().collect(),
                    "seed {seed}, step {step}"
                );
            }
            let (were, are) = (before.views(), content.views());
            for (host, were) in were {
                let is = are.get(host).map_or(&[][..], Vec::as_slice);
                let now =
                    |was: &Mapping| is.iter().find(|now| (now.target(), now.lun) == (was.target(), was.lun));
                let is_another = |was: &&&Mapping| now(was).is_some_and(|now| now.volume != was.volume);
                let wrong = were.iter().find(is_another);
                assert_eq!(wrong, None, "seed {seed}, step {step}: a disk of {host} is another at once");
            }
            for mapping in &before.mappings {
                let is_heirs = volumes.iter().any(|heir| heir.id == mapping.volume);
                let now = content.mappings.iter().find(|now| now.id == mapping.id);
                assert!(now == Some(mapping) || (now.is_none() && is_heirs), "seed {seed}, step {step}");
            }
        }
    }
}
