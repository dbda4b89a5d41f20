//! What sessions on one core share: the memory they may hold together, and the strings by which to stop them.
//!
//! Each session may hold 32 MiB and one request more; a thousand of them could hold more than the machine has. So the
//! requests of one core together may start only while they hold less than [`BYTES_MAX_CORE`]. A client that
//! sends half a write, or does not read its replies, would keep its share for ever: when others have waited
//! [`STALL_MAX`] for memory, sessions that hold some and made no progress for that long are ended.

use forebay_base::Nanos;
use forebay_runtime::Rt;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

/// Bytes that the requests of all sessions on one core may hold before the next one must wait: eight busy sessions.
pub const BYTES_MAX_CORE: u64 = 256 << 20;
/// How long a client may keep memory that others wait for without sending or receiving anything.
pub const STALL_MAX: Duration = Duration::from_secs(30);

/// The sessions of one core.
#[derive(Default)]
pub struct Local {
    held: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
    controls: RefCell<HashMap<u64, Rc<Control>>>,
}

/// How others reach a session.
pub struct Control {
    /// The server it belongs to.
    pub server: u64,
    stop: Cell<Option<Stop>>,
    task: RefCell<Option<Waker>>,
    held: Cell<u64>,
    /// It is the client's turn: half a write has come, or replies are on their way out.
    awaits_client: Cell<bool>,
    progress: Cell<Nanos>,
}

/// Why a session should end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The server is stopping: finish what runs, refuse what comes.
    Server,
    /// It keeps memory that others need.
    Stalled,
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
    /// Wakes `task` on a stop.
    pub fn register(&self, task: &Waker) {
        let mut registered = self.task.borrow_mut();
        if registered.as_ref().is_none_or(|known| !known.will_wake(task)) {
            *registered = Some(task.clone());
        }
    }
    /// The client sent or received something.
    pub fn progressed(&self, now: Nanos) {
        self.progress.set(now);
    }
    pub fn set_awaits_client(&self, awaits: bool) {
        self.awaits_client.set(awaits);
    }
    pub fn held(&self) -> u64 {
        self.held.get()
    }
}

/// A session's membership; leaves when dropped, with all that it holds.
pub struct Member {
    id: u64,
    local: Rc<Local>,
    pub control: Rc<Control>,
}

impl Local {
    pub fn join(self: Rc<Self>, rt: &Rt, server: u64, id: u64) -> Member {
        let control = Rc::new(Control {
            server,
            stop: Cell::new(None),
            task: RefCell::default(),
            held: Cell::new(0),
            awaits_client: Cell::new(false),
            progress: Cell::new(rt.now()),
        });
        self.controls.borrow_mut().insert(id, control.clone());
        Member { id, local: self, control }
    }

    /// Stops all sessions of `server` on this core.
    pub fn stop(&self, server: u64) {
        let controls: Vec<_> = self.controls.borrow().values().cloned().collect();
        controls.iter().filter(|control| control.server == server).for_each(|c| c.stop(Stop::Server));
    }
}

impl Member {
    pub fn hold(&self, bytes: u64) {
        self.control.held.set(self.control.held.get() + bytes);
        self.local.held.set(self.local.held.get() + bytes);
    }

    pub fn release(&self, bytes: u64) {
        let (mine, all) = (self.control.held.get(), self.local.held.get());
        self.control.held.set(mine.checked_sub(bytes).expect("no more is released than was held"));
        self.local.held.set(all - bytes);
        if all >= BYTES_MAX_CORE && all - bytes < BYTES_MAX_CORE {
            self.local.waiting.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Whether the core has memory for a further request; otherwise `task` is woken when it has.
    pub fn has_room(&self, task: &Waker) -> bool {
        let room = self.local.held.get() < BYTES_MAX_CORE;
        let mut waiting = self.local.waiting.borrow_mut();
        if !room && !waiting.iter().any(|known| known.will_wake(task)) {
            waiting.push(task.clone());
        }
        room
    }

    /// Ends sessions whose clients have kept memory for [`STALL_MAX`] without progress. A slow disk is not their fault.
    pub fn end_stalled(&self, now: Nanos) {
        let controls: Vec<_> = self.local.controls.borrow().values().cloned().collect();
        for control in controls {
            let idle = Duration::from_nanos(now.since(control.progress.get()));
            if control.held.get() > 0 && control.awaits_client.get() && idle >= STALL_MAX {
                control.stop(Stop::Stalled);
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.release(self.control.held.get());
        self.local.controls.borrow_mut().remove(&self.id);
    }
}
