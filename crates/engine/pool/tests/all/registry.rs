//! The registry of a pool: is what was put there again, and is what is refused, lost or taken away only that?

use crate::limits::{Pool, SMALL, on_pool};
use forebay_base::KIB;
use forebay_pool::check::check;
use forebay_pool::{
    ErrorKind, ITEM_KEY_MAX, ITEM_VALUE_MAX, ITEMS_BYTES_MAX, ITEMS_CHANGED_MAX, ITEMS_PUT_MAX, ItemChanges,
    Layout,
};
use forebay_simulation::PAGE;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

const NODE: u64 = 16 * KIB;

fn value(key: &str, round: usize, bytes: usize) -> Vec<u8> {
    format!("{key} {round} ").bytes().cycle().take(bytes).collect()
}

async fn put(pool: &Pool, all: &mut BTreeMap<String, Vec<u8>>, changes: ItemChanges) {
    pool.engine.put_items("tank", changes.clone()).await.expect("put");
    for (key, value) in changes {
        match value {
            Some(value) => _ = all.insert(key, value),
            None => _ = all.remove(&key),
        }
    }
}

/// Goal: items of every length come, change, grow, shrink and go, together with others, and are the same after imports; a table with nothing in it takes nothing.
#[test]
fn what_was_put_is_there_again_and_what_was_taken_away_is_not() {
    for shape in [None, Some(SMALL)] {
        on_pool((Layout::Mirror, 4, 2), shape, |pool| async move {
            let mut all = BTreeMap::new();
            for round in 0..12_usize {
                let lengths = [1, 40, 491, 492, 493, 5_000, ITEM_VALUE_MAX];
                let changes = (0..9).map(|nth| {
                    let key = format!("{}/{nth}", "k".repeat(1 + nth * 31));
                    let bytes = lengths[(nth * 5 + round * 3) % 7];
                    let is_gone = (nth + round) % 4 == 0 || (round == 11);
                    let value = (!is_gone).then(|| value(&key, round, bytes));
                    (key, value)
                });
                for some in changes.collect::<Vec<_>>().chunks(2) {
                    let fits =
                        some.iter().all(|(_, value)| value.as_ref().is_none_or(|v| v.len() < ITEM_VALUE_MAX));
                    match fits {
                        true => put(&pool, &mut all, some.iter().cloned().collect()).await,
                        false => {
                            for one in some {
                                put(&pool, &mut all, [one.clone()].into()).await;
                            }
                        }
                    }
                }
                assert_eq!(pool.engine.items("tank").await.expect("read"), all);
                match round % 3 {
                    0 => _ = pool.engine.checkpoint("tank").await.expect("a checkpoint"),
                    1 => pool.again().await,
                    _ => continue,
                }
                assert_eq!(pool.engine.items("tank").await.expect("read"), all, "round {round}");
            }
            assert!(all.is_empty());
        });
    }
}

/// Goal: what is too long, or too much, is refused with the limit, and changes nothing.
#[test]
fn what_is_too_long_or_too_much_is_refused() {
    on_pool((Layout::Single, 4, 1), None, |pool| async move {
        let long = "k".repeat(ITEM_KEY_MAX + 1);
        let refused = [
            vec![("", 1)],
            vec![(&long[..], 1)],
            vec![("k", ITEM_VALUE_MAX + 1)],
            vec![("good", 7), ("a", ITEM_VALUE_MAX), ("b", ITEMS_PUT_MAX - ITEM_VALUE_MAX)],
        ];
        for changes in refused {
            let changes = changes.into_iter().map(|(key, bytes)| (key.to_string(), Some(vec![1; bytes])));
            let error = pool.engine.put_items("tank", changes.collect()).await.expect_err("it is refused");
            assert_eq!(
                (error.kind, error.remedy.is_empty()),
                (ErrorKind::Invalid("key"), false),
                "{error:?}"
            );
        }
        let many = (0..=ITEMS_CHANGED_MAX).map(|nth| (nth.to_string(), None)).collect();
        let error = pool.engine.put_items("tank", many).await.expect_err("it is refused");
        assert_eq!(error.kind, ErrorKind::Invalid("key"));
        assert_eq!(pool.engine.items("tank").await.expect("read"), BTreeMap::new());
        // A row of half a KiB has 492 bytes.
        let rows = (ITEM_VALUE_MAX + 3).div_ceil(492);
        let (mut all, most) = (BTreeMap::new(), ITEMS_BYTES_MAX / 512 / rows);
        for nth in 0..most {
            let key = format!("{nth:03}");
            put(&pool, &mut all, [(key.clone(), Some(value(&key, 0, ITEM_VALUE_MAX)))].into()).await;
        }
        let more: ItemChanges = [("more".to_string(), Some(vec![1; ITEM_VALUE_MAX]))].into();
        let error = pool.engine.put_items("tank", more.clone()).await.expect_err("it is too much");
        assert_eq!((error.kind, error.remedy.is_empty()), (ErrorKind::NoSpace, false));
        pool.again().await;
        assert!(pool.engine.items("tank").await.expect("read") == all);
        put(&pool, &mut all, [("000".to_string(), None)].into()).await;
        put(&pool, &mut all, more).await;
        pool.again().await;
        assert!(pool.engine.items("tank").await.expect("read") == all);
    });
}

/// Goal: a change of one item among thousands writes its leaf, and what is above.
#[test]
fn a_checkpoint_writes_the_leaves_that_have_changed() {
    let bytes_of_one = |items: usize| {
        let bytes = Rc::new(Cell::new(0));
        let told = bytes.clone();
        on_pool((Layout::Single, 4, 1), None, move |pool| async move {
            let mut all = BTreeMap::new();
            for some in (0..items).collect::<Vec<_>>().chunks(200) {
                let one = |nth: &usize| (format!("item/{nth}"), Some(value("item", *nth, 300)));
                put(&pool, &mut all, some.iter().map(one).collect()).await;
            }
            for round in 0..3 {
                put(&pool, &mut all, [("item/0".to_string(), Some(vec![round; 300]))].into()).await;
                let before = pool.written();
                pool.engine.checkpoint("tank").await.expect("a checkpoint");
                told.set(pool.written() - before);
            }
        });
        bytes.get()
    };
    let (few, many) = (bytes_of_one(5), bytes_of_one(4000));
    assert!(many <= few + 3 * NODE, "{few} bytes with 5 items, {many} with 4000");
}

/// Where the leaves of the registry are: disk and byte.
fn leaves(pool: &Pool) -> Vec<(usize, u64)> {
    let of_disk = |disk: usize| {
        let image = pool.world.image(disk);
        let is_leaf = |page: &[u8; PAGE]| &page[..4] == b"FBND" && page[5] == 19 && page[6] == 0;
        let pages = (0..image.size() / PAGE as u64).filter_map(|nth| Some((nth, image.page(nth)?)));
        pages.filter(|(_, page)| is_leaf(page)).map(|(nth, _)| (disk, nth * PAGE as u64)).collect::<Vec<_>>()
    };
    (0..pool.paths.len()).flat_map(of_disk).collect()
}

/// Goal: a leaf of which no copy is left costs the items in it, with an event; the import goes on, and the table is whole again after a checkpoint.
#[test]
fn a_part_that_is_lost_costs_only_itself() {
    on_pool((Layout::Single, 2, 1), None, |pool| async move {
        let mut all = BTreeMap::new();
        for nth in 0..90 {
            let key = format!("item/{nth:02}");
            put(&pool, &mut all, [(key.clone(), Some(value(&key, nth, 450)))].into()).await;
        }
        put(&pool, &mut all, [("long".to_string(), Some(value("long", 0, 30_000)))].into()).await;
        pool.engine.pool_export("tank").await.expect("exported");
        let (disk, at) = leaves(&pool)[0];
        pool.world.rot(disk, at + 5_000, &[1]);
        pool.told();
        let imported = pool.engine.pool_import("tank", pool.paths.clone(), Default::default()).await;
        imported.expect("imported");
        assert_eq!(pool.told().iter().filter(|code| **code == "registry.lost").count(), 1);
        let left = pool.engine.items("tank").await.expect("read");
        let missing = all.len() - left.len();
        assert!((1..=32).contains(&missing) && left.iter().all(|(key, value)| all.get(key) == Some(value)));
        all = left;
        put(&pool, &mut all, [("more".to_string(), Some(value("more", 0, 30_000)))].into()).await;
        pool.again().await;
        assert_eq!(pool.engine.items("tank").await.expect("read"), all);
        assert!(!pool.told().contains(&"registry.lost"));
        pool.engine.pool_export("tank").await.expect("exported");
        let report = check(&pool.rt, &pool.paths).await.expect("checked");
        assert_eq!(report.problems, Vec::<String>::new());
        let imported = pool.engine.pool_import("tank", pool.paths.clone(), Default::default()).await;
        imported.expect("imported");
    });
}
