//! A pool that has room refuses nobody, however much is asked for at once.

use crate::compression::{Pool, on_pools};
use forebay_base::{MIB, Random};
use forebay_pool::Compression;
use futures_util::future::join_all;
use std::rc::Rc;

const BLOCK: usize = 4096;

/// Overwrites a volume as one of eight who never wait for each other: `count` of its blocks, which are `apart`.
async fn overwrites(pool: Rc<Pool>, name: String, seed: u64, (count, apart): (u64, u64)) {
    let (volume, mut random) = (pool.open(&name).await, Random::new(seed));
    for _ in 0..count / 8 {
        let at = random.below(count) * apart;
        volume.write(at, vec![pool.buffer(&[seed as u8; BLOCK])], false).await.expect("written");
    }
}

/// Has all blocks of four volumes overwritten, again and again.
fn overwrite_all(count: u64, apart: u64) {
    on_pools(3, move |pool, seed| async move {
        let mut random = Random::new(seed);
        let names = ["a", "b", "c", "d"];
        for name in names {
            pool.sized(name, count * apart, BLOCK as u32, Compression::Off).await;
        }
        for _ in 0..5 {
            let clients = names.iter().flat_map(|name| (0..8).map(move |_| name.to_string()));
            let all = |name| overwrites(pool.clone(), name, random.next_u64(), (count, apart));
            join_all(clients.map(all).collect::<Vec<_>>()).await;
        }
    });
}

/// Goal: clients that are answered before their writes are durable may queue as much as they like.
#[test]
fn who_overwrites_all_again_finds_room() {
    overwrite_all(2048, BLOCK as u64);
}

/// Goal: the same where each block has a leaf to itself.
#[test]
fn who_overwrites_what_lies_far_apart_finds_room() {
    overwrite_all(192, 2 * MIB);
}
