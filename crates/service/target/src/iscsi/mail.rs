//! What is told to a session from outside: by management, by other sessions, by other cores.
//!
//! Every session has a [`Mailbox`] on its core. Mail to a session that has gone is dropped: what it asks for has
//! then happened.

use forebay_base::Id;
use forebay_runtime::{Cores, Rt};
use forebay_scsi::InitiatorPort;
use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

/// A session, as everyone it deals with knows it.
#[derive(Debug)]
pub struct Who {
    /// Unique within the process.
    pub session: u64,
    /// Its core.
    pub home: usize,
    pub initiator: String,
    pub port: InitiatorPort,
    pub target: String,
    pub portal_group: u16,
    /// Of the whole server.
    pub portal_groups: Vec<u16>,
    pub peer: String,
}

#[derive(Debug)]
pub enum Mail {
    /// Another session had the commands on this volume aborted.
    Abort(Id, Receipt),
    /// What the initiator may see has changed.
    AccessChanged,
    End(Farewell),
}

/// To be returned when mail has been acted on. It is dropped with mail to a session that has gone, which says as much.
#[derive(Debug)]
pub struct Receipt {
    /// The sender's core.
    core: usize,
    done: oneshot::Sender<()>,
}

impl Receipt {
    /// For the sender, on this core, and what it waits for.
    pub fn new(rt: &Rt) -> (Receipt, oneshot::Receiver<()>) {
        let (done, returned) = oneshot::channel();
        (Receipt { core: rt.core(), done }, returned)
    }

    /// Returns it behind all that this core has sent to the sender's.
    pub fn give_back(self, cores: &Cores, rt: &Rt) {
        let Receipt { core, done } = self;
        let tell = move |_: &Rt| {
            // Whoever waited may have gone with its core.
            let _ = done.send(());
        };
        if core == rt.core() { tell(rt) } else { cores.core(core).run(tell) }
    }
}

/// Why a session is ended from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Farewell {
    /// The server stops.
    Stopping,
    /// An administrator wants it.
    Dropped,
    /// The same initiator has logged in again under the same name.
    Replaced,
}

#[derive(Default)]
pub struct Mailbox {
    server: u64,
    mail: RefCell<Vec<Mail>>,
    task: RefCell<Option<Waker>>,
    has_mail: Cell<bool>,
}

impl Mailbox {
    /// Takes what has come, and wakes `task` when more does.
    pub fn take(&self, task: &Waker) -> Vec<Mail> {
        let mut registered = self.task.borrow_mut();
        if registered.as_ref().is_none_or(|known| !known.will_wake(task)) {
            *registered = Some(task.clone());
        }
        if self.has_mail.replace(false) { self.mail.take() } else { Vec::new() }
    }

    fn put(&self, mail: Mail) {
        // What is said twice is said once; each that aborts waits for its receipt, so there are no more of those than commands.
        let mut waiting = self.mail.borrow_mut();
        let is_same = |known: &Mail| {
            matches!(
                (known, &mail),
                (Mail::AccessChanged, Mail::AccessChanged) | (Mail::End(_), Mail::End(_))
            )
        };
        if !waiting.iter().any(is_same) {
            waiting.push(mail);
        }
        self.has_mail.set(true);
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }
}

/// The mailboxes of one core.
#[derive(Default)]
pub struct PostOffice(RefCell<HashMap<u64, Rc<Mailbox>>>);

/// A session's address; given up when dropped.
pub struct Address {
    office: Rc<PostOffice>,
    session: u64,
    pub mailbox: Rc<Mailbox>,
}

impl PostOffice {
    pub fn open(self: Rc<Self>, server: u64, session: u64) -> Address {
        let mailbox = Rc::new(Mailbox { server, ..Mailbox::default() });
        self.0.borrow_mut().insert(session, mailbox.clone());
        Address { office: self, session, mailbox }
    }

    pub fn deliver(&self, session: u64, mail: Mail) {
        if let Some(mailbox) = self.0.borrow().get(&session) {
            mailbox.put(mail);
        }
    }

    /// To all sessions of a server on this core.
    pub fn deliver_all(&self, server: u64, mail: impl Fn() -> Mail) {
        for mailbox in self.0.borrow().values().filter(|mailbox| mailbox.server == server) {
            mailbox.put(mail());
        }
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        self.office.0.borrow_mut().remove(&self.session);
    }
}

/// Sends mail to a session, wherever it lives.
pub fn post(cores: &Cores, rt: &Rt, who: &Arc<Who>, mail: Mail) {
    if who.home == rt.core() {
        return rt.local::<PostOffice>().deliver(who.session, mail);
    }
    let session = who.session;
    cores.core(who.home).run(move |rt| rt.local::<PostOffice>().deliver(session, mail));
}
