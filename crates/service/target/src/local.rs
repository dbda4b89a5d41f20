//! What sessions on one core share: the memory they may hold together, a watch over their pace, and the strings by which
//! to stop them.
//!
//! **Memory.** Each session may hold 32 MiB and one request more; a thousand of them could hold more than the machine has. So
//! the requests of one core together may start only while they hold less than [`BYTES_MAX_CORE`], and those of one address
//! only while they hold less than [`BYTES_MAX_ADDRESS`]. A session that holds next to nothing ([`BYTES_RESERVED`]) may
//! always go on: small requests never wait for what others hold.
//!
//! **Pace.** A client that sends half a write, or does not read its replies, would keep its share for ever. So a session whose
//! turn it is not has [`PACE_TIME`] for each [`PACE_BYTES`] that its client sends or takes, or for what is left of the
//! request; a byte now and then does not count. One task of each core looks after that every [`TICK`] and counts ticks, not
//! time: a daemon that stood still itself sees one tick go by, and ends nobody for it. A session that did not go on for a whole
//! tick has halted: it is told, and gives up its right to its place.

use crate::admission::Origin;
use forebay_runtime::Rt;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

/// Bytes that the requests of all sessions on one core may hold before the next one must wait: eight busy sessions.
pub const BYTES_MAX_CORE: u64 = 256 << 20;
/// Bytes that those of one address may hold: half of that, so that one client leaves as much to the others.
pub const BYTES_MAX_ADDRESS: u64 = BYTES_MAX_CORE / 2;
/// Bytes that a session may hold whatever others hold: eight requests of 8 KiB. A thousand sessions hold 64 MiB with it.
pub const BYTES_RESERVED: u64 = 64 << 10;
/// What a client has to send or take within [`PACE_TIME`]: 35 kB/s, which every network of today can do.
pub const PACE_BYTES: u64 = 1 << 20;
pub const PACE_TIME: Duration = Duration::from_secs(TICK.as_secs() * TICKS_MAX as u64);
/// How often the pace of all sessions is looked at. It is seen this much late.
pub const TICK: Duration = Duration::from_secs(5);
const TICKS_MAX: u32 = 6;

/// The sessions of one core.
#[derive(Default)]
pub struct Local {
    all: Pool,
    addresses: RefCell<HashMap<Origin, Rc<Pool>>>,
    controls: RefCell<HashMap<u64, Rc<Control>>>,
    is_watched: Cell<bool>,
}

/// Bytes held, and who waits for some to be released.
#[derive(Default)]
struct Pool {
    held: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Pool {
    fn hold(&self, bytes: u64) {
        self.held.set(self.held.get() + bytes);
    }

    fn release(&self, bytes: u64, max: u64) {
        let before = self.held.get();
        self.held.set(before.checked_sub(bytes).expect("no more is released than was held"));
        if before >= max && before - bytes < max {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Whether less than `max` is held; otherwise `task` is woken when it is.
    fn has_room(&self, max: u64, task: &Waker) -> bool {
        let room = self.held.get() < max;
        let mut waiting = self.waiting.borrow_mut();
        if !room && !waiting.iter().any(|known| known.will_wake(task)) {
            waiting.push(task.clone());
        }
        room
    }
}

/// How others reach a session.
pub struct Control {
    /// The server it belongs to.
    pub server: u64,
    stop: Cell<Option<Stop>>,
    task: RefCell<Option<Waker>>,
    held: Cell<u64>,
    has_halted: Cell<bool>,
    /// Of data of writes, on their way here.
    pub input: Pace,
    /// Of replies, on their way out.
    pub output: Pace,
}

/// Why a session should end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The server is stopping: finish what runs, refuse what comes.
    Server,
    /// Its client is too slow.
    Stalled,
}

/// Whether a client keeps up with what it has begun.
#[derive(Default)]
pub struct Pace {
    runs: Cell<bool>,
    moved: Cell<u64>,
    ticks: Cell<u32>,
}

impl Pace {
    /// It is the client's turn. What was begun already goes on.
    pub fn begin(&self) {
        if !self.runs.replace(true) {
            self.moved.set(0);
            self.ticks.set(0);
        }
    }
    /// The client has done what it was to do.
    pub fn end(&self) {
        self.runs.set(false);
    }
    /// So many bytes have come or gone.
    pub fn moved(&self, bytes: u64) {
        let moved = self.moved.get() + bytes;
        if moved < PACE_BYTES {
            self.moved.set(moved);
        } else {
            self.moved.set(0);
            self.ticks.set(0);
        }
    }
    /// Counts, and says for how many whole ticks it was the client's turn and it did not do enough.
    fn tick(&self) -> u32 {
        let before = self.ticks.replace(self.ticks.get() + 1);
        // The first comes some time behind the beginning.
        if self.runs.get() { before } else { 0 }
    }
}

impl Control {
    pub fn stop(&self, why: Stop) {
        if self.stop.get().is_none() {
            self.stop.set(Some(why));
            if let Some(task) = self.task.take() {
                task.wake();
            }
        }
    }
    pub fn stopped(&self) -> Option<Stop> {
        self.stop.get()
    }
    /// Whether the client has halted since this was last asked.
    pub fn has_halted(&self) -> bool {
        self.has_halted.take()
    }
    fn set_halted(&self) {
        self.has_halted.set(true);
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }
    /// Wakes `task` on a stop.
    pub fn register(&self, task: &Waker) {
        let mut registered = self.task.borrow_mut();
        if registered.as_ref().is_none_or(|known| !known.will_wake(task)) {
            *registered = Some(task.clone());
        }
    }
    pub fn held(&self) -> u64 {
        self.held.get()
    }
}

/// A session's membership; leaves when dropped, with all that it holds.
pub struct Member {
    id: u64,
    local: Rc<Local>,
    /// What its address holds, if it has one.
    address: Option<(Origin, Rc<Pool>)>,
    pub control: Rc<Control>,
}

impl Local {
    pub fn join(self: Rc<Self>, rt: &Rt, server: u64, id: u64, peer: &str) -> Member {
        let control = Rc::new(Control {
            server,
            stop: Cell::new(None),
            task: RefCell::default(),
            held: Cell::new(0),
            has_halted: Cell::new(false),
            input: Pace::default(),
            output: Pace::default(),
        });
        self.controls.borrow_mut().insert(id, control.clone());
        if !self.is_watched.replace(true) {
            rt.spawn(watch(rt.clone(), self.clone()));
        }
        let address = Origin::of(peer)
            .map(|origin| (origin, self.addresses.borrow_mut().entry(origin).or_default().clone()));
        Member { id, local: self, address, control }
    }

    /// Stops all sessions of `server` on this core.
    pub fn stop(&self, server: u64) {
        self.all_controls()
            .iter()
            .filter(|control| control.server == server)
            .for_each(|c| c.stop(Stop::Server));
    }

    fn all_controls(&self) -> Vec<Rc<Control>> {
        self.controls.borrow().values().cloned().collect()
    }
}

/// Ends sessions whose clients do not keep pace, as long as there are sessions. A slow disk is not their fault.
async fn watch(rt: Rt, local: Rc<Local>) {
    loop {
        rt.sleep(TICK).await;
        let controls = local.all_controls();
        if controls.is_empty() {
            local.is_watched.set(false);
            return;
        }
        for control in controls {
            match control.input.tick().max(control.output.tick()) {
                0 => {}
                TICKS_MAX.. => control.stop(Stop::Stalled),
                _ => control.set_halted(),
            }
        }
    }
}

impl Member {
    pub fn hold(&self, bytes: u64) {
        self.control.held.set(self.control.held.get() + bytes);
        self.local.all.hold(bytes);
        self.address.iter().for_each(|(_, pool)| pool.hold(bytes));
    }

    pub fn release(&self, bytes: u64) {
        let held = self.control.held.get();
        self.control.held.set(held.checked_sub(bytes).expect("no more is released than was held"));
        self.local.all.release(bytes, BYTES_MAX_CORE);
        self.address.iter().for_each(|(_, pool)| pool.release(bytes, BYTES_MAX_ADDRESS));
    }

    /// Whether the session may hold so many bytes more; otherwise `task` is woken when others have released some.
    pub fn has_room(&self, bytes: u64, task: &Waker) -> bool {
        self.control.held.get() + bytes <= BYTES_RESERVED
            || self.local.all.has_room(BYTES_MAX_CORE, task)
                && self.address.iter().all(|(_, pool)| pool.has_room(BYTES_MAX_ADDRESS, task))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.release(self.control.held.get());
        self.local.controls.borrow_mut().remove(&self.id);
        if let Some((origin, pool)) = self.address.take() {
            let mut addresses = self.local.addresses.borrow_mut();
            // The map's and this one.
            if Rc::strong_count(&pool) == 2 {
                addresses.remove(&origin);
            }
        }
    }
}
