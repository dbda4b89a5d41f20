//! Places for blocks: finding them, waiting for them, and having them until something is written there.
//!
//! Who waits for space waits for others to move what they have, or to give it back; these take blocks' locks and room in the log. So nobody waits for it who
//! has either: a writer that finds none at hand lets go of what it holds, waits ([`Shard::allocate`]), and begins anew with the places that it got. It keeps only
//! its place at the gate, and whole lines that a large write has claimed for itself.

use crate::error::IoError;
use crate::reserve::{Claim, Need};
use crate::shard::{NodesClaim, SPACE_WAITS_MAX, Shard};
use crate::wanted::Wanted;
use forebay_device::UNIT;
use forebay_space::{Addr, Ptr};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Places that somebody has for himself, such as whole lines with parity for a large write; what is not taken of them is given back.
pub(crate) struct PlacesClaim {
    shard: Rc<Shard>,
    places: Vec<Ptr>,
}

impl PlacesClaim {
    pub fn none(shard: &Rc<Shard>) -> PlacesClaim {
        PlacesClaim { shard: shard.clone(), places: Vec::new() }
    }

    pub fn add(&mut self, places: impl IntoIterator<Item = Ptr>) {
        self.places.extend(places);
    }

    pub fn count(&self) -> u64 {
        self.places.len() as u64
    }

    pub fn units(&self) -> u64 {
        self.places.iter().map(|place| u64::from(place.units())).sum()
    }

    /// Takes the first places out: they are somebody's now.
    pub fn take_first(&mut self, count: usize) -> Vec<Ptr> {
        if count == self.places.len() {
            return std::mem::take(&mut self.places);
        }
        self.places.drain(..count).collect()
    }

    /// Lets others have them.
    pub fn give_back(&mut self) {
        if self.places.is_empty() {
            return;
        }
        let mut space = self.shard.space.borrow_mut();
        self.places.drain(..).for_each(|place| space.give_back(&place));
    }

    /// The lines, as far as they follow each other: where they begin, and how many units they have.
    pub fn regions(&self) -> Vec<(Addr, u32)> {
        let follow = self.places.chunk_by(|one, next| one.is_followed_by(next));
        follow.map(|places| (places[0].addr(), places.iter().map(Ptr::units).sum())).collect()
    }

    /// Units of a cell in the lines at `addr`.
    pub fn cell(&self, addr: Addr) -> u32 {
        self.shard.space.borrow().lines_at(addr).cell
    }

    /// Takes places in lines out that were claimed unit by unit.
    pub fn take(&mut self, taken: &[Ptr]) {
        let units = |ptr: &Ptr| {
            (0..u64::from(ptr.units())).map(|nth| ptr.addr().plus(nth * UNIT)).collect::<Vec<_>>()
        };
        let taken: BTreeSet<Addr> = taken.iter().flat_map(units).collect();
        self.places.retain(|place| !taken.contains(&place.addr()));
    }
}

/// Who waits with some of the places that he wants: these replace nothing before he has all of them.
pub(crate) struct Waiting<'a> {
    shard: &'a Shard,
    units: u64,
}

impl Waiting<'_> {
    pub fn new(shard: &Shard, units: u64) -> Waiting<'_> {
        shard.units_waiting.set(shard.units_waiting.get() + units);
        Waiting { shard, units }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shard.units_waiting.set(self.shard.units_waiting.get() - self.units);
    }
}

impl Drop for PlacesClaim {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Shard {
    /// Places for blocks, and `nodes` nodes for what the write makes dirty. Waits for chunks, a checkpoint or the evacuation of
    /// other chunks where that helps: not to be called with blocks locked, or with room in the log.
    pub async fn allocate(
        self: &Rc<Self>,
        wanted: &Wanted<'_>,
        nodes: u64,
        claim: Claim,
    ) -> Result<(PlacesClaim, NodesClaim), IoError> {
        let mut waited = 0;
        loop {
            match self.allocate_here(wanted, nodes, claim).await {
                // Chunks that were closed for an evacuation are open again after it, even if it won none.
                Err(IoError::NoSpace) if waited < SPACE_WAITS_MAX && !self.has_ended() => {
                    waited = if self.reclaim().await { waited + 1 } else { SPACE_WAITS_MAX };
                }
                result => return result,
            }
        }
    }

    /// Like [`Shard::allocate`], with what is free and no evacuation.
    pub async fn allocate_here(
        self: &Rc<Self>,
        wanted: &Wanted<'_>,
        nodes: u64,
        claim: Claim,
    ) -> Result<(PlacesClaim, NodesClaim), IoError> {
        let (mut waited, mut has_settled, mut may_defer) = (0, false, true);
        // What was found stays taken while the rest is looked for: two requests that each need all there is would wait in turn.
        let mut places = PlacesClaim::none(self);
        loop {
            if let Some(nodes) = self.look_for(wanted, nodes, claim, &mut places, may_defer).await? {
                return Ok((places, nodes));
            }
            let _waiting = Waiting::new(self, places.units());
            let mut next_checkpoint = false;
            if (self.expects_space()
                || (self.expects_deletions() && !self.waits_for_moving())
                || (claim == Claim::Ordinary && self.expects_changes())
                || self.expects_easing(waited)
                || self.yields_to_log(claim)
                || (claim == Claim::Reserved && !self.waits_for_moving()))
                && waited < SPACE_WAITS_MAX
            {
                waited += 1;
                next_checkpoint = true;
            } else if self.waits_for_moving() && waited < SPACE_WAITS_MAX {
                // Chunks of which slots move open again soon, whatever comes of it.
                waited += 1;
                let is_over = || !self.waits_for_moving() || self.has_ended();
                self.progress.until(is_over).await;
            } else if !has_settled
                && claim == Claim::Ordinary
                && self.in_transit(wanted.class(places.places.len())) > 0
            {
                // What reserved volumes have in the log takes places, and counts as owed to them until it is there.
                has_settled = true;
                next_checkpoint = true;
            } else if !may_defer {
                return Err(self.why_none());
            }
            may_defer = false;
            if next_checkpoint && !self.next_checkpoint().await {
                return Err(self.why_none());
            }
        }
    }

    /// Finds places, besides those that are there already, and nodes. Waits for a chunk or for what a record says at most, or for checkpoints where nodes are short: for
    /// nobody who wants locks or room in the log. Nothing when there are too few places.
    pub async fn at_hand(
        self: &Rc<Self>,
        wanted: &Wanted<'_>,
        nodes: u64,
        claim: Claim,
        places: &mut PlacesClaim,
    ) -> Result<Option<NodesClaim>, IoError> {
        self.look_for(wanted, nodes, claim, places, true).await
    }

    /// The same; with `may_defer`, there are too few as well when one of the pool's last chunks would be needed and a checkpoint may spare it.
    async fn look_for(
        self: &Rc<Self>,
        wanted: &Wanted<'_>,
        nodes: u64,
        claim: Claim,
        places: &mut PlacesClaim,
        may_defer: bool,
    ) -> Result<Option<NodesClaim>, IoError> {
        loop {
            if self.is_suspended() {
                return Err(IoError::Suspended);
            }
            let nodes = self.reserve_nodes(nodes, claim).await?;
            if self.take_places(wanted, claim, &mut places.places) {
                self.widen();
                return Ok(Some(nodes));
            }
            if self.read_sought().await? {
                continue;
            }
            let kind = wanted.kind(places.places.len());
            let need = {
                let space = self.space.borrow();
                match claim {
                    Claim::Gathered if self.emptied.get() > 0 => Need::Ordinary,
                    Claim::Ordinary | Claim::Gathered
                        if (may_defer || !space.is_scarce()) && space.spares_chunks(kind) =>
                    {
                        Need::Deferrable
                    }
                    _ => Need::Ordinary,
                }
            };
            if self.yields_to_log(claim) {
                return Ok(None);
            }
            if self.grant(kind, need).await {
                if claim == Claim::Gathered {
                    self.emptied.set(self.emptied.get().saturating_sub(1));
                }
                continue;
            }
            if self.space.borrow().is_scarce() || claim == Claim::Gathered {
                // While that was asked, places may have come back.
                if self.take_places(wanted, claim, &mut places.places) {
                    return Ok(Some(nodes));
                }
                if self.read_sought().await? {
                    continue;
                }
                return Ok(None);
            }
            self.space.borrow_mut().declare_scarce();
        }
    }

    /// Asks for a chunk for a lane that has none, if the pool has plenty; no request waits for it.
    pub fn widen(self: &Rc<Self>) {
        self.read_later();
        let narrow = self.space.borrow_mut().take_narrow();
        let Some(kind) = narrow else { return };
        // Who needs one goes first.
        if self.granting.get() || self.stopping.get() || self.is_suspended() || self.lacks_nodes_for_a_chunk()
        {
            return;
        }
        let shard = self.clone();
        self.spawn(async move {
            if !shard.granting.get() {
                shard.grant_by(move |control| control.grant_lane(kind)).await;
            }
        });
    }

    /// Whether some chunks are closed for a while, and whoever closed them does not wait for the log to drain, which needs space.
    fn waits_for_moving(&self) -> bool {
        self.space.borrow().is_moving() && self.draining.get() == 0
    }
}
