//! Two pools of one name: is each told from the other, and does one get another name for good, whenever the power fails?

use crate::limits::{Pool, on_pool, spec};
use forebay_base::MIB;
use forebay_pool::{ErrorKind, Import, Layout};
use forebay_simulation::{Fate, Image};
use std::rc::Rc;
use std::time::Duration;

const READ_ONLY: Import = Import { read_only: true, force: false };

/// A second pool `tank` on disks of its own, while the first is exported.
async fn second(pool: &Rc<Pool>) -> Vec<String> {
    let disks: Vec<String> =
        (0..2).map(|_| format!("sim{}", pool.world.add_disk(Image::new(64 * MIB)))).collect();
    pool.engine.pool_export("tank").await.expect("exported");
    pool.engine.pool_create(spec(Layout::Mirror, &disks, 1)).await.expect("created");
    disks
}

#[test]
fn a_pool_gets_another_name_as_it_is_imported() {
    on_pool((Layout::Mirror, 2, 1), None, |pool| async move {
        let engine = &pool.engine;
        let disks = second(&pool).await;
        let scan = engine.pool_scan(pool.paths.clone()).await;
        let id = scan[0].id.to_string();
        // The other is imported: this one is refused by either name, and the error says how it goes.
        for name in ["tank", &id] {
            let error =
                engine.pool_import(name, pool.paths.clone(), Import::default()).await.expect_err("two");
            assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
            assert!(error.remedy.contains("--as"), "{error}");
        }
        // Its own disks say that it is there already.
        let own = engine.pool_import("tank", disks.clone(), Import::default()).await.expect_err("imported");
        assert!(own.message.contains("imported already"), "{own}");
        for (new, import, kind) in [
            ("a/b", Import::default(), ErrorKind::Invalid("new_name")),
            ("", Import::default(), ErrorKind::Invalid("new_name")),
            ("vault", READ_ONLY, ErrorKind::Invalid("new_name")),
            ("tank", Import::default(), ErrorKind::Conflict),
        ] {
            let refused = engine.pool_import_as("tank", pool.paths.clone(), import, Some(new.into())).await;
            assert_eq!(refused.err().map(|error| error.kind), Some(kind), "{new}");
        }
        let renamed = engine
            .pool_import_as("tank", pool.paths.clone(), Import::default(), Some("vault".into()))
            .await
            .expect("imported");
        assert_eq!((renamed.name.as_str(), renamed.id.to_string()), ("vault", id));
        engine.pool_export("vault").await.expect("exported");
        engine.pool_import("vault", pool.paths.clone(), Import::default()).await.expect("for good");
        engine.pool_export("vault").await.expect("exported");
        engine.pool_export("tank").await.expect("exported");
        engine
            .pool_import_as("vault", pool.paths.clone(), Import::default(), Some("tank".into()))
            .await
            .expect("back");
    });
}

/// Goal: wherever the power fails, the pool has one of its names on the disks that count, and is imported by it.
#[test]
fn the_power_may_fail_while_a_pool_gets_its_name() {
    let (mut old, mut new) = (0, 0);
    for micros in (0..100_000).step_by(2500) {
        let names = Rc::new(std::cell::RefCell::new(None));
        let seen = names.clone();
        on_pool((Layout::Mirror, 2, 1), None, move |pool| async move {
            let engine = &pool.engine;
            engine.pool_export("tank").await.expect("exported");
            let import =
                engine.pool_import_as("tank", pool.paths.clone(), Import::default(), Some("vault".into()));
            let crash = async {
                pool.rt.sleep(Duration::from_micros(micros)).await;
                pool.world.power_loss(|disk, _| if disk == 0 { Fate::Whole } else { Fate::Lost })
            };
            let (imported, images) = futures_util::future::join(import, crash).await;
            imported.expect("imported");
            engine.pool_export("vault").await.expect("exported");
            images.into_iter().enumerate().for_each(|(disk, image)| pool.world.set_image(disk, image));
            let found = engine.pool_scan(pool.paths.clone()).await;
            assert_eq!(found.len(), 1, "{found:?}");
            let name = found[0].name.clone();
            let imported = engine
                .pool_import_as(&name, pool.paths.clone(), Import::default(), Some("tank".into()))
                .await;
            imported.unwrap_or_else(|error| panic!("after {micros} µs: {error}"));
            *seen.borrow_mut() = Some(name);
        });
        match names.borrow_mut().take().expect("it ran").as_str() {
            "tank" => old += 1,
            "vault" => new += 1,
            other => panic!("{other}"),
        }
    }
    assert!(old > 0 && new > 0, "{old} had the old name, {new} the new one");
}
