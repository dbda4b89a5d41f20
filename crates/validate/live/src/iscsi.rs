//! A client of an iSCSI target on the runtime's sockets: a session for each client, with as many commands at a time as the target's window takes; the
//! rest waits here.
//!
//! Where the volume is, the client finds out as a host does: the target's name by discovery, the unit by asking each that it sees for its serial number, which is
//! the volume's id. Requests are READ and WRITE (16); volumes are made so that what is acknowledged is safe. A command that is answered with a
//! unit attention was not carried out, and is sent again.

use forebay_iscsi::initiator::{Event, Login, ScsiRequest, Session, Wanted};
use forebay_iscsi::{Parameters, Purpose, text, wire};
use forebay_runtime::{Arena, Buf, Completer, Completion, Rt, Stream, completion};
use forebay_scsi::{Lun, TRANSFER_BYTES_MAX};
use forebay_workload::{Remote, Request};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// The longest request.
pub const REQUEST_BYTES_MAX: u64 = TRANSFER_BYTES_MAX as u64;
const RECEIVE_BYTES: usize = 256 << 10;
/// More than any answer to what is asked of a unit when it is opened.
const ANSWER_BYTES: u32 = 4096;
const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
const UNIT_ATTENTION: u8 = 6;

mod operation {
    pub const INQUIRY: u8 = 0x12;
    pub const READ_16: u8 = 0x88;
    pub const WRITE_16: u8 = 0x8a;
    pub const SERVICE_ACTION_IN_16: u8 = 0x9e;
    pub const READ_CAPACITY_16: u8 = 0x10;
    pub const REPORT_LUNS: u8 = 0xa0;
    /// The page of INQUIRY with the serial number.
    pub const SERIAL_PAGE: u8 = 0x80;
}

/// Who waits for a command.
enum Done {
    /// For all that it reads.
    Data(Completer<Option<Vec<u8>>>),
    /// For whether it was carried out.
    Whether(Completer<bool>),
}

/// A command, until it is answered.
struct Asked {
    request: ScsiRequest,
    done: Done,
}

impl Done {
    fn failed(self) {
        match self {
            Done::Data(done) => done.complete(None),
            Done::Whether(done) => done.complete(false),
        }
    }
}

/// What the protocol and who waits for it have in common.
struct State {
    session: Session,
    /// By task tag.
    asked: HashMap<u32, Asked>,
    /// What the window has no room for.
    held: VecDeque<Asked>,
    is_broken: bool,
    /// Who waits until it has logged out.
    logged_out: Option<Completer<()>>,
}

/// A session with a target.
struct Connection {
    rt: Rt,
    arena: Arena,
    stream: Stream,
    state: RefCell<State>,
    is_sending: Cell<bool>,
}

/// A unit of a target, with a session of its own.
pub struct Unit {
    connection: Rc<Connection>,
    lun: u64,
    block: u64,
    size: u64,
}

/// Who asks a target.
#[derive(Clone, Debug)]
pub struct Initiator {
    /// `127.0.0.1:3260`
    pub portal: String,
    pub name: String,
}

/// Logs in; the port's number tells it from others of the same initiator.
async fn log_in(
    rt: &Rt,
    initiator: &Initiator,
    purpose: Purpose,
    port: u16,
) -> Result<(Stream, Session), String> {
    let Initiator { portal, name } = initiator;
    let stream = rt.connect(portal).await;
    let stream = stream.map_err(|error| format!("there is no answer at {portal}: {:?}", error.os))?;
    let process = std::process::id().to_be_bytes();
    let [high, low] = port.to_be_bytes();
    // No digests, as initiators do unless they are told to; an ISID of the random kind.
    let parameters = Parameters { header_digest: false, data_digest: false, ..Parameters::TARGET };
    let isid = [0x80, process[1], process[2], process[3], high, low];
    let (credentials, target) = (None, None);
    let wanted = Wanted {
        initiator: name.clone(),
        purpose,
        parameters,
        isid,
        tsih: 0,
        credentials,
        algorithms: "7,5",
        target,
    };
    let (arena, mut login) = (Arena::new(), Login::new(wanted));
    loop {
        if login.has_output() {
            send(&stream, login.take_batch(&arena)).await?;
        }
        let (buffer, len) = receive(rt, &stream).await?;
        let mut input = &buffer[..len];
        let answer = login.handle_input(&mut input).map_err(|error| error.to_string())?;
        if let Some(connected) = answer {
            let mut session = Session::new(&connected);
            session.handle_input(&mut input, &arena).map_err(|error| error.to_string())?;
            return Ok((stream, session));
        }
    }
}

async fn send(stream: &Stream, parts: Vec<Buf>) -> Result<(), String> {
    stream.send(parts).await.map_err(|error| format!("the connection was interrupted: {:?}", error.os))
}

async fn receive(rt: &Rt, stream: &Stream) -> Result<(Buf, usize), String> {
    let (buffer, came) = stream.recv(rt.buffer(RECEIVE_BYTES)).await;
    match came {
        Ok(0) => Err("the target closed the connection".into()),
        Ok(len) => Ok((buffer.freeze(), len)),
        Err(error) => Err(format!("the connection was interrupted: {:?}", error.os)),
    }
}

/// The targets that an initiator is shown.
async fn discover(rt: &Rt, initiator: &Initiator) -> Result<Vec<String>, String> {
    let (stream, mut session) = log_in(rt, initiator, Purpose::Discovery, 0).await?;
    let arena = Arena::new();
    session.text(b"SendTargets=All\0");
    loop {
        if session.has_output() {
            send(&stream, session.take_batch(&arena)).await?;
        }
        let (buffer, len) = receive(rt, &stream).await?;
        session.handle_input(&mut &buffer[..len], &arena).map_err(|error| error.to_string())?;
        while let Some(event) = session.poll_event() {
            let Event::Text { text, .. } = event else { continue };
            let pairs = text::parse(&text).map_err(|_| "the target's list is not valid text".to_string())?;
            let names = pairs.iter().filter(|(key, _)| *key == "TargetName");
            return Ok(names.map(|(_, name)| name.to_string()).collect());
        }
    }
}

impl Unit {
    /// Opens the unit with this serial number. `port` is a number that no other session of the initiator has; 0 is for discovery.
    pub async fn open(rt: &Rt, initiator: &Initiator, serial: &str, port: u16) -> Result<Rc<Unit>, String> {
        for target in discover(rt, initiator).await? {
            let purpose = Purpose::Normal { target };
            let (stream, session) = log_in(rt, initiator, purpose, port).await?;
            let connection = Connection::new(rt, stream, session);
            for lun in connection.luns().await? {
                if connection.serial(lun).await?.as_deref() == Some(serial) {
                    let (block, size) = connection.capacity(lun).await?;
                    return Ok(Rc::new(Unit { connection, lun, block, size }));
                }
            }
            connection.log_out().await;
        }
        Err(format!(
            "{} has no unit with the serial number {serial} for {}",
            initiator.portal, initiator.name
        ))
    }

    /// Bytes of the volume.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Ends the session, and waits until the target knows.
    pub async fn close(&self) {
        self.connection.log_out().await;
    }
}

impl Connection {
    fn new(rt: &Rt, stream: Stream, session: Session) -> Rc<Connection> {
        let (asked, held, logged_out) = Default::default();
        let state = State { session, asked, held, is_broken: false, logged_out };
        let (rt, state, is_sending) = (rt.clone(), RefCell::new(state), Cell::new(false));
        let connection = Rc::new(Connection { rt, arena: Arena::new(), stream, state, is_sending });
        let own = connection.clone();
        connection.rt.spawn(async move { own.listen().await });
        connection
    }

    /// Until the connection ends, which whoever waits is told.
    async fn listen(self: Rc<Connection>) {
        while let Ok((buffer, len)) = receive(&self.rt, &self.stream).await {
            let is_right =
                self.state.borrow_mut().session.handle_input(&mut &buffer[..len], &self.arena).is_ok();
            drop(buffer);
            if !is_right || !self.take_events() {
                break;
            }
            self.send_all();
        }
        self.end();
    }

    /// Whether there is anything to go by after what came.
    fn take_events(self: &Rc<Connection>) -> bool {
        loop {
            let Some(event) = self.state.borrow_mut().session.poll_event() else { break };
            match event {
                Event::Completed { itt, status, sense, data_in, .. } => {
                    let Some(asked) = self.state.borrow_mut().asked.remove(&itt) else { return false };
                    let key = match sense.first() {
                        Some(0x72 | 0x73) => sense.get(1),
                        _ => sense.get(2),
                    };
                    let is_attention =
                        status == CHECK_CONDITION && key.map(|key| key & 15) == Some(UNIT_ATTENTION);
                    if is_attention {
                        self.state.borrow_mut().held.push_back(asked);
                        continue;
                    }
                    let came: usize = data_in.iter().map(|part| part.len()).sum();
                    match asked.done {
                        Done::Whether(done) => {
                            let wanted = asked.request.expected_in as usize;
                            done.complete(status == GOOD && came == wanted);
                        }
                        Done::Data(done) => {
                            let data = data_in.iter().flat_map(|part| part.iter().copied()).collect();
                            done.complete((status == GOOD).then_some(data));
                        }
                    }
                }
                Event::LoggedOut { .. } | Event::Rejected { .. } => return false,
                // Pings are answered by the session. What a target wants to say besides is for people.
                _ => {}
            }
        }
        self.release();
        true
    }

    fn end(&self) {
        self.stream.shutdown();
        let mut state = self.state.borrow_mut();
        state.is_broken = true;
        let asked: Vec<Asked> = state.asked.drain().map(|(_, asked)| asked).collect();
        let held = std::mem::take(&mut state.held);
        let logged_out = state.logged_out.take();
        drop(state);
        asked.into_iter().chain(held).for_each(|asked| asked.done.failed());
        logged_out.into_iter().for_each(|done| done.complete(()));
    }

    /// Gives the session what the window has room for.
    fn release(&self) {
        let mut state = self.state.borrow_mut();
        while let Some(asked) = state.held.pop_front() {
            match state.session.command(asked.request.clone()) {
                Ok(tag) => drop(state.asked.insert(tag, asked)),
                Err(_) => {
                    state.held.push_front(asked);
                    return;
                }
            }
        }
    }

    /// Sends what has gathered, until nothing has.
    fn send_all(self: &Rc<Connection>) {
        if self.is_sending.replace(true) {
            return;
        }
        let own = self.clone();
        self.rt.spawn(async move {
            while own.state.borrow().session.has_output() {
                let parts = own.state.borrow_mut().session.take_batch(&own.arena);
                if send(&own.stream, parts).await.is_err() {
                    own.end();
                    break;
                }
            }
            own.is_sending.set(false);
        });
    }

    fn ask(self: &Rc<Connection>, request: ScsiRequest, done: Done) {
        if self.state.borrow().is_broken {
            return done.failed();
        }
        self.state.borrow_mut().held.push_back(Asked { request, done });
        self.release();
        self.send_all();
    }

    /// What a command reads; nothing when it was not carried out.
    async fn read(self: &Rc<Connection>, lun: u64, cdb: [u8; 16]) -> Option<Vec<u8>> {
        let (done, data) = completion();
        let request = ScsiRequest { lun, cdb, expected_in: ANSWER_BYTES, ..ScsiRequest::default() };
        self.ask(request, Done::Data(done));
        data.await
    }

    /// The units that there are, as commands name them.
    async fn luns(self: &Rc<Connection>) -> Result<Vec<u64>, String> {
        let mut cdb = [0; 16];
        cdb[0] = operation::REPORT_LUNS;
        cdb[6..10].copy_from_slice(&ANSWER_BYTES.to_be_bytes());
        let data = self.read(0, cdb).await.ok_or("the target does not list its units")?;
        let (luns, _) = data.get(8..).unwrap_or_default().as_chunks::<8>();
        Ok(luns
            .iter()
            .filter(|lun| Lun::decode(**lun).is_some())
            .map(|lun| u64::from_be_bytes(*lun))
            .collect())
    }

    /// Of a unit, its serial number, if it has one.
    async fn serial(self: &Rc<Connection>, lun: u64) -> Result<Option<String>, String> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[2]) = (operation::INQUIRY, 1, operation::SERIAL_PAGE);
        cdb[3..5].copy_from_slice(&(ANSWER_BYTES as u16).to_be_bytes());
        let data = self.read(lun, cdb).await.ok_or("a unit does not report its serial number")?;
        Ok(data.get(4..).map(|serial| String::from_utf8_lossy(serial).into_owned()))
    }

    /// Bytes of a block, and of all.
    async fn capacity(self: &Rc<Connection>, lun: u64) -> Result<(u64, u64), String> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1]) = (operation::SERVICE_ACTION_IN_16, operation::READ_CAPACITY_16);
        cdb[10..14].copy_from_slice(&32u32.to_be_bytes());
        let data = self.read(lun, cdb).await;
        let (last, block) = data
            .as_deref()
            .and_then(|data| Some((data.first_chunk()?, data.get(8..)?.first_chunk()?)))
            .ok_or("a unit does not report its size")?;
        let (last, block) = (u64::from_be_bytes(*last), u64::from(u32::from_be_bytes(*block)));
        Ok((block, (last + 1) * block))
    }

    async fn log_out(self: &Rc<Connection>) {
        let (done, ended) = completion();
        {
            let mut state = self.state.borrow_mut();
            if state.is_broken {
                return;
            }
            state.session.logout(wire::logout::CLOSE_SESSION, 0);
            state.logged_out = Some(done);
        }
        self.send_all();
        ended.await;
    }
}

impl Remote for Unit {
    fn ask(&self, request: &Request, data: Buf) -> Completion<bool> {
        let Request { at, bytes, is_write } = *request;
        let is_whole = at.is_multiple_of(self.block) && bytes.is_multiple_of(self.block);
        if !is_whole || bytes > REQUEST_BYTES_MAX {
            return Completion::ready(false);
        }
        let mut cdb = [0; 16];
        cdb[0] = if is_write { operation::WRITE_16 } else { operation::READ_16 };
        cdb[2..10].copy_from_slice(&(at / self.block).to_be_bytes());
        cdb[10..14].copy_from_slice(&((bytes / self.block) as u32).to_be_bytes());
        let (expected_in, data_out) = if is_write { (0, vec![data]) } else { (bytes as u32, Vec::new()) };
        let (done, answered) = completion();
        let request = ScsiRequest { lun: self.lun, cdb, expected_in, data_out, ..ScsiRequest::default() };
        self.connection.ask(request, Done::Whether(done));
        answered
    }
}
