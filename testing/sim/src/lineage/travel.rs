//! Snapshots that travel within the pool: whole ones, what changed since others or since bookmarks of them, and what goes on after a crash.

use super::model::{Model, Op};
use super::{Player, told};
use crate::harness::Failure;
use crate::setup::POOL;
use forebay_pool::{Error, ErrorKind, ReceiveOptions, SendOptions};

impl Player {
    /// A stream that can be sent: what a volume lacks that has a base of it, or one for a new volume.
    pub fn draw_travel(&self, model: &Model, may_create: bool, new: impl Fn() -> String) -> Option<Op> {
        let pick = |count: usize| self.below(count as u64) as usize;
        let names = |id: u32| (model.snapshots[&id].volume.clone(), model.snapshots[&id].name.clone());
        let mut ways = Vec::new();
        for (sent, snapshot) in &model.snapshots {
            let kin = |(id, other): &(&u32, &_)| *id != sent && Model::are_kin(other, snapshot);
            for (base, other) in model.snapshots.iter().filter(kin) {
                let has_base = |into: &&String| model.copy_in(into, other.origin).is_some();
                let lacks = |into: &&String| model.copy_in(into, snapshot.origin).is_none();
                let into = model.volumes.keys().filter(has_base).filter(lacks);
                ways.extend(into.map(|into| (*sent, *base, into.clone())));
            }
        }
        if !ways.is_empty() && self.below(3) > 0 {
            let (sent, base, into) = ways.swap_remove(pick(ways.len()));
            let (volume, name) = names(sent);
            return Some(Op::Travel { volume, name, base: Some(names(base)), into });
        }
        let sent = *model.snapshots.keys().nth(pick(model.snapshots.len()))?;
        let (volume, name) = names(sent);
        // Of several copies, which one the new volume grows from is not for the model to know.
        let is_base = |(id, other): &(&u32, &_)| {
            **id != sent
                && Model::are_kin(other, &model.snapshots[&sent])
                && model.copies(other.origin).count() == 1
        };
        let bases: Vec<u32> = model.snapshots.iter().filter(is_base).map(|(id, _)| *id).collect();
        let base = (!bases.is_empty() && self.below(2) == 0).then(|| names(bases[pick(bases.len())]));
        may_create.then(|| Op::Travel { volume, name, base, into: new() })
    }

    /// Sends a snapshot and receives it; it goes on with what is there of it.
    pub async fn travel(&self, snapshot: &str, base: Option<String>, into: &str) -> Result<(), Error> {
        let begun = self.engine.receptions(Some(POOL)).await?;
        let begun = begun.into_iter().find(|part| format!("{POOL}/{}", part.volume) == into);
        let options = match begun {
            Some(part) => SendOptions { from: None, resume: Some(part.token) },
            None => SendOptions { from: self.maybe_bookmark(base.clone()).await, resume: None },
        };
        let is_marked = options.from != base;
        let mut result = self.pass_on(snapshot, options, into).await;
        // What changed since a bookmark is not always known: that is for the engine to say.
        if is_marked && matches!(&result, Err(error) if error.kind == ErrorKind::Invalid("from")) {
            result = self.pass_on(snapshot, SendOptions { from: base, resume: None }, into).await;
        }
        if result.is_err() {
            // Nothing may have been begun.
            let _ = self.engine.reception_delete(into).await;
        }
        result
    }

    /// At times a new bookmark of the base instead.
    async fn maybe_bookmark(&self, base: Option<String>) -> Option<String> {
        let (base, number) = (base?, self.number());
        if number.is_multiple_of(2) {
            return Some(base);
        }
        match self.engine.bookmark_create(&base, Some(format!("b{number}"))).await {
            Ok(mark) => Some(format!("{POOL}/{}#{}", mark.volume, mark.name)),
            Err(_) => Some(base),
        }
    }

    async fn pass_on(&self, snapshot: &str, options: SendOptions, into: &str) -> Result<(), Error> {
        let mut stream = self.engine.snapshot_send(snapshot, options).await?;
        let mut receiver =
            self.engine.snapshot_receive(into, ReceiveOptions { discard_changes: true }).await?;
        while let Some(piece) = stream.next().await? {
            receiver.push(&piece).await?;
        }
        receiver.finish().await.map(drop)
    }

    /// What was being received when the power failed is received to its end, or given up.
    pub async fn finish(&self, begun: Option<Op>, is_doubtful: bool) -> Result<(), Failure> {
        let parts =
            self.engine.receptions(Some(POOL)).await.map_err(|error| told("listing receptions", error))?;
        match begun {
            // Whether it was done, contents do not tell, but from which snapshot the volume grows.
            Some(back @ Op::Rollback { .. }) if is_doubtful => self.perform(&back).await,
            Some(travel @ Op::Travel { .. }) if !parts.is_empty() && self.below(2) == 0 => {
                self.perform(&travel).await
            }
            _ => {
                for part in parts {
                    let given_up = self.engine.reception_delete(&format!("{POOL}/{}", part.volume)).await;
                    given_up.map_err(|error| told("giving up a reception", error))?;
                }
                Ok(())
            }
        }
    }
}
