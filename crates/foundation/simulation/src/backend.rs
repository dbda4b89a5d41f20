//! The runtime's view of a world: [`Backend`] and [`DiskBackend`] over it.
//!
//! A disk decides what an operation will do when it is submitted (rules, health, where a write lands), so that a
//! fault belongs to the n-th operation whatever the devices' timing; it happens when the operation's time comes.

use crate::cache::PageWrite;
use crate::disk::{DiscardEffect, Place, Work, WriteWork, pages_of};
use crate::fault::{Action, OpKind};
use crate::image::{PAGE, SECTOR};
use crate::record::Event;
use crate::world::{Inner, TURN_NS, Waiting};
use forebay_base::{Checksum, Nanos, WallTime};
use forebay_runtime::{
    Backend, BufMut, Class, Completion, Detached, DiskBackend, DiskError, DiskErrorKind, DiskOp, Done,
    Geometry, HandleId, Listener, NetError, OpenError, OpenMode, Stream, Unpark, Users, Wait,
};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

pub(crate) struct WorldBackend(pub Rc<Inner>);

/// A world has one thread: while it waits, nobody is there to wake it.
struct NobodyWaits;
impl Unpark for NobodyWaits {
    fn unpark(&self) {}
}

impl Backend for WorldBackend {
    fn now(&self) -> Nanos {
        Nanos(self.0.now.get())
    }

    fn wall(&self) -> WallTime {
        WallTime((self.0.wall_ms.get() as u64).saturating_add(self.0.now.get() / 1_000_000))
    }

    fn random(&self) -> u64 {
        let value = self.0.chance.borrow_mut().engine.next_u64();
        self.0.note([4, value, 0, 0]);
        value
    }

    fn turn(&self, wait: Wait) {
        let world = &*self.0;
        world.turns.set(world.turns.get() + 1);
        if world.turns.get() > world.config.turns_max
            && let Some(spinning) = world.spinning.borrow_mut().take()
        {
            spinning.complete(());
        }
        let next = world.queue.borrow().peek().map(|due| due.at);
        let now = world.now.get();
        let to = match (wait, next) {
            (Wait::Poll, _) => now + TURN_NS,
            (Wait::Until(Nanos(until)), Some(next)) => next.min(until),
            (Wait::Until(Nanos(until)), None) => until,
            (Wait::Forever, Some(next)) => next,
            // Only the turn after the main task's end: until then its deadline is a timer.
            (Wait::Forever, None) => now,
        };
        world.now.set(to.max(now));
        world.deliver();
    }

    fn unparker(&self) -> Arc<dyn Unpark> {
        Arc::new(NobodyWaits)
    }

    fn open_disk(&self, path: &str, mode: OpenMode) -> Result<Rc<dyn DiskBackend>, OpenError> {
        let index = *self.0.names.borrow().get(path).ok_or(OpenError::NotFound)?;
        if self.0.disks.borrow()[index].gone {
            return Err(OpenError::NotFound);
        }
        self.0.note([5, index as u64, mode as u64, 0]);
        let identity = self.0.disks.borrow()[index].geometry.identity;
        let handle = self.0.admission.borrow_mut().open(identity);
        Ok(Rc::new(WorldDisk { world: self.0.clone(), index, handle }))
    }

    fn owed(&self, identity: u64) -> usize {
        self.0.admission.borrow().owed(identity)
    }

    /// Only this process is there, and it has one name for each disk.
    fn find_users(&self, _: &str) -> Receiver<Result<Users, String>> {
        answer(Users::default())
    }

    /// A disk whose first page is not zero has something on it: that is where signatures are.
    fn find_contents(&self, path: &str) -> Receiver<Result<Option<String>, String>> {
        let index = self.0.names.borrow().get(path).copied();
        let has_signature = index.is_some_and(|index| {
            let mut page = [0; PAGE];
            self.0.disks.borrow()[index].current.read(0, &mut page);
            page != [0; PAGE]
        });
        answer(has_signature.then(|| "data".into()))
    }

    fn listen(&self, _: &str) -> Result<Listener, NetError> {
        Err(NetError { os: None })
    }

    fn connect(&self, _: &str) -> Completion<Result<Stream, NetError>> {
        Completion::ready(Err(NetError { os: None }))
    }

    fn attach(&self, _: Detached) -> Stream {
        unreachable!("a world without a network has no connection to attach")
    }

    fn pick(&self, ready: usize) -> usize {
        if !self.0.config.shuffle {
            return 0;
        }
        let picked = self.0.chance.borrow_mut().order.below(ready as u64);
        self.0.note([3, ready as u64, picked, 0]);
        picked as usize
    }
}

/// What is known at once.
fn answer<T>(value: T) -> Receiver<Result<T, String>> {
    let (send, receive) = channel();
    send.send(Ok(value)).expect("the answer is awaited");
    receive
}

/// One disk of the world, as one task holds it.
struct WorldDisk {
    world: Rc<Inner>,
    index: usize,
    handle: HandleId,
}

impl Drop for WorldDisk {
    fn drop(&mut self) {
        self.world.admission.borrow_mut().close(self.handle);
    }
}

/// What the device will do with an operation, decided when it accepts it.
struct Verdict {
    action: Option<Action>,
    slower: u32,
    hangs: bool,
}

impl WorldDisk {
    /// Counts the operation, writes it into the trace and asks the rules.
    fn accept(&self, kind: OpKind, bytes: &Range<u64>, contents: u64) -> Verdict {
        let world = &*self.world;
        let count = world.disks.borrow_mut()[self.index].count(kind);
        world.note([
            1 | (self.index as u64) << 8 | (kind as u64) << 32,
            bytes.start,
            bytes.end ^ count << 48,
            contents,
        ]);
        let mut chance = world.chance.borrow_mut();
        let mut rules = world.rules.borrow_mut();
        let action =
            rules.iter_mut().find_map(|rule| rule.fires(self.index, kind, bytes, &mut chance.faults));
        let mut verdict = Verdict { action: None, slower: 1, hangs: false };
        match action {
            Some(Action::Slow(times)) => verdict.slower = times,
            Some(Action::Hang) => verdict.hangs = true,
            Some(Action::Vanish) => world.disks.borrow_mut()[self.index].gone = true,
            other => verdict.action = other,
        }
        verdict
    }

    fn start(&self, verdict: &Verdict, work: Work) {
        let releases = self.world.disks.borrow()[self.index].releases;
        let (slower, hangs) = (verdict.slower, verdict.hangs.then_some(releases));
        self.world.ask(Waiting { disk: self.index, work, slower, hangs });
    }

    fn place(&self, class: Class) -> Place {
        Place { handle: self.handle, class }
    }

    fn read(&self, at: u64, into: BufMut, done: Done<(BufMut, Result<(), DiskError>)>) {
        let bytes = at..at + into.len() as u64;
        let verdict = self.accept(OpKind::Read, &bytes, 0);
        let fails = {
            let disk = &mut self.world.disks.borrow_mut()[self.index];
            match verdict.action {
                _ if disk.ends_before(&bytes) => Some(DiskErrorKind::Shrunk),
                _ if !disk.contains(&bytes) => Some(DiskErrorKind::Io),
                _ if disk.any_unreadable(&bytes) => Some(DiskErrorKind::Unreadable),
                Some(Action::Fail(kind) | Action::FailAfter(kind)) => Some(kind),
                _ => None,
            }
        };
        let place = self.place(Class::Ordinary);
        self.start(&verdict, Work::Read { place, at, into, done, fails });
    }

    /// A write or, with the pages of its effect, a discard.
    fn write(
        &self,
        kind: OpKind,
        mut at: u64,
        mut pages: Vec<PageWrite>,
        mut durable: bool,
        class: Class,
        done: Done<Result<(), DiskError>>,
    ) {
        let world = &*self.world;
        let bytes = at..at + (pages.len() * PAGE) as u64;
        let contents = if world.config.trace_contents { contents_of(&pages) } else { 0 };
        let verdict = self.accept(kind, &bytes, contents);
        let (mut done_at_all, mut fails) = (true, None);
        {
            let disk = &mut world.disks.borrow_mut()[self.index];
            let is_short = disk.ends_before(&bytes);
            assert!(
                is_short || disk.contains(&bytes),
                "a {kind:?} of {bytes:?} reaches beyond the end of sim{}",
                self.index
            );
            match verdict.action {
                _ if is_short => (done_at_all, fails) = (false, Some(DiskErrorKind::Shrunk)),
                Some(Action::Fail(kind)) => (done_at_all, fails) = (false, Some(kind)),
                Some(Action::FailAfter(kind)) => fails = Some(kind),
                Some(Action::Lose) => done_at_all = false,
                Some(Action::Lie) => durable = false,
                Some(Action::Misdirect(to)) => {
                    let places = (disk.geometry.size - (bytes.end - bytes.start)) / PAGE as u64 + 1;
                    at = to.unwrap_or_else(|| world.chance.borrow_mut().faults.below(places) * PAGE as u64);
                }
                Some(Action::Tear(sectors)) => {
                    give_contents(kind, &mut pages);
                    for (index, page) in pages.iter_mut().enumerate() {
                        let mut old = [0; PAGE];
                        disk.current.read(at + (index * PAGE) as u64, &mut old);
                        let kept =
                            sectors.saturating_sub(index * (PAGE / SECTOR)).min(PAGE / SECTOR) * SECTOR;
                        edit(page, |bytes| bytes[kept..].copy_from_slice(&old[kept..]));
                    }
                }
                Some(Action::Flip(bit)) => {
                    give_contents(kind, &mut pages);
                    let bit = bit % ((bytes.end - bytes.start) * 8);
                    let byte = (bit / 8) as usize;
                    edit(&mut pages[byte / PAGE], |bytes| bytes[byte % PAGE] ^= 1 << (bit % 8));
                }
                _ => {}
            }
        }
        let id = world.next_number();
        let pages: Rc<[PageWrite]> = pages.into();
        world.disks.borrow_mut()[self.index].written += (pages.len() * PAGE) as u64;
        if done_at_all {
            world.disks.borrow_mut()[self.index].cache.submit(id, at, pages.clone());
            world.record(|| Event::Submitted { disk: self.index, id, at, pages: pages.clone() });
        }
        let place = self.place(class);
        let write = WriteWork { place, id, at, pages, durable, done_at_all, done, fails };
        self.start(&verdict, Work::Write(write));
    }

    fn flush(&self, done: Done<Result<(), DiskError>>) {
        let verdict = self.accept(OpKind::Flush, &(0..self.geometry().size), 0);
        let covers = self.world.disks.borrow()[self.index].cache.completed().into();
        let is_short = self.world.disks.borrow_mut()[self.index].ends_before(&(0..0));
        let (honest, fails) = match verdict.action {
            _ if is_short => (false, Some(DiskErrorKind::Shrunk)),
            Some(Action::Lie) => (false, None),
            Some(Action::Fail(kind)) => (false, Some(kind)),
            Some(Action::FailAfter(kind)) => (true, Some(kind)),
            _ => (true, None),
        };
        let place = self.place(Class::Reserved);
        self.start(&verdict, Work::Flush { place, covers, honest, done, fails });
    }

    fn discard(&self, at: u64, len: u64, done: Done<Result<(), DiskError>>) {
        let effect = self.world.disks.borrow()[self.index].discard;
        let page = match effect {
            DiscardEffect::Zeros => PageWrite::Zeros,
            DiscardEffect::Nothing => PageWrite::Superseded,
            DiscardEffect::Garbage => PageWrite::Data(Rc::new([0xdb; PAGE])),
        };
        let pages = vec![page; (len / PAGE as u64) as usize];
        self.write(OpKind::Discard, at, pages, false, Class::Ordinary, done);
    }
}

impl DiskBackend for WorldDisk {
    fn geometry(&self) -> Geometry {
        self.world.disks.borrow()[self.index].geometry.clone()
    }

    fn give_up(&self) {
        self.world.give_up(self.handle);
    }

    fn submit(&self, op: DiskOp) {
        match op {
            DiskOp::Read { at, into, done } => {
                assert!(
                    at % PAGE as u64 == 0 && into.len() % PAGE == 0,
                    "an unaligned read of {at}+{}",
                    into.len()
                );
                self.read(at, into, done);
            }
            DiskOp::Write { at, from, durable, class, done } => {
                assert!(at % PAGE as u64 == 0, "an unaligned write at {at}");
                let pages = pages_of(&from, &mut self.world.recent.borrow_mut());
                self.write(OpKind::Write, at, pages, durable, class, done);
            }
            DiskOp::Flush { done } => self.flush(done),
            DiskOp::Discard { at, len, done } => {
                assert!((at | len) % PAGE as u64 == 0, "an unaligned discard of {at}+{len}");
                self.discard(at, len, done);
            }
        }
    }
}

fn contents_of(pages: &[PageWrite]) -> u64 {
    pages.iter().fold(0, |hash: u64, page| match page {
        PageWrite::Data(page) => hash.wrapping_mul(31) ^ Checksum::of(&page[..]).0 as u64,
        _ => hash.wrapping_mul(31),
    })
}

/// Zeros that are written, and not discarded, can be damaged like anything else.
fn give_contents(kind: OpKind, pages: &mut [PageWrite]) {
    for page in pages.iter_mut().filter(|page| kind == OpKind::Write && matches!(page, PageWrite::Zeros)) {
        *page = PageWrite::Data(Rc::new([0; PAGE]));
    }
}

/// Changes a copy of a page; one without contents stays as it is.
fn edit(page: &mut PageWrite, change: impl FnOnce(&mut [u8; PAGE])) {
    if let PageWrite::Data(bytes) = page {
        change(Rc::make_mut(bytes));
    }
}
