//! Bookmarks: increments from moments whose snapshots are gone.

use super::*;

async fn mark(pools: &Pools, snapshot: &str) {
    let made = pools.engine.bookmark_create(snapshot, None).await.expect("bookmarked");
    assert_eq!(format!("{}/{}@{}", made.pool, made.volume, made.name), snapshot);
}

async fn names(pools: &Pools) -> Vec<String> {
    let all = pools.engine.bookmarks(None).await.expect("listed");
    all.iter().map(|mark| format!("{}/{}#{}", mark.pool, mark.volume, mark.name)).collect()
}

/// Which of them lead to snapshots that are taken from now on.
async fn usable(pools: &Pools) -> Vec<(String, bool)> {
    let all = pools.engine.bookmarks(None).await.expect("listed");
    all.into_iter().map(|mark| (mark.name, mark.usable)).collect()
}

fn from(name: &str) -> SendOptions {
    SendOptions { from: Some(name.into()), resume: None }
}

/// Goal: what changed since a snapshot can be sent when only a bookmark of it is left, after an import, and also when the stream broke off.
#[test]
fn a_bookmark_stands_for_a_snapshot_that_is_gone() {
    on_pools(|pools| async move {
        let a = pools.create("tank/a", 16 * MIB).await;
        pools.write(&a, 0, 600, 1).await;
        pools.write(&a, 2000, 600, 2).await;
        pools.write(&a, 3900, 100, 3).await;
        pools.snapshot("tank/a@one").await;
        let whole = pools.stream("tank/a@one", None).await;
        pools.receive(&whole, "vault/a", KEEP).await.expect("received");
        mark(&pools, "tank/a@one").await;
        pools.engine.snapshot_delete("tank/a@one").await.expect("deleted");
        pools.again().await;
        assert_eq!(names(&pools).await, ["tank/a#one"]);
        let a = pools.open("tank/a").await;
        // A part of a leaf, and whole leaves.
        pools.discard(&a, 5, 3).await;
        pools.discard(&a, 2000, 600).await;
        pools.write(&a, 7, 500, 4).await;
        pools.write(&a, 3000, 300, 5).await;
        pools.snapshot("tank/a@two").await;
        let change = pools.stream("tank/a@two", Some("#one")).await;
        assert!(change.len() < 805 * 4096, "{} bytes", change.len());
        pools.receive(&change[..change.len() - 9000], "vault/a", KEEP).await.expect_err("cut");
        pools.again().await;
        let rest = pools.resumed("tank/a@two", pools.token("vault/a").await).await;
        assert!(rest.len() < change.len());
        pools.receive(&rest, "vault/a", KEEP).await.expect("received");
        assert_eq!(pools.content("vault/a").await, pools.as_of("tank/a@two").await);
        let a = pools.open("tank/a").await;
        pools.write(&a, 7, 1, 6).await;
        // What arrived can be bookmarked, too, and is the same base wherever it is.
        mark(&pools, "vault/a@two").await;
        pools.engine.snapshot_delete("vault/a@one").await.expect("deleted");
        pools.snapshot("tank/a@three").await;
        let change = pools.stream("tank/a@three", Some("tank/a@two")).await;
        pools.receive(&change, "vault/a", KEEP).await.expect("received");
        let onward = pools.stream("vault/a@three", Some("vault/a#two")).await;
        assert!(onward.len() < 2 * 4096, "{} bytes", onward.len());
    });
}

/// Goal: a volume that went back to something older has again what was born before its bookmarks, so they are refused; and later ones are
/// good.
#[test]
fn a_bookmark_from_before_a_rollback_is_refused() {
    on_pools(|pools| async move {
        let a = pools.create("tank/a", 4 * MIB).await;
        pools.write(&a, 0, 40, 1).await;
        pools.snapshot("tank/a@old").await;
        mark(&pools, "tank/a@old").await;
        pools.write(&a, 0, 20, 2).await;
        pools.snapshot("tank/a@new").await;
        mark(&pools, "tank/a@new").await;
        pools.snapshot("tank/a@same").await;
        pools.stream("tank/a@same", Some("#new")).await;
        pools.engine.volume_rollback("tank/a@old").await.expect("rolled back");
        // It has nothing from before that moment that it had not then.
        assert_eq!(usable(&pools).await, [("old".into(), true), ("new".into(), false)]);
        pools.snapshot("tank/a@back").await;
        mark(&pools, "tank/a@back").await;
        for _ in 0..2 {
            let refused =
                pools.stream_with("tank/a@back", from("#new")).await.expect_err("it has what is older");
            assert_eq!(refused.kind, ErrorKind::Invalid("from"), "{refused}");
            pools.again().await;
        }
        // Between snapshots from before nothing went back.
        pools.stream("tank/a@same", Some("#new")).await;
        let back = pools.stream("tank/a@back", Some("#old")).await;
        assert!(back.len() < 2 * 4096, "{} bytes", back.len());
        // Nor is it the base of what is older, or of itself, or of another volume.
        pools.engine.volume_clone("tank/a@new", "c").await.expect("cloned");
        pools.snapshot("tank/c@one").await;
        for (snapshot, base) in [
            ("tank/a@old", "#new"),
            ("tank/a@new", "#new"),
            ("tank/c@one", "tank/a#new"),
            ("tank/a@same", "#back"),
        ] {
            let refused = pools.stream_with(snapshot, from(base)).await;
            assert_eq!(kind(refused), Some(ErrorKind::Invalid("from")), "{base} to {snapshot}");
        }
        let a = pools.open("tank/a").await;
        pools.write(&a, 30, 5, 3).await;
        pools.snapshot("tank/a@next").await;
        let whole = pools.stream("tank/a@back", None).await;
        pools.receive(&whole, "vault/a", KEEP).await.expect("received");
        let change = pools.stream("tank/a@next", Some("#back")).await;
        pools.receive(&change, "vault/a", KEEP).await.expect("received");
        assert_eq!(pools.content("vault/a").await, pools.as_of("tank/a@next").await);
    });
}

/// Goal: a volume that takes what arrives instead of what was written to it goes back as well.
#[test]
fn a_bookmark_from_before_changes_were_given_up_is_refused() {
    on_pools(|pools| async move {
        let a = pools.create("tank/a", 4 * MIB).await;
        pools.write(&a, 0, 40, 1).await;
        pools.snapshot("tank/a@one").await;
        pools.write(&a, 0, 1, 2).await;
        pools.snapshot("tank/a@two").await;
        let whole = pools.stream("tank/a@one", None).await;
        pools.receive(&whole, "vault/a", KEEP).await.expect("received");
        let there = pools.open("vault/a").await;
        pools.write(&there, 20, 5, 9).await;
        pools.snapshot("vault/a@own").await;
        mark(&pools, "vault/a@own").await;
        let change = pools.stream("tank/a@two", Some("@one")).await;
        pools.receive(&change, "vault/a", DISCARD).await.expect("received");
        let refused = pools.stream_with("vault/a@two", from("#own")).await;
        assert_eq!(kind(refused), Some(ErrorKind::Invalid("from")));
        // What arrived is a base.
        mark(&pools, "vault/a@two").await;
        pools.snapshot("vault/a@three").await;
        pools.stream("vault/a@three", Some("#two")).await;
    });
}

/// Goal: snapshots that the receiver takes by itself, between what it receives, cost it no bookmark.
#[test]
fn snapshots_of_the_receivers_own_leave_bookmarks_usable() {
    on_pools(|pools| async move {
        let a = pools.create("tank/a", 4 * MIB).await;
        pools.write(&a, 0, 40, 1).await;
        pools.snapshot("tank/a@0").await;
        let whole = pools.stream("tank/a@0", None).await;
        pools.receive(&whole, "vault/a", KEEP).await.expect("received");
        mark(&pools, "vault/a@0").await;
        for day in 1..5 {
            pools.snapshot(&format!("vault/a@own{day}")).await;
            mark(&pools, &format!("vault/a@own{day}")).await;
            pools.write(&a, day, 2, 10 + day as u32).await;
            pools.snapshot(&format!("tank/a@{day}")).await;
            let change = pools.stream(&format!("tank/a@{day}"), Some(&format!("@{}", day - 1))).await;
            pools.receive(&change, "vault/a", KEEP).await.expect("received");
            mark(&pools, &format!("vault/a@{day}")).await;
        }
        assert!(usable(&pools).await.iter().all(|(_, usable)| *usable));
        for base in ["0", "own1", "1", "own3", "4"] {
            pools.snapshot(&format!("vault/a@after{base}")).await;
            let change = pools.stream(&format!("vault/a@after{base}"), Some(&format!("#{base}"))).await;
            pools.receive(&change, "vault/b", KEEP).await.expect("received");
            assert_eq!(pools.content("vault/b").await, pools.content("vault/a").await, "from {base}");
            pools.engine.volume_delete("vault/b", PURGE).await.expect("deleted");
        }
    });
}

/// What a volume and its replica go through, drawn; then every snapshot is sent from every bookmark that is taken for a base of it, and must come
/// out as it is. How many did, and how many bookmarks were refused.
fn led_and_refused(seed: u64) -> (u64, u64) {
    let counted = Rc::new(Cell::new((0, 0)));
    let told = counted.clone();
    world(Err(64 * MIB), [LAYOUTS[0], LAYOUTS[2]], 4096, move |pools| async move {
        let mut random = Random::new(seed);
        let a = pools.create("tank/a", MIB).await;
        pools.write(&a, 0, 60, 1).await;
        pools.snapshot("tank/a@s0").await;
        let whole = pools.stream("tank/a@s0", None).await;
        pools.receive(&whole, "vault/a", KEEP).await.expect("received");
        // Those of the source that have arrived, in the order in which they did.
        let (mut sent, mut number) = (vec!["s0".to_string()], 0);
        for _ in 0..22 {
            number += 1;
            let side = NAMES[random.below(2) as usize];
            let volume = pools.open(&format!("{side}/a")).await;
            let own = format!("{side}/a@{}{number}", &side[..1]);
            match random.below(7) {
                0 | 1 => {
                    let (first, count) = (random.below(200), 1 + random.below(50));
                    match random.one_in(3) {
                        true => pools.discard(&volume, first, count).await,
                        false => pools.write(&volume, first, count, 100 + number).await,
                    }
                }
                2 => pools.snapshot(&own).await,
                3 => {
                    let all = pools.engine.snapshots(Some(side)).await.expect("listed");
                    let back = &all[random.below(all.len() as u64) as usize];
                    let name = format!("{side}/{}@{}", back.volume, back.name);
                    pools.engine.volume_rollback(&name).await.expect("rolled back");
                }
                _ => {
                    let (name, base) = (format!("s{number}"), sent.last().expect("the first").clone());
                    pools.snapshot(&format!("tank/a@{name}")).await;
                    let change = pools.stream(&format!("tank/a@{name}"), Some(&format!("@{base}"))).await;
                    let mut receiver =
                        pools.engine.snapshot_receive("vault/a", DISCARD).await.expect("begun");
                    let half = change.len() / 2;
                    receiver.push(&change[..half]).await.expect("taken");
                    if random.one_in(2) {
                        pools.snapshot(&format!("vault/a@m{number}")).await;
                    }
                    receiver.push(&change[half..]).await.expect("taken");
                    receiver.finish().await.expect("received");
                    sent.push(name);
                }
            }
        }
        for side in NAMES {
            let all = pools.engine.snapshots(Some(side)).await.expect("listed");
            let name = |info: &SnapshotInfo| format!("{side}/a@{}", info.name);
            for info in &all {
                mark(&pools, &name(info)).await;
            }
            for (to, base) in all.iter().flat_map(|to| all.iter().map(move |base| (to, base))) {
                let (led, refused) = told.get();
                match pools.stream_with(&name(to), from(&format!("#{}", base.name))).await {
                    Ok(change) => {
                        let copy = format!("{side}/copy");
                        pools.receive(&change, &copy, KEEP).await.expect("received");
                        let (is, was) = (pools.content(&copy).await, pools.as_of(&name(to)).await);
                        assert_eq!(is, was, "seed {seed}: {} from #{}", name(to), base.name);
                        pools.engine.volume_delete(&copy, PURGE).await.expect("deleted");
                        told.set((led + 1, refused));
                    }
                    Err(error) => {
                        assert_eq!(error.kind, ErrorKind::Invalid("from"), "{error}");
                        let is_broken = error.message.contains("went back");
                        told.set((led, refused + u64::from(is_broken)));
                    }
                }
            }
        }
        pools.settle().await;
        pools.again().await;
    });
    counted.get()
}

#[test]
fn what_a_bookmark_leads_to_comes_out_as_it_is() {
    let all = seeds(12).map(led_and_refused);
    let (led, refused) = all.fold((0, 0), |(led, refused), (more, also)| (led + more, refused + also));
    assert!(led >= 200 && refused >= 60, "{led} came out right, {refused} were refused");
}

/// Goal: what is received was born before it arrives. A bookmark that was made meanwhile, of the volume as it still was, does not know it.
#[test]
fn a_bookmark_made_while_something_came_in_is_refused() {
    for keeps_snapshot in [false, true] {
        on_pools(|pools| async move {
            let a = pools.create("tank/a", 4 * MIB).await;
            pools.write(&a, 0, 40, 1).await;
            pools.snapshot("tank/a@one").await;
            pools.write(&a, 0, 20, 2).await;
            pools.snapshot("tank/a@two").await;
            let whole = pools.stream("tank/a@one", None).await;
            pools.receive(&whole, "vault/a", KEEP).await.expect("received");
            mark(&pools, "vault/a@one").await;
            let change = pools.stream("tank/a@two", Some("@one")).await;
            let mut receiver = pools.engine.snapshot_receive("vault/a", KEEP).await.expect("begun");
            receiver.push(&change).await.expect("taken");
            pools.snapshot("vault/a@same").await;
            mark(&pools, "vault/a@same").await;
            if !keeps_snapshot {
                pools.engine.snapshot_delete("vault/a@same").await.expect("deleted");
                pools.settle().await;
            }
            receiver.finish().await.expect("received");
            let refused = pools.stream_with("vault/a@two", from("#same")).await;
            assert_eq!(kind(refused), Some(ErrorKind::Invalid("from")));
            pools.snapshot("vault/a@after").await;
            mark(&pools, "vault/a@after").await;
            pools.snapshot("vault/a@last").await;
            pools.stream("vault/a@last", Some("#after")).await;
        });
    }
}

#[test]
fn bookmarks_have_names_and_go_with_their_volume() {
    on_pools(|pools| async move {
        let engine = pools.engine.clone();
        let a = pools.create("tank/a", 4 * MIB).await;
        pools.write(&a, 0, 40, 1).await;
        pools.snapshot("tank/a@one").await;
        mark(&pools, "tank/a@one").await;
        assert_eq!(kind(engine.bookmark_create("tank/a@one", None).await), Some(ErrorKind::Conflict));
        assert_eq!(kind(engine.bookmark_create("tank/a@no", None).await), Some(ErrorKind::NotFound));
        let bad = engine.bookmark_create("tank/a@one", Some("x#y".into())).await;
        assert_eq!(kind(bad), Some(ErrorKind::Invalid("name")));
        pools.snapshot("tank/a@two").await;
        engine.bookmark_create("tank/a@two", Some("second".into())).await.expect("bookmarked");
        assert_eq!(names(&pools).await, ["tank/a#one", "tank/a#second"]);
        let told = engine.bookmark("tank/a#second").await.expect("there");
        assert_eq!(
            (told.size, told.origin),
            (4 * MIB, engine.snapshot("tank/a@two").await.expect("there").id)
        );
        engine.bookmark_delete("tank/a#one").await.expect("deleted");
        assert_eq!(kind(engine.bookmark_delete("tank/a#one").await), Some(ErrorKind::NotFound));
        for name in ["tank/a#no", "tank/no#one", "tank/a", "a#one", "a#second", "nowhere/a#one"] {
            assert_eq!(kind(engine.bookmark(name).await), Some(ErrorKind::NotFound), "{name}");
        }
        // Its id and its volume's are names of it, too.
        let volume = engine.volume("tank/a").await.expect("there").id;
        for name in [format!("{volume}#second"), told.id.to_string(), format!("tank/{}", told.id)] {
            assert_eq!(engine.bookmark(&name).await.expect("there"), told, "{name}");
        }
        // What would be refused is known before; nothing is made.
        let trial = engine.bookmark_create_check("tank/a@two", Some("third".into())).await.expect("possible");
        assert_eq!(
            (trial.name.as_str(), kind(engine.bookmark("tank/a#third").await)),
            ("third", Some(ErrorKind::NotFound))
        );
        let trial = engine.bookmark_create_check("tank/a@two", Some("second".into())).await;
        assert_eq!(kind(trial), Some(ErrorKind::Conflict));
        // A name without its pool could be of any, and what has no data is no snapshot.
        for name in ["a@two", "tank/a#second", "tank/a"] {
            assert_eq!(kind(engine.snapshot(name).await), Some(ErrorKind::NotFound), "{name}");
        }
        pools.create("vault/b", 4 * MIB).await;
        let elsewhere =
            pools.stream_with("tank/a@two", from("vault/b#one")).await.expect_err("in another pool");
        assert!(elsewhere.message.contains("in another pool"), "{elsewhere}");
        for name in ["tank/a@one", "tank/a@two"] {
            engine.snapshot_delete(name).await.expect("deleted");
        }
        let staying = engine.volume_move_check("tank/a", "vault").await.expect_err("it has a bookmark");
        assert!(staying.message.contains("1 bookmark"), "{staying}");
        pools.again().await;
        assert_eq!(names(&pools).await, ["tank/a#second"]);
        engine.volume_delete("tank/a", PURGE).await.expect("deleted");
        pools.settle().await;
        assert!(names(&pools).await.is_empty());
        // Nothing of it is left for another volume of this name.
        pools.create("tank/a", 4 * MIB).await;
        pools.again().await;
        assert!(names(&pools).await.is_empty());
    });
}
