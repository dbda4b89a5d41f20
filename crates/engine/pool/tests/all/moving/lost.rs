//! What is left of a move when a pool comes back as it was earlier, as after a forced import that cuts its log, or when a half was given up.

use super::*;
use forebay_simulation::Recording;

const BLOCKS: u64 = 5000;

struct Recorded {
    recording: Recording,
    content: Vec<u32>,
    id: Id,
}

/// A move that nobody disturbs, from its beginning on.
fn recorded() -> Recorded {
    let known = Rc::new(RefCell::new((Vec::new(), Id(0))));
    let out = known.clone();
    let world = world(3, None, PLAIN, move |pools| async move {
        let volume = pools.create("tank/a", 24 * MIB, VolumeFormat::Thin).await.expect("created");
        let id = pools.engine.volume("tank/a").await.expect("there").id;
        let clients = Clients::new(&pools, volume);
        clients.fill(BLOCKS).await;
        // The log's cut is then after all that the import has sealed, as in every pool that is used.
        let other = pools.create("vault/other", MIB, VolumeFormat::Thin).await.expect("created");
        other.write(0, vec![pools.rt.buffer(BLOCK as usize).freeze()], true).await.expect("written");
        pools.engine.volume_delete("vault/other", PURGE).await.expect("deleted");
        pools.engine.checkpoint("vault").await.expect("checkpoint");
        pools.world.record();
        pools.move_to("tank/a", "vault").await.expect("moved");
        *out.borrow_mut() = (clients.content.take(), id);
    });
    let (content, id) = known.take();
    Recorded { recording: world.take_recording(), content, id }
}

impl Recorded {
    /// All disks, with all that was written up to a moment.
    fn images(&self, moment: usize) -> Vec<Image> {
        let mut cursor = Cursor::new(&self.recording);
        cursor.advance_to(moment);
        let fates = vec![Fate::Whole; cursor.pending_count()];
        cursor.crash(&fates)
    }

    /// What a pool says it has of the move at a moment, alone.
    fn left(&self, moment: usize, pool: usize) -> Option<(MoveSide, bool)> {
        let found = Rc::new(Cell::new(None));
        let out = found.clone();
        world(5, Some(self.images(moment)), PLAIN, move |pools| async move {
            pools.import(pool).await;
            let left = pools.engine.moves_left().await.expect("listed");
            out.set(left.first().map(|left| (left.side, left.is_complete)));
        });
        found.get()
    }

    /// A late moment at which the source says that the volume has moved, and the target has all of it and is not live.
    fn moved(&self) -> usize {
        let last = self.recording.events.len();
        let is_it = |moment: &usize| {
            self.left(*moment, 0) == Some((MoveSide::Moved, true))
                && self.left(*moment, 1) == Some((MoveSide::Arriving, true))
        };
        (last.saturating_sub(200)..last).rev().find(is_it).expect("there is such a moment")
    }

    /// The source as it was when the volume had moved, the target as it was at `earlier`.
    fn mixed(&self, moved: usize, earlier: usize) -> Vec<Image> {
        let (mut late, mut early) = (self.images(moved), self.images(earlier));
        let own = PLAIN[0].width();
        late.truncate(own);
        late.extend(early.drain(own..));
        late
    }
}

async fn has_all(volume: &Volume, content: &[u32]) {
    for (block, stamp) in content.iter().enumerate() {
        assert_eq!(look(volume, block as u64).await, *stamp, "block {block}");
    }
}

/// The only thing that is left of the volume is kept, and is what the volume was.
async fn is_kept(pools: &Pools, content: &[u32]) {
    assert_eq!(pools.volumes().await, Vec::<String>::new());
    let left = pools.engine.moves_left().await.expect("listed");
    assert!(left.len() == 1 && left[0].is_complete && left[0].side == MoveSide::Moved, "{left:?}");
    let kept = pools.engine.move_keep("tank/a", None).await.expect("kept");
    has_all(&pools.open(kept.id), content).await;
    pools.export(0).await;
    pools.import(0).await;
    assert_eq!(pools.volumes().await, ["tank/a"]);
    assert!(pools.engine.moves_left().await.expect("listed").is_empty());
}

/// Goal: a target that has lost the end of its log never has the volume become less than it was.
#[test]
fn a_target_that_has_lost_its_log_loses_no_volume() {
    let recorded = Rc::new(recorded());
    let moved = recorded.moved();
    let partial = (0..moved).step_by(40).find(|moment| recorded.left(*moment, 1).is_some());
    let partial = partial.expect("there is a moment at which it arrives");
    assert_eq!(recorded.left(partial, 1), Some((MoveSide::Arriving, false)));
    for order in [[0, 1], [1, 0]] {
        let known = recorded.clone();
        world(5, Some(recorded.mixed(moved, partial)), PLAIN, move |pools| async move {
            for pool in order {
                pools.import(pool).await;
            }
            assert_eq!(pools.volumes().await, ["tank/a"]);
            has_all(&pools.open(known.id), &known.content).await;
            assert!(pools.engine.moves_left().await.expect("listed").is_empty());
            let volume = pools.open(known.id);
            volume.write(0, vec![pools.rt.buffer(BLOCK as usize).freeze()], false).await.expect("written");
            pools.move_to("tank/a", "vault").await.expect("moved");
        });
        let known = recorded.clone();
        world(5, Some(recorded.mixed(moved, 0)), PLAIN, move |pools| async move {
            for pool in order {
                pools.import(pool).await;
            }
            is_kept(&pools, &known.content).await;
        });
    }
}

/// Goal: what came was given up, and then the pool where it came from is there after all: nothing else is.
#[test]
fn what_was_given_up_is_still_where_it_came_from() {
    let recorded = Rc::new(recorded());
    let moved = recorded.moved();
    let known = recorded.clone();
    world(5, Some(recorded.images(moved)), PLAIN, move |pools| async move {
        pools.import(1).await;
        pools.engine.move_abandon("vault/a").await.expect("given up");
        pools.import(0).await;
        assert_eq!(pools.told("volume.move_left"), 2);
        is_kept(&pools, &known.content).await;
    });
}

/// Goal: when the volume has moved, and power was lost before it was live there, it is live there once both pools are; and what has come is
/// all of it, whatever becomes of where it came from.
#[test]
fn what_has_come_is_complete_also_after_an_import() {
    let recorded = Rc::new(recorded());
    let moved = recorded.moved();
    for order in [[0, 1], [1, 0]] {
        let known = recorded.clone();
        world(5, Some(recorded.images(moved)), PLAIN, move |pools| async move {
            for pool in order {
                pools.import(pool).await;
            }
            assert_eq!(pools.volumes().await, ["vault/a"]);
            has_all(&pools.open(known.id), &known.content).await;
        });
    }
    let known = recorded.clone();
    world(5, Some(recorded.images(moved)), PLAIN, move |pools| async move {
        pools.import(0).await;
        pools.engine.move_abandon("tank/a").await.expect("given up");
        for _ in 0..2 {
            pools.import(1).await;
            pools.export(1).await;
        }
        pools.import(1).await;
        assert_eq!(pools.volumes().await, Vec::<String>::new());
        let left = pools.engine.moves_left().await.expect("listed");
        assert!(left.len() == 1 && left[0].is_complete && left[0].side == MoveSide::Arriving, "{left:?}");
        let kept = pools.engine.move_keep("vault/a", None).await.expect("kept");
        has_all(&pools.open(kept.id), &known.content).await;
    });
}
