//! The logical units of one core, shared by all sessions that see them.
//!
//! A [`Live`] unit is a volume with its SCSI state ([`Unit`]) and the order of its commands ([`TaskSet`]). It comes to be
//! when the first session opens it, with the reservations that the volume keeps, and stays until the volume is gone:
//! registrations outlive sessions. A session that uses it has a [`Presence`] there: its nexus, how many of its
//! commands run, and how to reach it. Sessions of other cores have theirs here, too.
//!
//! What an initiator sends is given to a unit within [`contain`](forebay_base::panics::contain). That sessions come and go, and what they are told, is
//! not: no bytes of an initiator are looked at there, and a panic would be a broken invariant of what all sessions share.

use super::access::{Access, Disk, Mapping, Volumes};
use super::mail::{Mail, Receipt, Who, post};
use crate::facts::{Protocol, Watched, watched};
use forebay_base::Id;
use forebay_pool::{Bounds, Cancellation, Ceiling, IoError, Level};
use forebay_runtime::{Completer, Completion, Rt, completion};
use forebay_scsi::{
    Admission, Alignment, Attention, Nexus, NexusId, TaskAttribute, TaskSet, Unit, UnitConfig,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// A session at a unit.
pub struct Presence {
    pub nexus: NexusId,
    pub who: Arc<Who>,
    /// Its commands here, by number: those that wait for their turn, and those that the volume works for.
    running: RefCell<Vec<u64>>,
    number_next: Cell<u64>,
    /// Those who wait until all commands below a number have ended.
    idle: RefCell<Vec<(u64, Completer<()>)>>,
    pub alignment: RefCell<Alignment>,
    pub watched: Rc<Watched>,
    /// What its commands have to pass before they begin.
    pub bounds: Bounds,
    /// The session no longer sees the unit; what runs is finished.
    pub is_detached: Cell<bool>,
}

/// Counts a command of a presence as running until it is dropped.
pub struct Running {
    presence: Rc<Presence>,
    number: u64,
}

impl Presence {
    pub fn run(self: &Rc<Self>) -> Running {
        let number = self.number_next.get();
        self.number_next.set(number + 1);
        self.running.borrow_mut().push(number);
        Running { presence: self.clone(), number }
    }

    fn runs_below(&self, number: u64) -> bool {
        self.running.borrow().iter().any(|&running| running < number)
    }

    /// Until none of the commands that run now does; `None` when there are none. An initiator that goes on sending is not waited for.
    fn idle(&self) -> Option<Completion<()>> {
        let next = self.number_next.get();
        self.runs_below(next).then(|| {
            let (done, idle) = completion();
            self.idle.borrow_mut().push((next, done));
            idle
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Running { presence, number } = self;
        presence.running.borrow_mut().retain(|running| running != number);
        if presence.idle.borrow().is_empty() {
            return;
        }
        let (waiting, idle): (Vec<_>, Vec<_>) =
            presence.idle.take().into_iter().partition(|(next, _)| presence.runs_below(*next));
        presence.idle.replace(waiting);
        idle.into_iter().for_each(|(_, done)| done.complete(()));
    }
}

/// A logical unit in use.
pub struct Live<D> {
    pub id: Id,
    pub disk: D,
    pub unit: RefCell<Unit>,
    pub target: String,
    pub name: String,
    /// The volume is no longer there.
    pub is_gone: Cell<bool>,
    tasks: RefCell<TaskSet<u64>>,
    /// Commands that wait for their turn, by number.
    waiting: RefCell<HashMap<u64, Completer<()>>>,
    number_next: Cell<u64>,
    presences: RefCell<Vec<Rc<Presence>>>,
}

/// The turn of a command in the order of its unit; over when dropped.
pub struct Turn<D: Disk> {
    live: Rc<Live<D>>,
    attribute: TaskAttribute,
}

impl<D: Disk> Drop for Turn<D> {
    fn drop(&mut self) {
        self.live.tasks.borrow_mut().done(self.attribute);
        self.live.release();
    }
}

/// Why a command does not get its turn.
pub enum NoTurn {
    /// Too many commands wait for an ordered one.
    SetFull,
    /// It was cancelled while it waited.
    Cancelled,
}

impl<D: Disk> Live<D> {
    /// Waits for a command's turn, unless it is cancelled before.
    pub async fn turn(
        self: &Rc<Self>,
        attribute: TaskAttribute,
        cancellation: &Cancellation,
    ) -> Result<Turn<D>, NoTurn> {
        let number = self.number_next.get();
        self.number_next.set(number + 1);
        let admission = self.tasks.borrow_mut().add(attribute, number);
        match admission {
            Admission::Run(_) => {}
            Admission::Full(_) => return Err(NoTurn::SetFull),
            Admission::Waits => {
                let (done, turn) = completion();
                self.waiting.borrow_mut().insert(number, done);
                let has_turn = cancellation.unless_cancelled(turn).await.is_some();
                if !has_turn && self.waiting.borrow_mut().remove(&number).is_some() {
                    self.tasks.borrow_mut().abort(|waits| *waits == number);
                    // Those behind it may have waited for it alone.
                    self.release();
                    return Err(NoTurn::Cancelled);
                }
            }
        }
        // One that was cancelled when its turn had come has it, and looks itself whether it is still wanted.
        Ok(Turn { live: self.clone(), attribute })
    }

    /// Lets waiting commands go whose turn has come.
    fn release(&self) {
        loop {
            let next = self.tasks.borrow_mut().next_ready();
            let Some((_, number)) = next else { return };
            let done = self.waiting.borrow_mut().remove(&number);
            // Commands are finished, never dropped, and a cancelled one leaves both lists at once.
            done.expect("a command that waits is listed").complete(());
        }
    }

    /// What changed about the volume since the last command.
    pub fn refresh(&self) {
        let mut unit = self.unit.borrow_mut();
        unit.set_size(self.disk.size());
        unit.set_sync(self.disk.sync());
    }

    /// A session comes to use the unit; `None` when it has too many already.
    pub fn attach(&self, rt: &Rt, who: &Arc<Who>, access: &dyn Access) -> Option<Rc<Presence>> {
        if let Some(known) = self.presence(who.session) {
            return Some(known);
        }
        let nexus = Nexus { initiator: who.port.clone(), portal_group: who.portal_group };
        let nexus = self.unit.borrow_mut().attach(nexus).ok()?;
        let bounds = Bounds::new(&Level::default());
        bounds.share(access.ceiling(&who.initiator));
        let presence = Rc::new(Presence {
            nexus,
            who: who.clone(),
            running: RefCell::default(),
            number_next: Cell::new(0),
            idle: RefCell::default(),
            alignment: RefCell::default(),
            watched: watched(rt, Protocol::Iscsi, &who.initiator, self.id),
            bounds,
            is_detached: Cell::new(false),
        });
        self.presences.borrow_mut().push(presence.clone());
        Some(presence)
    }

    pub fn presence(&self, session: u64) -> Option<Rc<Presence>> {
        self.presences.borrow().iter().find(|presence| presence.who.session == session).cloned()
    }

    /// A session leaves, after its last command.
    pub fn detach(&self, session: u64) {
        let mut presences = self.presences.borrow_mut();
        if let Some(at) = presences.iter().position(|presence| presence.who.session == session) {
            let left = presences.swap_remove(at);
            left.is_detached.set(true);
            left.bounds.look_again();
            self.unit.borrow_mut().detach(left.nexus);
        }
    }

    /// A session's host gets this at most from now on.
    pub fn bound(&self, session: u64, ceiling: Option<Arc<Ceiling>>) {
        if let Some(presence) = self.presence(session) {
            presence.bounds.share(ceiling);
        }
    }

    /// Tells one session's nexus.
    pub fn tell(&self, session: u64, attention: Attention) {
        if let Some(presence) = self.presence(session) {
            self.unit.borrow_mut().raise_to(attention, |nexus| nexus == presence.nexus);
        }
    }

    /// Aborts the commands of the sessions that `which` names, tells them with `tell`, and waits until what the volume does for them is done.
    ///
    /// Sessions cancel their commands and then return a receipt, behind all that they have sent here. So when all receipts have come, none of
    /// these commands begins any more: a unit attention that is raised now is told with a command that the initiator gets an answer to. What
    /// comes later finds the attention, and is not waited for.
    pub async fn abort(
        &self,
        rt: &Rt,
        cores: &forebay_runtime::Cores,
        which: impl Fn(&Presence) -> bool,
        tell: impl FnOnce(&mut Unit),
    ) {
        let all = self.presences.borrow().clone();
        let concerned: Vec<_> = all.into_iter().filter(|presence| which(presence)).collect();
        let mut receipts = Vec::with_capacity(concerned.len());
        for presence in &concerned {
            let (receipt, returned) = Receipt::new(rt);
            post(cores, rt, &presence.who, Mail::Abort(self.id, receipt));
            receipts.push(returned);
        }
        for returned in receipts {
            // An error means that the session has gone, and its commands before it.
            let _ = returned.await;
        }
        tell(&mut self.unit.borrow_mut());
        let idle: Vec<_> = concerned.iter().filter_map(|presence| presence.idle()).collect();
        for idle in idle {
            idle.await;
        }
    }

    /// LOGICAL UNIT RESET, asked for by `session`, which looks after its own commands.
    pub async fn reset(&self, rt: &Rt, cores: &forebay_runtime::Cores, session: u64) {
        self.abort(rt, cores, |presence| presence.who.session != session, Unit::reset).await;
    }

    /// CLEAR TASK SET, asked for by `session`.
    pub async fn clear(&self, rt: &Rt, cores: &forebay_runtime::Cores, session: u64) {
        let own = self.presence(session).map(|presence| presence.nexus);
        let tell = |unit: &mut Unit| unit.raise_to(Attention::CommandsCleared, |nexus| Some(nexus) != own);
        self.abort(rt, cores, |presence| presence.who.session != session, tell).await;
    }
}

/// The units of this core.
pub struct Units<D> {
    live: RefCell<HashMap<Id, Rc<Live<D>>>>,
    /// Who waits for a unit that is being opened.
    opening: RefCell<HashMap<Id, Vec<Completer<()>>>>,
}

impl<D> Default for Units<D> {
    fn default() -> Units<D> {
        Units { live: RefCell::default(), opening: RefCell::default() }
    }
}

impl<D: Disk> Units<D> {
    pub fn get(&self, id: Id) -> Option<Rc<Live<D>>> {
        self.live.borrow().get(&id).cloned()
    }

    pub fn all(&self) -> Vec<Rc<Live<D>>> {
        self.live.borrow().values().cloned().collect()
    }

    /// The volume is no longer there.
    pub fn forget(&self, live: &Live<D>) {
        if !live.is_gone.replace(true) {
            self.live.borrow_mut().remove(&live.id);
        }
    }

    /// The unit of a volume, which this core owns.
    pub async fn open<V: Volumes<Disk = D>>(
        &self,
        rt: &Rt,
        volumes: &V,
        mapping: &Mapping,
        who: &Who,
    ) -> Result<Rc<Live<D>>, IoError> {
        let id = mapping.volume;
        loop {
            if let Some(live) = self.get(id) {
                return Ok(live);
            }
            let turn = self.opening.borrow_mut().get_mut(&id).map(|waiters| {
                let (done, turn) = completion();
                waiters.push(done);
                turn
            });
            match turn {
                Some(turn) => turn.await,
                None => break,
            }
        }
        self.opening.borrow_mut().insert(id, Vec::new());
        let opened = self.open_first(rt, volumes, mapping, who).await;
        if let Ok(live) = &opened {
            self.live.borrow_mut().insert(id, live.clone());
        }
        let waiters = self.opening.borrow_mut().remove(&id).unwrap_or_default();
        waiters.into_iter().for_each(|done| done.complete(()));
        opened
    }

    async fn open_first<V: Volumes<Disk = D>>(
        &self,
        rt: &Rt,
        volumes: &V,
        mapping: &Mapping,
        who: &Who,
    ) -> Result<Rc<Live<D>>, IoError> {
        let disk = volumes.open(rt, mapping.volume)?;
        let state = disk.load_reservations().await?;
        let config = UnitConfig {
            id: mapping.volume,
            size: disk.size(),
            volume_block: disk.block_size(),
            format: mapping.format,
            sync: disk.sync(),
            read_only: disk.is_read_only(),
            target_name: who.target.clone(),
            portal_groups: who.portal_groups.clone(),
        };
        // What was stored by this software and passed the pool's checksums is whole, or the volume is not to be used.
        let unit = Unit::new(config, rt.arena().clone(), state.as_deref()).map_err(|_| IoError::Corrupt)?;
        Ok(Rc::new(Live {
            id: mapping.volume,
            disk,
            unit: RefCell::new(unit),
            target: who.target.clone(),
            name: mapping.name.clone(),
            is_gone: Cell::new(false),
            tasks: RefCell::default(),
            waiting: RefCell::default(),
            number_next: Cell::new(0),
            presences: RefCell::default(),
        }))
    }
}
