//! Moves while clients do as much as they can, or the disks do little.

use super::*;
use pools::world_at;

/// More than the 64 MiB that a shard lets in at a time.
const WRITERS: u64 = 12;
const WRITE: u64 = 8 * MIB;

/// A volume that each of the writers has a part of; what they write takes little space.
struct Wide {
    rt: Rt,
    volume: Volume,
    stop: Rc<Cell<bool>>,
}

impl Wide {
    async fn new(pools: &Pools, name: &str, stop: &Rc<Cell<bool>>) -> Wide {
        let (pool, own) = name.split_once('/').expect("POOL/NAME");
        let spec = VolumeSpec {
            pool: pool.into(),
            name: own.into(),
            size: WRITERS * WRITE,
            block_size: 128 << 10,
            sync: Some(SyncPolicy::Standard),
            compression: Some(Compression::Lz4),
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        };
        let info = pools.engine.volume_create(spec).await.expect("created");
        Wide { rt: pools.rt.clone(), volume: pools.open(info.id), stop: stop.clone() }
    }

    async fn writer(&self, nth: u64) {
        let mut stamp = nth as u32 * 10_000;
        while !self.stop.get() {
            stamp += 1;
            let mut data = self.rt.buffer(WRITE as usize);
            data.chunks_exact_mut(4).for_each(|part| part.copy_from_slice(&stamp.to_le_bytes()));
            self.volume.write(nth * WRITE, vec![data.freeze()], false).await.expect("written");
            for block in [nth * WRITE / BLOCK, (nth + 1) * WRITE / BLOCK - 1] {
                assert_eq!(look(&self.volume, block).await, stamp, "what was acknowledged is there");
            }
        }
    }

    async fn run(&self) {
        join_all((0..WRITERS).map(|nth| self.writer(nth))).await;
    }
}

/// Goal: what waited at the gate while the volume moved away begins where it is now. Method: more is written at a time than the gate lets
/// in, and read as soon as it is acknowledged.
#[test]
fn what_waits_at_the_gate_moves_along() {
    for seed in seeds(1) {
        world(seed, None, PLAIN, |pools| async move {
            let stop = Rc::new(Cell::new(false));
            let wide = Wide::new(&pools, "tank/a", &stop).await;
            let moving = async {
                for to in ["vault", "tank", "vault"] {
                    pools.rt.sleep(Duration::from_millis(50)).await;
                    let from = if to == "tank" { "vault/a" } else { "tank/a" };
                    pools.move_to(from, to).await.expect("moved");
                }
                pools.rt.sleep(Duration::from_millis(50)).await;
                stop.set(true);
            };
            futures_util::future::join(moving, wide.run()).await;
        });
    }
}

/// Goal: moves in opposite directions do not wait for each other's clients.
#[test]
fn two_volumes_change_places_under_load() {
    for seed in seeds(1) {
        world(seed, None, PLAIN, |pools| async move {
            let stop = Rc::new(Cell::new(false));
            let wide = [Wide::new(&pools, "tank/a", &stop).await, Wide::new(&pools, "vault/b", &stop).await];
            let moving = async {
                pools.rt.sleep(Duration::from_millis(50)).await;
                let both = [pools.move_to("tank/a", "vault"), pools.move_to("vault/b", "tank")];
                for moved in join_all(both).await {
                    moved.expect("moved");
                }
                stop.set(true);
            };
            let running = join_all(wide.iter().map(Wide::run));
            futures_util::future::join(moving, running).await;
            let mut volumes = pools.volumes().await;
            volumes.sort();
            assert_eq!(volumes, ["tank/b", "vault/a"]);
        });
    }
}

/// However slow the disks are, clients wait for a move no longer than they are told to.
#[test]
fn clients_do_not_wait_for_slow_disks() {
    world_at(2 << 20, 1, None, PLAIN, |pools| async move {
        let volume = pools.create("tank/a", 24 * MIB, VolumeFormat::Thin).await.expect("created");
        let clients = Clients::new(&pools, volume);
        clients.fill(3000).await;
        clients.longest.set(Duration::ZERO);
        let moved = while_clients_work(&clients, 1, Duration::ZERO, pools.move_to("tank/a", "vault")).await;
        moved.expect("moved");
        let longest = clients.longest.get();
        // Half a second, or two at the switch, and what the disks have before them: 4 MiB of the move.
        assert!(longest < Duration::from_secs(5), "{longest:?}");
        clients.compare(&clients.volume).await;
    });
}

/// A handle from before its volume was deleted goes on when that is restored, and when it moves then.
#[test]
fn handles_of_a_restored_volume_move_along() {
    on_pools(|pools| async move {
        let volume = pools.create("tank/a", 8 * MIB, VolumeFormat::Thin).await.expect("created");
        let clients = Clients::new(&pools, volume.clone());
        clients.fill(100).await;
        let into_trash = VolumeDelete { with_snapshots: false, purge: false };
        pools.engine.volume_delete("tank/a", into_trash).await.expect("deleted");
        assert_eq!(volume.read(0, 1).await.err(), Some(IoError::Gone));
        let restored = pools.engine.volume_restore("tank/a", None).await.expect("restored");
        clients.change(3, false).await;
        pools.move_to("tank/a", "vault").await.expect("moved");
        clients.change(4, false).await;
        clients.compare(&pools.open(restored.id)).await;
    });
}
