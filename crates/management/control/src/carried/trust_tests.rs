//! Whom a registry may speak for: hosts that are here already, other pools' volumes and targets.

use super::*;

/// Goal: what was changed elsewhere comes back with a pool that was here before, and only with such a one.
#[test]
fn what_was_changed_elsewhere_comes_back_with_a_pool_that_was_here() {
    let rotated = Some(Credentials { user: "u".into(), secret: "another-secret".into() });
    let newer = Host { revision: 9, chap: rotated.clone(), ..host(0, "a", &[&iqn("a"), &iqn("a2")]) };
    let members = Group { revision: 9, ..group(0, "bc", &[1]) };
    let key = |kind: &str, number| format!("{kind}/{}", id(number));
    let items = with(&[(key("host", HOST_ID), value(&newer)), (key("group", GROUP_ID), value(&members))]);
    for is_known in [false, true] {
        let mut here = full();
        here.revisions.clear();
        if is_known {
            here.revisions.insert(id(POOL), Revision { number: 3, is_own: true, ..Revision::default() });
        }
        let taken = take_into(&mut here, &items);
        let (told, left) =
            (taken.in_words().unwrap_or_default(), taken.left_out_in_words().unwrap_or_default());
        let now = here.host("a").expect("there");
        assert_eq!(now.chap == rotated && now.initiators.len() == 2, is_known);
        assert_eq!(here.group("bc").expect("there").hosts.len() == 1, is_known);
        assert_eq!(told.contains("changed: host a, host group bc"), is_known, "{told}");
        assert_eq!(left.contains("host a") && left.contains("host group bc"), !is_known, "{left}");
        // An older one changes nothing.
        let older = Host { revision: 2, ..newer.clone() };
        let before = here.host("a").expect("there").clone();
        take_into(&mut here, &with(&[(key("host", HOST_ID), value(&older))]));
        assert_eq!(*here.host("a").expect("there"), before);
    }
}

/// Goal: a change of levels, of which every pool has a copy, makes no pool this machine's own; a change of the pool itself does.
#[test]
fn only_a_change_of_the_pool_makes_it_this_machines_own() {
    for (change, is_own) in [(Uncounted::OfLevels, false), (Uncounted::OfPool, true)] {
        let mut here = Content::default();
        here.note_change(&id(POOL), change);
        let revision = &here.revisions[&id(POOL)];
        assert_eq!((revision.number, revision.is_own), (1, is_own), "{change:?}");
        here.note_change(&id(POOL), Uncounted::OfLevels);
        let revision = &here.revisions[&id(POOL)];
        assert_eq!((revision.number, revision.is_own), (2, is_own), "what is own stays so");
    }
}

/// Goal: a host that only disks have spoken for gets no other pool's volumes, unless that pool says the same of it; and nor does one with less proof.
#[test]
fn hosts_that_came_with_another_pool_are_not_trusted() {
    let evil =
        Host { chap: None, came_with: Some(id(POOL + 7)), ..host(40, "evil", &[&iqn("a"), &iqn("evil")]) };
    let cases = [
        ("without proof", evil.clone(), false),
        ("with one more initiator", Host { chap: host(0, "a", &[]).chap, ..evil.clone() }, false),
        ("the same", Host { chap: host(0, "a", &[]).chap, initiators: vec![iqn("a")], ..evil.clone() }, true),
        ("made here, without proof", Host { came_with: None, ..evil.clone() }, false),
        ("made here", Host { came_with: None, chap: host(0, "a", &[]).chap, ..evil }, true),
    ];
    for (what, known, is_trusted) in cases {
        let mut here = Content { hosts: vec![known.clone()], ..Content::default() };
        let taken = take_into(&mut here, &with(&[]));
        assert_eq!(here.mappings.iter().any(|mapping| mapping.to == known.id), is_trusted, "{what}");
        assert_eq!(taken.left_out_in_words().is_some(), !is_trusted, "{what}");
        assert_eq!(*here.host("evil").expect("there"), known, "{what}");
    }
}

/// Goal: a pool shows its volumes at no other pool's target, nor takes mappings of a volume that another pool has.
#[test]
fn a_pool_takes_nothing_from_another() {
    let mut strange = full();
    strange.mappings[0].target = Some("iqn.2026-01.io.forebay:other".into());
    let items = items_of(&strange, &levels(&[]), &[], &id(POOL));
    let target = items.values().next().map(|_| strange.mappings[0].target.clone().expect("set"));
    let mut here = Content::default();
    let pool_id = id(POOL);
    let pool = Pool {
        targets: target.into_iter().collect(),
        elsewhere: HashSet::from([id(VOLUME + 1)]),
        ..tank(&pool_id)
    };
    let mine = Mapping { pool: id(POOL + 1), ..mapping(90, 1, id(HOST_ID), 0) };
    here.hosts = full().hosts;
    here.mappings.push(mine.clone());
    let taken = take(&mut here, &items, Some(&origin(OTHER, 1)), &pool, true, 1000);
    assert!(here.mappings.contains(&mine), "the other pool's stays");
    assert!(here.mappings.iter().all(|mapping| mapping.pool != id(POOL) || mapping.target.is_none()));
    assert!(!here.mappings.iter().any(|one| one.pool == id(POOL) && one.volume == id(VOLUME + 1)));
    assert!(taken.left_out_in_words().expect("told").contains("same UUID"));
}
