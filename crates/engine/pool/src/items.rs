//! The registry of a pool: what belongs to it beside its data, by key. Whom its volumes are mapped to, for one, so that this goes with the disks when they
//! go to another machine.
//!
//! The engine knows keys and values, and not what they mean. All are in memory, on shard 0; a change is durable when its record is in the log
//! ([`forebay_log::Record::Items`]), all of it or nothing, and a checkpoint writes the leaves of the table that have changed ([`crate::tables`]). A value
//! that is longer than a row takes several, in whatever leaves have room: they come and go with one checkpoint.
//!
//! ```text
//! row of 508 bytes: 0 number of the item 8   8 piece 2   10 pieces 2   12 bytes here 2   14 bytes of the key 2   16 bytes of key and value, one after the other
//! ```
//!
//! Nothing of the data hangs on it: where a part cannot be read, the import goes on without that, and says so.

use crate::Engine;
use crate::checkpoint::NodeWriter;
use crate::control::Control;
use crate::entry::{Change, Entry};
use crate::error::{Error, ErrorKind, IoError};
use crate::locks::RangeLocks;
use crate::open::{is_node_place, read_table};
use crate::reserve::Claim;
use crate::rows::Rows;
use crate::shard::Shard;
use crate::table_tree::{Place, Ref, Root, TableTree};
use crate::tables::{Table, nodes_of, per_leaf};
use async_recursion::async_recursion as boxed;
use forebay_base::Id;
use forebay_base::codec::{Reader, Truncated, Writer};
use forebay_base::planted::{Bug, active};
use forebay_raid::Array;
use forebay_space::{Addr, ChunkEntry, ChunkId, Ptr};
use forebay_tree::NODE_BODY;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Longest key, in bytes.
pub const ITEM_KEY_MAX: usize = 255;
/// Longest value.
pub const ITEM_VALUE_MAX: usize = 64 << 10;
/// Keys and values that are put at once: one record of the log.
pub const ITEMS_PUT_MAX: usize = 128 << 10;
/// Items that are put or taken away at once.
pub const ITEMS_CHANGED_MAX: usize = 256;
/// What the items of a pool may take, in memory and in its table: each some 0.5 KiB at least.
pub const ITEMS_BYTES_MAX: usize = 16 << 20;
/// The shard that has them.
pub(crate) const ITEMS_SHARD: usize = 0;
pub(crate) const ROW_BYTES: usize = 508;
const ROW_HEADER: usize = 16;
const ROW_CONTENT: usize = ROW_BYTES - ROW_HEADER;
const ROWS_PER_LEAF: usize = NODE_BODY / ROW_BYTES;
const _: () = assert!(ROWS_PER_LEAF * ROW_BYTES == NODE_BODY);
const ROWS_MAX: usize = ITEMS_BYTES_MAX / 512;
const _: () = assert!((ITEM_KEY_MAX + ITEM_VALUE_MAX).div_ceil(ROW_CONTENT) < 1 << 16);
/// Numbers from here on are not given: adding to one never overflows.
const NUMBERS_MAX: u64 = 1 << 63;

/// Items to put, and those without a value to take away.
pub type ItemChanges = BTreeMap<String, Option<Vec<u8>>>;

/// Whether there may be such an item.
fn is_possible(key: usize, value: usize) -> bool {
    (1..=ITEM_KEY_MAX).contains(&key) && value <= ITEM_VALUE_MAX
}

/// Rows of an item with so many bytes of key and value.
fn rows_of(bytes: usize) -> usize {
    bytes.div_ceil(ROW_CONTENT)
}

/// Leaves of the registry: those of a table that was never emptied lie before this one.
pub(crate) fn leaves_max() -> u64 {
    2 * (ROWS_MAX as u64).div_ceil(per_leaf(ROWS_PER_LEAF))
}

struct Item {
    key_bytes: usize,
    /// Key and value, one after the other.
    content: Rc<[u8]>,
}

impl Item {
    fn value(&self) -> &[u8] {
        &self.content[self.key_bytes..]
    }

    fn pieces(&self) -> u16 {
        rows_of(self.content.len()) as u16
    }
}

/// The items of a pool, and where they are stored.
pub(crate) struct Items {
    /// By numbers that mean nothing but which rows belong together.
    items: BTreeMap<u64, Item>,
    numbers: BTreeMap<String, u64>,
    next: u64,
    /// Rows of all items.
    taken: usize,
    rows: Rows<(u64, u16)>,
    /// Leaves that do not say what there is.
    changed: BTreeSet<u64>,
    tree: TableTree,
    /// Held (as range 0) while items are put: what is looked at before is so until it is done.
    turn: Rc<RangeLocks>,
}

/// What a freeze captured: the leaves that are to be written, and how many there are.
#[derive(Default)]
pub(crate) struct FrozenItems {
    bodies: BTreeMap<u64, Option<Vec<u8>>>,
    leaves: u64,
}

impl Default for Items {
    fn default() -> Items {
        Items {
            items: BTreeMap::new(),
            numbers: BTreeMap::new(),
            next: 1,
            taken: 0,
            rows: Rows::new(per_leaf(ROWS_PER_LEAF)),
            changed: BTreeSet::new(),
            tree: TableTree::new(Table::Registry),
            turn: Rc::default(),
        }
    }
}

/// A row as it is stored.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub number: u64,
    pub piece: u16,
    pub pieces: u16,
    pub key_bytes: usize,
    pub content: &'a [u8],
}

impl Row<'_> {
    pub fn encode(&self, into: &mut [u8]) {
        let mut w = Writer::new(into);
        w.u64(self.number).u16(self.piece).u16(self.pieces).u16(self.content.len() as u16);
        w.u16(self.key_bytes as u16).bytes(self.content);
    }

    /// Nothing when it is impossible.
    fn decode(row: &[u8]) -> Result<Option<Row<'_>>, Truncated> {
        let mut r = Reader::new(row);
        let (number, piece, pieces, bytes) = (r.u64()?, r.u16()?, r.u16()?, usize::from(r.u16()?));
        let key_bytes = usize::from(r.u16()?);
        let is_last = piece.checked_add(1) == Some(pieces);
        let is_possible = (1..NUMBERS_MAX).contains(&number)
            && piece < pieces
            && (1..=ITEM_KEY_MAX).contains(&key_bytes)
            && if is_last { (1..=ROW_CONTENT).contains(&bytes) } else { bytes == ROW_CONTENT };
        if !is_possible {
            return Ok(None);
        }
        Ok(Some(Row { number, piece, pieces, key_bytes, content: r.bytes(bytes)? }))
    }
}

impl Items {
    /// As a table says that is there, without what is `lost` of it, and whether that is all: what is impossible, or has lost a piece, is left out, and gone from
    /// the table with the next checkpoint.
    pub fn load(leaves: &[(u64, Vec<u8>)], lost: &[(Place, Ptr)], tree: TableTree) -> (Items, bool) {
        let mut items = Items { tree, ..Items::default() };
        for ((level, index), ptr) in lost {
            items.tree.put((*level, *index), Some(*ptr));
            items.changed.insert(index * TableTree::fan_out(Table::Registry).pow(*level as u32));
        }
        let mut pieces: BTreeMap<u64, BTreeMap<u16, Row<'_>>> = BTreeMap::new();
        for (leaf, body) in leaves {
            let rows = body.chunks_exact(ROW_BYTES).enumerate();
            for (place, row) in rows.filter(|(_, row)| row.iter().any(|byte| *byte != 0)) {
                let at = items.rows.row(*leaf, place).filter(|_| *leaf < leaves_max());
                let known = Row::decode(row).ok().flatten().zip(at);
                match known.filter(|(row, at)| items.rows.load(*at, (row.number, row.piece), 0)) {
                    Some((row, _)) => _ = pieces.entry(row.number).or_default().insert(row.piece, row),
                    None => _ = items.changed.insert(*leaf),
                }
            }
        }
        for (number, rows) in pieces {
            items.next = items.next.max(number + 1);
            if items.assemble(number, &rows).is_none() {
                let gone = rows.keys().filter_map(|piece| items.rows.remove((number, *piece)));
                items.changed.extend(gone);
            }
        }
        let is_whole = items.changed.is_empty();
        (items, is_whole)
    }

    fn assemble(&mut self, number: u64, rows: &BTreeMap<u16, Row<'_>>) -> Option<()> {
        let first = rows.get(&0)?;
        let belongs = |row: &Row<'_>| (row.pieces, row.key_bytes) == (first.pieces, first.key_bytes);
        if rows.len() != usize::from(first.pieces) || !rows.values().all(belongs) {
            return None;
        }
        let content: Vec<u8> = rows.values().flat_map(|row| row.content).copied().collect();
        let key = std::str::from_utf8(content.get(..first.key_bytes)?).ok()?;
        let value = content.len() - key.len();
        if self.numbers.contains_key(key)
            || !is_possible(key.len(), value)
            || self.taken + rows.len() > ROWS_MAX
        {
            return None;
        }
        self.numbers.insert(key.to_string(), number);
        self.taken += rows.len();
        self.items.insert(number, Item { key_bytes: first.key_bytes, content: content.into() });
        Some(())
    }

    /// Of a table that cannot be read: its root goes with the next checkpoint.
    pub fn unknown<'a>(root: &Root, chunk: impl Fn(ChunkId) -> Option<&'a ChunkEntry>) -> Items {
        let mut items = Items::default();
        if is_node_place(&root.at.ptr, chunk) {
            items.tree.put((root.height.into(), 0), Some(root.at.ptr));
            items.changed.insert(0);
        }
        items
    }

    /// Puts an item, or takes it away. One that is as it was stays where it is.
    pub fn change(&mut self, key: &str, value: Option<&[u8]>) {
        let known = self.numbers.get(key).copied();
        let before = known.map(|number| &self.items[&number]);
        if before.map(Item::value) == value {
            return;
        }
        let pieces_before = before.map_or(0, Item::pieces);
        let number = known.unwrap_or(self.next);
        let mut pieces = 0;
        match value {
            Some(value) => {
                let content: Rc<[u8]> = [key.as_bytes(), value].concat().into();
                let item = Item { key_bytes: key.len(), content };
                pieces = item.pieces();
                self.next = self.next.max(number + 1);
                self.numbers.insert(key.to_string(), number);
                self.items.insert(number, item);
            }
            None => {
                self.numbers.remove(key);
                self.items.remove(&number);
            }
        }
        self.taken = self.taken + usize::from(pieces) - usize::from(pieces_before);
        let taken = (0..pieces).map(|piece| self.rows.take((number, piece), 0)).collect::<Vec<_>>();
        self.changed.extend(taken);
        let gone = (pieces..pieces_before).filter_map(|piece| self.rows.remove((number, piece)));
        self.changed.extend(gone);
    }

    /// The same with what the log says, if it can be true.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Option<()> {
        let key = std::str::from_utf8(key).ok()?;
        is_possible(key.len(), value.map_or(0, <[u8]>::len)).then(|| self.change(key, value))
    }

    pub fn change_all(&mut self, changes: &ItemChanges) {
        changes.iter().for_each(|(key, value)| self.change(key, value.as_deref()));
    }

    /// All of them.
    pub fn all(&self) -> BTreeMap<String, Vec<u8>> {
        let value = |number: &u64| self.items[number].value().to_vec();
        self.numbers.iter().map(|(key, number)| (key.clone(), value(number))).collect()
    }

    /// Rows of all items after these changes.
    fn taken_with(&self, changes: &ItemChanges) -> usize {
        let now =
            |key: &str| self.numbers.get(key).map_or(0, |number| usize::from(self.items[number].pieces()));
        changes.iter().fold(self.taken, |taken, (key, value)| {
            taken - now(key) + value.as_ref().map_or(0, |value| rows_of(key.len() + value.len()))
        })
    }

    /// Nodes of the table, once it is written.
    pub fn nodes(&self) -> usize {
        nodes_of(self.rows.leaves_in_use() as u64, Table::Registry)
    }

    /// Nodes that it may have more with so many rows more.
    fn nodes_more(&self, rows: usize) -> usize {
        let leaves = self.rows.leaves_in_use() as u64 + (rows as u64).div_ceil(per_leaf(ROWS_PER_LEAF));
        nodes_of(leaves, Table::Registry) - self.nodes()
    }

    pub fn tree(&self) -> &TableTree {
        &self.tree
    }

    /// Captures the leaves that have changed, and these.
    pub fn freeze(&mut self, also: impl IntoIterator<Item = u64>) -> FrozenItems {
        let mut changed = std::mem::take(&mut self.changed);
        if active(Bug::RegistryLeafForgotten) {
            changed.pop_first();
        }
        changed.extend(also);
        let bodies = changed.into_iter().map(|leaf| (leaf, self.encode(leaf))).collect();
        FrozenItems { bodies, leaves: self.rows.leaves() }
    }

    fn encode(&self, leaf: u64) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        for (place, (number, piece)) in self.rows.in_leaf(leaf) {
            let item = &self.items[&number];
            let from = usize::from(piece) * ROW_CONTENT;
            let content = &item.content[from..item.content.len().min(from + ROW_CONTENT)];
            let row = Row { number, piece, pieces: item.pieces(), key_bytes: item.key_bytes, content };
            body.resize((place + 1) * ROW_BYTES, 0);
            row.encode(&mut body[place * ROW_BYTES..]);
        }
        (!body.is_empty()).then_some(body)
    }
}

/// The registry as it is stored, and why something of it is lost, if something is.
pub(crate) async fn read_items<'a>(
    array: &Array,
    (pool, shard): (Id, usize),
    root: &Root,
    chunk: impl Fn(ChunkId) -> Option<&'a ChunkEntry>,
) -> (Items, Option<String>) {
    let first: RefCell<Option<String>> = RefCell::default();
    let slots = |at: &Ref| chunk(at.ptr.addr().chunk()).map(|entry| entry.slots.clone());
    let lost = |error: &str| {
        first.borrow_mut().get_or_insert_with(|| error.to_string());
        true
    };
    let most = (pool, shard, Table::Registry, leaves_max() as usize);
    let stored = match read_table(array, most, root, slots, lost).await {
        Ok(stored) if stored.tree.all().all(|(_, ptr)| is_node_place(ptr, &chunk)) => stored,
        Ok(_) => return (Items::unknown(root, &chunk), Some("a node is in an invalid place".into())),
        Err(error) => return (Items::unknown(root, &chunk), Some(error)),
    };
    // What cannot be read may be anything: it is freed only if nothing else of the table is there.
    let mut places: BTreeSet<Addr> = stored.tree.all().map(|(_, ptr)| ptr.addr()).collect();
    let can_be = |(_, ptr): &&(Place, Ptr)| is_node_place(ptr, &chunk) && places.insert(ptr.addr());
    let lost: Vec<(Place, Ptr)> = stored.lost.iter().filter(can_be).copied().collect();
    let (items, is_whole) = Items::load(&stored.leaves, &lost, stored.tree);
    let why = (!is_whole).then(|| "it has invalid items, or items with missing pieces".into());
    (items, first.take().or(why))
}

impl Shard {
    /// Captures what of the registry the checkpoint will write.
    pub fn freeze_items(&self) -> FrozenItems {
        let mut also = self.take_suspects(Table::Registry);
        let mut items = self.items.borrow_mut();
        let space = self.space.borrow();
        if space.is_vacating() {
            also.extend(items.tree.leaves_to_leave(|id| space.is_in_vacated(id)));
        }
        items.freeze(also)
    }

    /// Writes what was captured.
    pub async fn write_items(
        &self,
        writer: &mut NodeWriter<'_>,
        frozen: FrozenItems,
    ) -> Result<Root, IoError> {
        let mut tree = std::mem::replace(&mut self.items.borrow_mut().tree, TableTree::new(Table::Registry));
        let (changed, leaves) = (frozen.bodies.keys().copied().collect(), frozen.leaves);
        let body = |leaf: u64| frozen.bodies.get(&leaf).cloned().flatten();
        let root = match frozen.bodies.is_empty() {
            true => Ok(tree.root(leaves, |_| Vec::new())),
            false => self.write_table(writer, &mut tree, (&changed, leaves), body).await,
        };
        self.items.borrow_mut().tree = tree;
        root
    }

    /// Makes changes of the registry durable, all at once; or says what they would take, if that is too much.
    async fn put_items(self: &Rc<Self>, changes: ItemChanges) -> Result<Result<(), usize>, IoError> {
        let turn = self.items.borrow().turn.clone();
        let _turn = turn.lock(0, 0).await;
        let (before, after) = {
            let items = self.items.borrow();
            (items.taken, items.taken_with(&changes))
        };
        // What makes it less is never refused.
        if after > ROWS_MAX.max(before) {
            return Ok(Err(after * 512));
        }
        let change = Change::Items { changes };
        let room = self.staging_room(change.record().len()).await?;
        let claim = if after > before { Claim::Ordinary } else { Claim::Urgent };
        // As they are now, and while the next checkpoint replaces them.
        let nodes = 2 * self.items.borrow().nodes_more(after.saturating_sub(before));
        let nodes = self.reserve_nodes(nodes as u64, claim).await?;
        let mut entry = Entry::new(self.entry_id(), vec![change], true);
        (entry.nodes, entry.room) = (Some(nodes), Some(room));
        let done = entry.awaited();
        self.submit(entry);
        done.await.map(Ok)
    }
}

impl Control {
    async fn put_items(&self, changes: ItemChanges) -> Result<(), Error> {
        let object = self.name();
        let invalid = |message: String| {
            Err(Error::new(ErrorKind::Invalid("key"), object, message)
                .remedy("Change fewer or smaller items at once"))
        };
        let length = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
        if let Some((key, value)) = changes.iter().find(|(key, value)| !is_possible(key.len(), length(value)))
        {
            return invalid(format!(
                "a registry item has a key of {} bytes and a value of {}; a key has 1 to {ITEM_KEY_MAX} bytes, and a value at most {ITEM_VALUE_MAX}",
                key.len(),
                length(value)
            ));
        }
        let bytes: usize = changes.iter().map(|(key, value)| key.len() + length(value)).sum();
        if bytes > ITEMS_PUT_MAX || changes.len() > ITEMS_CHANGED_MAX {
            return invalid(format!(
                "the request changes {} registry items with {bytes} bytes; the maximum is {ITEMS_CHANGED_MAX} items with {ITEMS_PUT_MAX} bytes",
                changes.len()
            ));
        }
        let put = |shard: Rc<Shard>| async move { shard.put_items(changes).await };
        let failed = |error| Error { object: object.into(), ..self.io_error(object, error) };
        let done = self.on_shard(ITEMS_SHARD, put).await?.map_err(failed)?;
        done.map_err(|bytes| {
            let message =
                format!("the pool's registry would take {bytes} bytes; its maximum is {ITEMS_BYTES_MAX}");
            let remedy = "Delete unused hosts, mappings or service levels";
            Error::new(ErrorKind::NoSpace, object, message).remedy(remedy)
        })
    }
}

impl Engine {
    /// All items of a pool's registry.
    #[boxed]
    pub async fn items(&self, pool: &str) -> Result<BTreeMap<String, Vec<u8>>, Error> {
        let all = |shard: Rc<Shard>| async move { shard.items.borrow().all() };
        self.on_pool(pool, move |control| async move { control.on_shard(ITEMS_SHARD, all).await }).await
    }

    /// Puts items into a pool's registry, and takes those away that have no value: all of it or nothing, durable when it is done. At most
    /// [`ITEMS_PUT_MAX`] bytes and [`ITEMS_CHANGED_MAX`] items at once; a key has 1 to [`ITEM_KEY_MAX`] bytes, a value at most [`ITEM_VALUE_MAX`], all of a pool [`ITEMS_BYTES_MAX`].
    ///
    /// # Errors
    /// Invalid when something is too long, no space when it would be too much, conflict when the pool is imported read-only, suspended.
    #[boxed]
    pub async fn put_items(&self, pool: &str, changes: ItemChanges) -> Result<(), Error> {
        self.on_writable_pool(pool, move |control| async move { control.put_items(changes).await }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(rows: &[Row<'_>]) -> Vec<u8> {
        let mut body = vec![0; NODE_BODY];
        rows.iter().zip(body.chunks_exact_mut(ROW_BYTES)).for_each(|(row, into)| row.encode(into));
        body
    }

    fn row(number: u64, (piece, pieces): (u16, u16), key_bytes: usize, content: &[u8]) -> Row<'_> {
        Row { number, piece, pieces, key_bytes, content }
    }

    fn load(leaves: &[(u64, Vec<u8>)]) -> (Vec<String>, bool) {
        let (items, is_whole) = Items::load(leaves, &[], TableTree::new(Table::Registry));
        (items.all().into_keys().collect(), is_whole)
    }

    #[test]
    fn what_no_version_writes_is_left_out_and_the_rest_is_there() {
        let (good, full) = (row(1, (0, 1), 1, b"a1"), [b'b'; ROW_CONTENT]);
        let both = || vec![row(2, (0, 2), 1, &full), row(2, (1, 2), 1, b"b")];
        assert_eq!(load(&[(0, leaf(&[good]))]), (vec!["a".into()], true));
        assert_eq!(load(&[(0, leaf(&both()))]), (vec!["b".into()], true));
        let cases: [(&str, Vec<Row<'_>>); 10] = [
            ("no number", vec![row(0, (0, 1), 1, b"b")]),
            ("a number that leaves no other", vec![row(u64::MAX, (0, 1), 1, b"b")]),
            ("no key", vec![row(2, (0, 1), 0, b"b")]),
            ("a key longer than the item", vec![row(2, (0, 1), 9, b"b")]),
            ("a key that is no text", vec![row(2, (0, 1), 1, b"\xff")]),
            ("a piece too many", vec![row(2, (1, 1), 1, b"b")]),
            ("a piece that is missing", vec![row(2, (0, 2), 1, &full)]),
            ("pieces that do not agree", vec![row(2, (0, 2), 1, &full), row(2, (1, 2), 2, b"b")]),
            ("a piece twice", [both(), vec![row(2, (1, 2), 1, b"b")]].concat()),
            ("a key that another has", vec![row(2, (0, 1), 1, b"a2")]),
        ];
        for (what, rows) in cases {
            let found = load(&[(0, leaf(&[row(1, (0, 1), 1, b"a1")])), (1, leaf(&rows))]);
            let keeps =
                if what == "a piece twice" { vec!["a".into(), "b".to_string()] } else { vec!["a".into()] };
            assert_eq!(found, (keeps, false), "{what}");
        }
        assert_eq!(
            load(&[(leaves_max(), leaf(&[row(2, (0, 1), 1, b"b")]))]),
            (vec![], false),
            "a leaf far out"
        );
    }

    #[test]
    fn a_record_that_cannot_be_true_is_refused() {
        let mut items = Items::default();
        let long = vec![b'k'; ITEM_VALUE_MAX + 1];
        assert_eq!(items.replay(b"", Some(b"v")), None);
        assert_eq!(items.replay(&long[..ITEM_KEY_MAX + 1], None), None);
        assert_eq!(items.replay(b"\xff", Some(b"v")), None);
        assert_eq!(items.replay(b"k", Some(&long)), None);
        assert_eq!((items.replay(b"k", Some(b"v")), items.replay(b"gone", None)), (Some(()), Some(())));
        assert_eq!(items.all(), BTreeMap::from([("k".into(), b"v".to_vec())]));
    }
}
