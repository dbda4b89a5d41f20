//! A session's way to its logical units: here, on another core, or nowhere.
//!
//! Most sessions live on the core of all their volumes, and a command goes straight to the unit. A unit of another core
//! gets its commands by message, with their data copied both ways: buffers belong to one core. So does word that a command is no longer
//! wanted, behind the command itself ([`Errands`]). What the initiator sees is kept in a table that follows the configuration.

use super::access::{Mapping, Volumes};
use super::execute::{
    Answer, Here, Order, Seat, at_unit, data_in, execute, execute_absent, gather, scatter, unusable, visit,
};
use super::unit::{Live, Presence, Units};
use forebay_base::panics::{Panicked, contain};
use forebay_iscsi::wire::task_function as function;
use forebay_iscsi::{Attribute, Command, Completion, TAGS_MAX, Tag, TaskAnswer};
use forebay_pool::{Cancellation, Ceiling, IoError};
use forebay_runtime::Rt;
use forebay_scsi::{
    Attention, BlockFormat, DataIn, DataOut, Lun, Response, SenseBytes, Status, TRANSFER_BYTES_MAX,
    TaskAttribute, parse,
};
use futures_channel::oneshot;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// A session as its commands see it.
pub struct Client<V: Volumes> {
    pub rt: Rt,
    pub seat: Seat<V>,
    table: RefCell<Vec<Entry<V>>>,
    /// What its host gets at most.
    ceiling: RefCell<Option<Arc<Ceiling>>>,
    /// By tag.
    running: RefCell<Vec<Running>>,
}

/// A command that is being carried out.
#[derive(Clone, Default)]
struct Running {
    cancellation: Cancellation,
    /// The core that it was sent to, if it is not this one.
    core: Option<usize>,
}

/// Commands on this core of sessions that live on others, by session and tag.
#[derive(Default)]
struct Errands(RefCell<HashMap<(u64, usize), Cancellation>>);

struct Entry<V: Volumes> {
    mapping: Mapping,
    /// Opened, on this core.
    here: Option<Here<V>>,
}

enum Place<V: Volumes> {
    Here(Here<V>),
    /// On this core, not opened yet; on another core.
    Elsewhere(Mapping),
    Nowhere,
}

/// Something that a session does concurrently.
pub enum Work {
    Command(Command),
    Manage { id: u32, function: u8, lun: u64 },
}

pub enum Outcome {
    Completed { tag: Tag, completion: Completion, held: u64, panicked: Option<Panicked> },
    Managed { id: u32, answer: TaskAnswer, is_cold_reset: bool },
}

/// Bytes of memory that a command and its result hold, at most.
pub fn held(command: &Command) -> u64 {
    let data: usize = command.data.iter().map(|part| part.len()).sum();
    data as u64 + u64::from(command.expected_in).min(TRANSFER_BYTES_MAX as u64)
}

fn decode(lun: u64) -> Option<Lun> {
    Lun::decode(lun.to_be_bytes())
}

fn attribute(attribute: Attribute) -> TaskAttribute {
    match attribute {
        // ACA does not exist here (NACA is refused), so nothing can be queued for it.
        Attribute::Simple | Attribute::Aca => TaskAttribute::Simple,
        Attribute::Ordered => TaskAttribute::Ordered,
        Attribute::HeadOfQueue => TaskAttribute::HeadOfQueue,
    }
}

impl<V: Volumes> Client<V> {
    pub fn new(rt: Rt, seat: Seat<V>) -> Client<V> {
        let table = seat.luns().into_iter().map(|mapping| Entry { mapping, here: None }).collect();
        let running = RefCell::new(Vec::with_capacity(TAGS_MAX));
        let ceiling = RefCell::new(seat.access.ceiling(&seat.who.initiator));
        Client { rt, seat, table: RefCell::new(table), ceiling, running }
    }

    fn place(&self, lun: u64) -> Place<V> {
        let Some(lun) = decode(lun) else { return Place::Nowhere };
        match self.table.borrow().iter().find(|entry| entry.mapping.lun == lun) {
            None => Place::Nowhere,
            Some(Entry { here: Some((live, presence)), .. }) if !live.is_gone.get() => {
                Place::Here((live.clone(), presence.clone()))
            }
            Some(Entry { mapping, .. }) => Place::Elsewhere(mapping.clone()),
        }
    }

    /// Bytes that a write's CDB asks for: what exceeds this need not be sent.
    pub fn data_out_len(&self, lun: u64, cdb: &[u8; 16]) -> u64 {
        // What panics over it now does so again when the command comes, and ends the session then.
        let Ok(Ok(command)) = contain(|| parse(cdb)) else { return 0 };
        match self.place(lun) {
            Place::Here((live, _)) => {
                contain(|| u64::from(live.unit.borrow().data_out_len(&command))).unwrap_or_default()
            }
            Place::Elsewhere(mapping) => {
                let block_bytes = match mapping.format {
                    BlockFormat::B512 => 512,
                    BlockFormat::B4096 => 4096,
                };
                // A command for more is refused for its length.
                Some(command.data_out_len(block_bytes))
                    .filter(|&len| len <= TRANSFER_BYTES_MAX as u64)
                    .unwrap_or(0)
            }
            Place::Nowhere => 0,
        }
    }

    /// A command begins under this tag, which names no other; `core` if it is sent there.
    fn begin(&self, tag: Tag, core: Option<usize>) -> Cancellation {
        let mut running = self.running.borrow_mut();
        if running.len() <= tag.index() {
            running.resize_with(tag.index() + 1, Running::default);
        }
        let entry = &mut running[tag.index()];
        entry.core = core;
        if entry.cancellation.is_cancelled() {
            entry.cancellation = Cancellation::default();
        }
        entry.cancellation.clone()
    }

    /// The initiator no longer wants a command: if it has not begun, it does not.
    pub fn cancel(&self, tag: Tag) {
        self.cancel_at(tag.index());
    }

    fn cancel_at(&self, index: usize) {
        let running = self.running.borrow().get(index).cloned();
        let Some(Running { cancellation, core }) = running else { return };
        cancellation.cancel();
        if let Some(core) = core {
            let errand = (self.seat.who.session, index);
            self.seat.cores.core(core).run(move |rt| {
                // It may just have been completed.
                if let Some(cancellation) = rt.local::<Errands>().0.borrow().get(&errand) {
                    cancellation.cancel();
                }
            });
        }
    }

    /// The initiator is gone, or will get no answer any more.
    pub fn cancel_all(&self) {
        let count = self.running.borrow().len();
        (0..count).for_each(|index| self.cancel_at(index));
    }

    /// Whether this logical unit number, as it travels, means the volume.
    pub fn is_volume(&self, lun: u64, volume: forebay_base::Id) -> bool {
        let lun = decode(lun);
        self.table
            .borrow()
            .iter()
            .any(|entry| Some(entry.mapping.lun) == lun && entry.mapping.volume == volume)
    }

    /// Takes what the configuration now says; false when the initiator may not be here any more.
    pub fn access_changed(&self) -> bool {
        let who = &self.seat.who;
        let access = &self.seat.access;
        let is_discovery = who.target.is_empty();
        if access.admit(&who.initiator).is_err()
            || !is_discovery && !access.targets(&who.initiator).contains(&who.target)
        {
            return false;
        }
        let wanted = self.seat.luns();
        let mut table = self.table.borrow_mut();
        // A volume that has moved to another pool has another name, and is the same unit.
        let stays = |entry: &Entry<V>| wanted.iter().any(|mapping| mapping.is_same_unit(&entry.mapping));
        let (stay, go): (Vec<_>, Vec<_>) = table.drain(..).partition(stays);
        let is_new = |mapping: &Mapping| stay.iter().all(|entry| !entry.mapping.is_same_unit(mapping));
        let added: Vec<_> = wanted.iter().filter(|mapping| is_new(mapping)).cloned().collect();
        let changed = !go.is_empty() || !added.is_empty();
        *table = stay;
        for entry in &go {
            // The same volume may stay under another number.
            if table.iter().all(|stays| stays.mapping.volume != entry.mapping.volume)
                && added.iter().all(|mapping| mapping.volume != entry.mapping.volume)
            {
                self.on_unit(&entry.mapping, |live, session| live.detach(session));
            }
        }
        table.extend(added.into_iter().map(|mapping| Entry { mapping, here: None }));
        let ceiling = access.ceiling(&who.initiator);
        let place = |ceiling: &Option<Arc<Ceiling>>| ceiling.as_ref().map(Arc::as_ptr);
        let before = self.ceiling.replace(ceiling.clone());
        if place(&before) != place(&ceiling) {
            for entry in table.iter() {
                let ceiling = ceiling.clone();
                self.on_unit(&entry.mapping, move |live, session| live.bound(session, ceiling.clone()));
            }
        }
        if changed {
            for entry in table.iter() {
                self.on_unit(&entry.mapping, |live, session| {
                    live.tell(session, Attention::ReportedLunsChanged)
                });
            }
        }
        true
    }

    /// Does something with a unit on its core, if it is in use there.
    fn on_unit(&self, mapping: &Mapping, what: impl Fn(&Live<V::Disk>, u64) + Send + 'static) {
        let (id, session) = (mapping.volume, self.seat.who.session);
        let work = move |rt: &Rt| {
            if let Some(live) = rt.local::<Units<V::Disk>>().get(id) {
                what(&live, session);
            }
        };
        if mapping.core == self.rt.core() {
            work(&self.rt)
        } else {
            self.seat.cores.core(mapping.core).run(work)
        }
    }

    /// Ends the session's presence at every unit: its commands have been completed.
    pub fn leave(&self) {
        let session = self.seat.who.session;
        self.table.borrow_mut().iter_mut().for_each(|entry| entry.here = None);
        for core in 0..self.seat.cores.count() {
            let leave = move |rt: &Rt| {
                rt.local::<Units<V::Disk>>().all().iter().for_each(|live| live.detach(session));
            };
            if core == self.rt.core() { leave(&self.rt) } else { self.seat.cores.core(core).run(leave) }
        }
    }

    /// The unit on this core, opened if need be.
    async fn open(&self, mapping: &Mapping) -> Result<Here<V>, IoError> {
        let here = visit(&self.rt, &self.seat, mapping).await?;
        if let Some(entry) = self.table.borrow_mut().iter_mut().find(|entry| entry.mapping == *mapping) {
            entry.here = Some(here.clone());
        }
        Ok(here)
    }
}

pub async fn work<V: Volumes>(client: Rc<Client<V>>, work: Work) -> Outcome {
    match work {
        Work::Command(command) => run(client, command).await,
        Work::Manage { id, function, lun } => Box::pin(manage(client, id, function, lun)).await,
    }
}

async fn run<V: Volumes>(client: Rc<Client<V>>, command: Command) -> Outcome {
    let (tag, held) = (command.tag, held(&command));
    let place = client.place(command.lun);
    let elsewhere = match &place {
        Place::Elsewhere(mapping) => Some(mapping.core).filter(|core| *core != client.rt.core()),
        Place::Here(_) | Place::Nowhere => None,
    };
    let cancellation = client.begin(tag, elsewhere);
    let here = match place {
        Place::Here(here) => Ok(here),
        Place::Elsewhere(mapping) if elsewhere.is_none() => {
            Box::pin(client.open(&mapping)).await.map_err(Some)
        }
        Place::Elsewhere(mapping) => {
            let (completion, panicked) = Box::pin(run_there(&client, mapping, command)).await;
            return Outcome::Completed { tag, completion, held, panicked };
        }
        Place::Nowhere => Err(None),
    };
    let answer = match here {
        Ok(here) => {
            let data = DataOut { parts: command.data, announced: u64::from(command.expected_out) };
            let order = Order { cdb: command.cdb, attribute: attribute(command.attribute), data };
            execute(&client.rt, &client.seat, here, order, &cancellation).await
        }
        Err(None) => execute_absent(&client.seat, &command.cdb),
        Err(Some(error)) => unusable(error),
    };
    let Answer { response: Response { status, sense, data_in: data }, needed_len, panicked } = answer;
    let completion = Completion {
        status: status as u8,
        sense: sense.to_vec(),
        data_in: data_in(&client.rt, data),
        needed_len,
    };
    Outcome::Completed { tag, completion, held, panicked }
}

/// An answer on its way between cores.
struct Letter {
    status: Status,
    sense: SenseBytes,
    data: Vec<u8>,
    needed_len: u64,
    panicked: Option<Panicked>,
}

/// Runs a command on the core of its unit. Once sent it runs to its end there, or is cancelled there.
async fn run_there<V: Volumes>(
    client: &Client<V>,
    mapping: Mapping,
    command: Command,
) -> (Completion, Option<Panicked>) {
    let (done, answer) = oneshot::channel();
    let (seat, core) = (client.seat.clone(), mapping.core);
    let (data, announced) = (gather(&command.data), u64::from(command.expected_out));
    let (cdb, attribute) = (command.cdb, attribute(command.attribute));
    let errand = (client.seat.who.session, command.tag.index());
    client.seat.cores.core(core).run(move |rt| {
        let (rt, cancellation) = (rt.clone(), Cancellation::default());
        // Before anything is waited for: word that it is not wanted may be next.
        rt.local::<Errands>().0.borrow_mut().insert(errand, cancellation.clone());
        rt.clone().spawn(async move {
            let answer = match visit(&rt, &seat, &mapping).await {
                Ok(here) => {
                    let data = DataOut { parts: scatter(&rt, &data), announced };
                    execute(&rt, &seat, here, Order { cdb, attribute, data }, &cancellation).await
                }
                Err(error) => unusable(error),
            };
            rt.local::<Errands>().0.borrow_mut().remove(&errand);
            let data = match answer.response.data_in {
                DataIn::None => Vec::new(),
                DataIn::Bytes(bytes) => bytes,
                DataIn::Parts(parts) => gather(&parts),
            };
            let Response { status, sense, .. } = answer.response;
            let Answer { needed_len, panicked, .. } = answer;
            // The session may have gone with its core.
            let _ = done.send(Letter { status, sense, data, needed_len, panicked });
        });
    });
    match answer.await {
        Ok(Letter { status, sense, data, needed_len, panicked }) => {
            let data_in = scatter(&client.rt, &data);
            (Completion { status: status as u8, sense: sense.to_vec(), data_in, needed_len }, panicked)
        }
        // That core is being torn down, and this one soon.
        Err(_) => (Completion { status: Status::Busy as u8, ..Completion::default() }, None),
    }
}

async fn manage<V: Volumes>(client: Rc<Client<V>>, id: u32, what: u8, lun: u64) -> Outcome {
    let session = client.seat.who.session;
    let mappings: Vec<Mapping> = client.table.borrow().iter().map(|entry| entry.mapping.clone()).collect();
    let concerned: Vec<&Mapping> = match what {
        function::TARGET_WARM_RESET | function::TARGET_COLD_RESET => mappings.iter().collect(),
        function::NEXUS_RESET => Vec::new(),
        _ => match decode(lun).and_then(|lun| mappings.iter().find(|mapping| mapping.lun == lun)) {
            Some(mapping) => vec![mapping],
            None => return Outcome::Managed { id, answer: TaskAnswer::NoLun, is_cold_reset: false },
        },
    };
    if what == function::NEXUS_RESET {
        // As if the session had ended and come again, for its units.
        client.leave();
    }
    for mapping in concerned {
        let cores = client.seat.cores.clone();
        let work = move |rt: Rt, live: Rc<Live<V::Disk>>, _: Rc<Presence>| async move {
            match what {
                // Its own commands are the session's to look after.
                function::ABORT_TASK_SET => {}
                function::CLEAR_TASK_SET => live.clear(&rt, &cores, session).await,
                _ => live.reset(&rt, &cores, session).await,
            }
        };
        // A unit that cannot be opened has nothing to reset.
        at_unit(&client.rt, &client.seat, mapping, work).await;
    }
    let is_cold_reset = what == function::TARGET_COLD_RESET;
    Outcome::Managed { id, answer: TaskAnswer::Complete, is_cold_reset }
}
