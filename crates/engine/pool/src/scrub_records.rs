//! The part of a scrub that reads what says where all else is: the records of chunks, and the tables. Of the tables nothing can be lost, since memory has them; what
//! a record says is read before it is written anew, and without a good copy the chunk counts as full.

use crate::scrub::Found;
use crate::shard::Shard;
use crate::table_tree::{Place, TableTree};
use crate::tables::Table;
use forebay_raid::ArrayError;
use forebay_runtime::yield_now;
use forebay_space::{ChunkId, ChunkKind, Ptr, decode_record};
use forebay_tree::{NODE_BYTES, decode_node};
use std::rc::Rc;

impl Shard {
    /// Reads every copy of every chunk's record; a chunk with a bad one gets new ones at the next checkpoint.
    pub async fn scrub_records(self: &Rc<Self>) {
        let mut from = ChunkId::FIRST;
        let next = |from| self.space.borrow().chunks_from(from).next().map(|chunk| chunk.entry.id);
        while let Some(id) = next(from) {
            from = ChunkId(id.0 + 1);
            // One that is dirty is passed over without a wait.
            yield_now().await;
            if self.is_scrub_halted() {
                return;
            }
            let _hold = self.holds.take();
            let entry = {
                let space = self.space.borrow();
                space.chunk(id).filter(|chunk| !chunk.dirty).map(|chunk| chunk.entry.clone())
            };
            let Some(entry) = entry.filter(|entry| entry.kind != ChunkKind::Log) else { continue };
            let is_same = |chunk: &forebay_space::Chunk| chunk.entry == entry && !chunk.dirty;
            let is_current = || self.space.borrow().chunk(id).is_some_and(is_same);
            // One that is not the chunk's any more may say what it likes.
            let check =
                |bytes: &[u8]| decode_record(bytes, self.shared.id, &entry).is_some() || !is_current();
            for slot in entry.slots.iter().filter(|slot| self.array.member(slot.disk).is_some()) {
                let read = self.read_record(&[*slot], &entry, check).await;
                if read.is_err() && is_current() {
                    self.space.borrow_mut().rewrite_record(id);
                    self.scrub_found(Found { repaired: 1, ..Found::default() });
                    break;
                }
            }
        }
    }

    /// Reads every copy of every node of the tables. A bad one is no loss, since what it says is in memory: the next checkpoint writes it elsewhere.
    pub async fn scrub_tables(self: &Rc<Self>) {
        let mut from = (Table::Catalog, (0, 0));
        loop {
            yield_now().await;
            // The running checkpoint has the tables.
            if self.between_checkpoints().await.is_err() || self.is_scrub_halted() {
                return;
            }
            let _hold = self.holds.take();
            let Some((table, place, ptr)) = self.table_node(from) else { return };
            from = (table, (place.0, place.1 + 1));
            let header = table.header(self.shared.id, self.index, place.0, place.1);
            let check = |bytes: &[u8]| decode_node(bytes, &header, &ptr).is_ok();
            let Some(slots) = self.slots(&ptr) else { continue };
            for slot in &slots {
                let Some(member) = self.array.member(slot.disk) else { continue };
                let read = self.array.read(&[*slot], ptr.addr().offset(), NODE_BYTES, check).await;
                let Err(error) = read.map(drop) else { continue };
                if self.has_moved(&ptr, &slots) {
                    break;
                }
                if error == ArrayError::Corrupt {
                    let at = member.layout.slot_at(slot.slot) + ptr.addr().offset();
                    member.health.failed_check(self.rt.now(), at..at + NODE_BYTES as u64);
                }
                let leaf = place.1 * TableTree::fan_out(table).pow(place.0 as u32);
                self.suspects.borrow_mut().insert((table, leaf));
                self.scrub_found(Found { repaired: 1, ..Found::default() });
                break;
            }
        }
    }

    /// The first node of the tables from one on: by table, level and number.
    fn table_node(&self, from: (Table, Place)) -> Option<(Table, Place, Ptr)> {
        let (tables, damage, items) = (self.tables.borrow(), self.damage.borrow(), self.items.borrow());
        let trees = [&tables.catalog, &tables.table, damage.tree(), items.tree()];
        let all = trees.into_iter().filter(|tree| tree.table >= from.0);
        let first = |tree: &TableTree| {
            let place = if tree.table == from.0 { from.1 } else { (0, 0) };
            tree.next(place).map(|(place, ptr)| (tree.table, place, ptr))
        };
        all.filter_map(first).next()
    }
}
