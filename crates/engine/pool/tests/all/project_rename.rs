//! Does a project get another name with all that is in it, whatever happens meanwhile?

use crate::projects::{KEEP, PLAIN, Pool, kind, on_pools};
use forebay_base::planted::{Bug, plant, times_met};
use forebay_base::{Id, MIB};
use forebay_pool::{ErrorKind, ProjectChange, ProjectProperties, Setting, SyncPolicy};
use forebay_simulation::Fate;
use futures_util::future::join;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::rc::Rc;
use std::time::Duration;

const VOLUMES: u8 = 12;

/// Project `db` with volumes on all shards, each with a block of its own; two of them in the trash.
async fn filled(pool: &Pool) -> Id {
    let said = ProjectProperties { sync: Some(SyncPolicy::Standard), quota: Some(32 * MIB), ..PLAIN };
    let id = pool.project("db", said).await.id;
    for nth in 0..VOLUMES {
        let name = format!("db/v{nth}");
        pool.volume(&name).await;
        pool.write(&name, 0, nth + 1).await;
    }
    pool.engine.snapshot_create(vec!["tank/db/v0".into()], "s").await.expect("taken");
    for name in ["tank/db/v10", "tank/db/v11"] {
        pool.engine.volume_delete(name, KEEP).await.expect("in the trash");
    }
    id
}

/// Everything is in one project, whose name this is.
async fn whole(pool: &Pool, id: Id) -> String {
    let projects = pool.engine.projects(None).await.expect("listed");
    let [project] = &projects[..] else { panic!("{projects:?}") };
    assert_eq!(
        (project.id, project.volumes, project.trashed),
        (id, u32::from(VOLUMES) - 2, 2),
        "{project:?}"
    );
    assert_eq!(project.properties.sync, Some(SyncPolicy::Standard));
    let trash = pool.engine.trash(None).await.expect("listed");
    let of_project = |name: &str| name.starts_with(&format!("{}/", project.name));
    assert!(trash.iter().all(|trashed| of_project(&trashed.name)), "{trash:?}");
    for nth in 0..VOLUMES - 2 {
        let name = format!("{}/v{nth}", project.name);
        let info = pool.info(&name).await;
        assert_eq!((info.project_id, info.sync), (Some(id), SyncPolicy::Standard), "{name}");
        assert_eq!(pool.read(&name, 0).await, nth + 1, "{name}");
    }
    let snapshots = pool.engine.snapshots(None).await.expect("listed");
    assert_eq!(snapshots[0].volume, format!("{}/v0", project.name));
    project.name.clone()
}

#[test]
fn a_project_gets_another_name() {
    on_pools(1, |pool| async move {
        let engine = &pool.engine;
        let id = filled(&pool).await;
        pool.project("other", PLAIN).await;
        pool.volume("alone").await;
        let long = format!("db/{}", "y".repeat(190));
        pool.volume(&long).await;
        engine.volume_delete(&format!("tank/{long}"), KEEP).await.expect("in the trash");
        for (new, why) in [
            ("other", ErrorKind::Conflict),
            ("alone", ErrorKind::Conflict),
            ("a/b", ErrorKind::Invalid("name")),
            ("a b", ErrorKind::Invalid("name")),
            // A volume in the trash has a long one already.
            (&*"x".repeat(60), ErrorKind::Invalid("name")),
        ] {
            assert_eq!(kind(engine.project_rename("tank/db", new).await), Some(why), "{new}");
            assert_eq!(kind(engine.project_rename_check("tank/db", new).await), Some(why), "{new}");
        }
        engine.volume_purge(&format!("tank/{long}")).await.expect("purged");
        engine.project_delete("tank/other").await.expect("empty");
        let open = pool.open("db/v3").await;
        engine.project_rename_check("tank/db", "web").await.expect("possible");
        assert_eq!(whole(&pool, id).await, "db");
        let renamed = engine.project_rename("tank/db", "web").await.expect("renamed");
        assert_eq!((renamed.id, renamed.name.as_str()), (id, "web"));
        assert_eq!(whole(&pool, id).await, "web");
        // Whoever has a volume open keeps it, and the old names are free.
        open.write(0, vec![pool.rt.arena().copy(&[4; 8192]).freeze()], true).await.expect("written");
        assert_eq!(kind(engine.volume("tank/db/v3").await), Some(ErrorKind::NotFound));
        pool.crash().await;
        assert_eq!(whole(&pool, id).await, "web");
        // What the project says from now on counts; what comes out of the trash is in it.
        let change = ProjectChange { sync: Setting::Own(SyncPolicy::Always), ..Default::default() };
        engine.project_set("tank/web", change).await.expect("set");
        assert_eq!(pool.info("web/v3").await.sync, SyncPolicy::Always);
        engine.volume_restore("tank/web/v10", None).await.expect("restored");
        assert_eq!(pool.read("web/v10", 0).await, 11);
        pool.project("db", PLAIN).await;
        pool.volume("db/v3").await;
    });
}

/// Goal: wherever the power fails, all volumes are in one project after the import. Returns how often it was which.
fn power_fails() -> BTreeMap<String, u32> {
    let outcomes = Rc::new(Cell::new(BTreeMap::new()));
    for nth in 0..24 {
        let seen = outcomes.clone();
        on_pools(nth, move |pool| {
            let seen = seen.clone();
            async move {
                let id = filled(&pool).await;
                let crash = async {
                    pool.rt.sleep(Duration::from_micros(nth * 100)).await;
                    pool.world.power_loss(|_, _| Fate::Lost)
                };
                let (renamed, images) = join(pool.engine.project_rename("tank/db", "web"), crash).await;
                renamed.expect("renamed");
                pool.engine.pool_export("tank").await.expect("exported");
                images.into_iter().enumerate().for_each(|(disk, image)| pool.world.set_image(disk, image));
                pool.import().await;
                let name = whole(&pool, id).await;
                pool.crash().await;
                assert_eq!(whole(&pool, id).await, name);
                let mut all = seen.take();
                *all.entry(name).or_default() += 1;
                seen.set(all);
            }
        });
    }
    outcomes.take()
}

/// Goal: a volume that is made meanwhile is in the project, or was refused; and nobody's name is lost.
#[test]
fn volumes_may_be_made_while_a_project_gets_its_name() {
    let (made, refused) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for seed in 0..12 {
        let (made, refused) = (made.clone(), refused.clone());
        on_pools(seed, move |pool| {
            let (made, refused) = (made.clone(), refused.clone());
            async move {
                let id = filled(&pool).await;
                let create = async {
                    let mut done = Vec::new();
                    for nth in 0..12 {
                        pool.rt.sleep(Duration::from_micros(seed * 40 + nth * 70)).await;
                        for project in ["db", "web"] {
                            let name = format!("{project}/new{nth}");
                            match pool.make(&name, None, None).await {
                                Ok(info) => done.push(info.id),
                                Err(error) => {
                                    let kinds = [ErrorKind::Conflict, ErrorKind::NotFound];
                                    assert!(kinds.contains(&error.kind), "{error}");
                                    refused.set(refused.get() + 1);
                                }
                            }
                        }
                    }
                    done
                };
                let rename = async {
                    pool.rt.sleep(Duration::from_micros(300)).await;
                    pool.engine.project_rename("tank/db", "web").await
                };
                let (renamed, volumes) = join(rename, create).await;
                // One that is about to be there is waited for by whoever renames.
                assert!(kind(renamed).is_none_or(|kind| kind == ErrorKind::Conflict));
                for round in 0..2 {
                    let [project] = &pool.engine.projects(None).await.expect("listed")[..] else { panic!() };
                    assert_eq!(project.id, id);
                    for volume in &volumes {
                        let info = pool.engine.volume(&volume.to_string()).await.expect("there");
                        assert_eq!(info.project_id, Some(id), "seed {seed}, round {round}: {}", info.name);
                        assert_eq!(pool.info(&info.name).await.id, *volume);
                    }
                    pool.crash().await;
                }
                made.set(made.get() + volumes.len());
            }
        });
    }
    assert!(made.get() > 20 && refused.get() > 20, "{} made, {} refused", made.get(), refused.get());
}

#[test]
fn the_power_may_fail_while_a_project_gets_its_name() {
    let outcomes = power_fails();
    assert!(outcomes.len() == 2 && outcomes.values().all(|times| *times > 3), "{outcomes:?}");
    plant(Some(Bug::RenameStaysHalf));
    let is_caught = catch_unwind(power_fails).is_err() && times_met() > 0;
    plant(None);
    assert!(is_caught, "a project that stays in two is not noticed");
}
