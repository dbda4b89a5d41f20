//! Streams that break off: what came before is kept, through imports and crashes, and completed by what is sent then.

use super::*;

#[test]
fn what_broke_off_goes_on_and_nobody_sees_it_before() {
    on_pools(|pools| async move {
        let a = pools.create("tank/a", 16 * MIB).await;
        for (nth, first) in [0, 300, 900, 2000, 3500].into_iter().enumerate() {
            pools.write(&a, first, 200, nth as u32 + 1).await;
        }
        pools.snapshot("tank/a@one").await;
        let whole = pools.stream("tank/a@one", None).await;
        let cut = whole.len() / 2;
        let error = pools.receive(&whole[..cut], "vault/a", KEEP).await.expect_err("cut");
        assert!(error.message.contains(&format!("at byte {cut}")), "{error}");
        let token = pools.token("vault/a").await;
        assert!(error.remedy.contains(&token.to_string()) && token.block > 0, "{error}");
        assert!(pools.engine.volumes(Some("vault")).await.expect("listed").is_empty());
        pools.again().await;
        assert_eq!(pools.token("vault/a").await, token);
        assert!(pools.engine.volumes(Some("vault")).await.expect("listed").is_empty());
        assert_eq!(kind(pools.engine.volume("vault/a").await), Some(ErrorKind::NotFound));
        let rest = pools.resumed("tank/a@one", token).await;
        assert!(rest.len() < whole.len() - cut + 2 * MIB as usize);
        // Another stream under this name is refused, and the rest elsewhere, too.
        pools.snapshot("tank/a@two").await;
        let other = pools.stream("tank/a@two", None).await;
        assert_eq!(kind(pools.receive(&other, "vault/a", KEEP).await), Some(ErrorKind::Conflict));
        assert_eq!(kind(pools.receive(&rest, "vault/b", KEEP).await), Some(ErrorKind::Conflict));
        let wrong = SendOptions { from: None, resume: Some(token) };
        assert_eq!(kind(pools.stream_with("tank/a@two", wrong).await), Some(ErrorKind::Invalid("resume")));
        pools.receive(&rest, "vault/a", KEEP).await.expect("received");
        assert_eq!(pools.content("vault/a").await, pools.as_of("tank/a@one").await);
        // What is given up comes back.
        pools.settle().await;
        let used = pools.engine.pools().await[1].used;
        pools.receive(&other[..other.len() - 1], "vault/c", KEEP).await.expect_err("cut");
        assert!(pools.engine.pools().await[1].used >= used + 900 * 4096);
        pools.engine.reception_delete("vault/c").await.expect("deleted");
        assert_eq!(kind(pools.engine.reception_delete("vault/c").await), Some(ErrorKind::NotFound));
        pools.settle().await;
        assert!(pools.engine.pools().await[1].used <= used + 64 * 4096);
    });
}

/// A crash of the receiver at many moments: what was told to be durable is, and the rest of the stream completes it.
#[test]
fn a_receiver_that_crashes_goes_on() {
    let layouts = [LAYOUTS[2], LAYOUTS[0]];
    let disks = world(Err(96 * MIB), layouts, 65536, |pools| async move {
        let a = pools.create("tank/a", 64 * MIB).await;
        for first in (0..512).step_by(16) {
            pools.write(&a, first, 15, first as u32 + 1).await;
        }
        pools.snapshot("tank/a@zero").await;
        pools.write(&a, 100, 30, 1000).await;
        pools.discard(&a, 300, 100).await;
        pools.snapshot("tank/a@one").await;
        let whole = pools.stream("tank/a@zero", None).await;
        pools.receive(&whole, "vault/a", KEEP).await.expect("received");
    });
    for step in 0..8u64 {
        let mut random = Random::new(step);
        let images = world(Ok(disks.clone()), layouts, 65536, move |pools| async move {
            let change = pools.stream("tank/a@one", Some("@zero")).await;
            let engine = pools.engine.clone();
            let mut receiver = engine.snapshot_receive("vault/a", KEEP).await.expect("begun");
            let end = change.len() * step as usize / 7;
            receiver.push(&change[..end]).await.expect("taken");
            if step >= 6 {
                // The crash meets the end.
                drop(pools.rt.spawn(receiver.finish()));
                pools.rt.sleep(Duration::from_micros(random.below(4000))).await;
            } else if random.one_in(2) {
                receiver.finish().await.expect_err("cut");
            }
        });
        world(Ok(images), layouts, 65536, move |pools| async move {
            let receptions = pools.engine.receptions(None).await.expect("listed");
            let snapshots = pools.engine.snapshots(Some("vault")).await.expect("listed");
            let has_it = snapshots.iter().any(|snapshot| snapshot.name == "one");
            let now = pools.content("vault/a").await;
            let wanted = if has_it { "tank/a@one" } else { "tank/a@zero" };
            assert_eq!(now, pools.as_of(wanted).await, "step {step}");
            assert!(!has_it || receptions.is_empty());
            if !has_it {
                let rest = match receptions.first() {
                    Some(info) => pools.resumed("tank/a@one", info.token).await,
                    None => pools.stream("tank/a@one", Some("@zero")).await,
                };
                pools.receive(&rest, "vault/a", KEEP).await.expect("received");
            }
            assert_eq!(pools.content("vault/a").await, pools.as_of("tank/a@one").await);
            pools.settle().await;
            pools.again().await;
        });
    }
}
