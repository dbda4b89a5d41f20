//! Features that came with a later version: is a pool that uses one refused by its name, or read, as the feature says?

use crate::limits::{Pool, on_pool};
use forebay_base::{KIB, MIB};
use forebay_device::{Compatibility, Feature, Label};
use forebay_pool::{ErrorKind, Import, Layout, PoolState};
use forebay_simulation::PAGE;

/// Where a disk of 64 MiB has its labels.
const COPIES: [u64; 3] = [0, 384 * KIB, 64 * MIB - 384 * KIB];

/// Has all labels say that the pool uses these.
fn relabel(pool: &Pool, features: &[Feature]) {
    for disk in 0..pool.paths.len() {
        for at in COPIES {
            let image = pool.world.image(disk);
            let before = image.page(at / PAGE as u64).expect("a label").to_vec();
            let label = Label::decode(&before, at).expect("a label");
            let after = Label { features: features.to_vec(), ..label }.encode(at);
            let changes: Vec<u8> = before.iter().zip(&after).map(|(before, after)| before ^ after).collect();
            pool.world.rot(disk, at, &changes);
        }
    }
}

/// Goal: a pool of a later version is refused with the name of what is lacking, or imported to be read only, or imported; and keeps saying so.
#[test]
fn a_pool_that_uses_what_is_not_known_is_refused_by_name() {
    let cases = [
        (Compatibility::Incompatible, false, false),
        (Compatibility::ReadOnly, false, true),
        (Compatibility::Compatible, true, true),
    ];
    for (compatibility, writes, reads) in cases {
        on_pool((Layout::Mirror, 2, 1), None, move |pool| async move {
            pool.engine.pool_export("tank").await.expect("exported");
            let originals: Vec<_> = (0..2).map(|disk| pool.world.image(disk)).collect();
            relabel(&pool, &[Feature::new(compatibility, "wide-pointers")]);
            for (read_only, is_imported) in [(true, reads), (false, writes)] {
                let import = Import { read_only, force: false };
                let imported = pool.engine.pool_import("tank", pool.paths.clone(), import).await;
                match imported {
                    Ok(status) => {
                        assert!(is_imported && status.state == PoolState::Online);
                        pool.engine.pool_export("tank").await.expect("exported");
                    }
                    Err(error) => {
                        assert!(!is_imported && error.message.contains("'wide-pointers'"), "{error}");
                        assert_eq!((error.kind, error.remedy.is_empty()), (ErrorKind::Unsafe, false));
                    }
                }
            }
            match writes {
                // What was labelled anew meanwhile still says it.
                true => {
                    let page = pool.world.image(0).page(0).expect("a label").to_vec();
                    let label = Label::decode(&page, 0).expect("a label");
                    assert_eq!(label.features, [Feature::new(compatibility, "wide-pointers")]);
                }
                false => originals
                    .into_iter()
                    .enumerate()
                    .for_each(|(disk, image)| pool.world.set_image(disk, image)),
            }
            let imported = pool.engine.pool_import("tank", pool.paths.clone(), Import::default()).await;
            imported.expect("imported");
        });
    }
}
