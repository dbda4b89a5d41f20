//! A server over disks in memory, and an initiator on a blocking socket.

use crate::house::{BLOCK, Disks, Host, MemoryDisk, TARGET, Table, mapping};
use forebay_iscsi::initiator::{Connected, Event, Login, LoginError, Residual, ScsiRequest, Session, Wanted};
use forebay_iscsi::{Algorithm, Chap, Credentials, Parameters, Purpose, Secret};
use forebay_pool::Event as PoolEvent;
use forebay_runtime::{Arena, Buf, Cores, uring};
use forebay_target::{IscsiConfig, IscsiServer, Portal, Proof};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const HOST: &str = "iqn.1993-08.org.example:host";
pub const SIZE: u64 = 64 << 20;

pub struct Served {
    pub server: Arc<IscsiServer>,
    pub disks: Vec<Arc<MemoryDisk>>,
    pub table: Arc<Table>,
    pub events: Arc<Mutex<Vec<PoolEvent>>>,
    pub cores: Cores,
    _running: uring::Running,
}

/// Waits (bounded) until `holds`.
pub fn eventually(holds: impl Fn() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it did not come to pass in 30 s");
}

/// Waits for a future on this thread.
pub fn wait<T: 'static>(future: impl Future<Output = T> + 'static) -> T {
    uring::block_on(|_| future).expect("io_uring works here")
}

impl Served {
    /// Two cores; disks 1 and 3 on the first, 2 on the second; [`HOST`] sees all as logical units 0, 1 and 2.
    pub fn new() -> Served {
        Served::with(Proof::Name)
    }

    pub fn with(proof: Proof) -> Served {
        Served::with_minimum(proof, Algorithm::Md5)
    }

    pub fn with_minimum(proof: Proof, chap_minimum: Algorithm) -> Served {
        let (cores, running) = uring::start(2).expect("io_uring works here");
        let disks: Vec<_> = (0..3).map(|n| MemoryDisk::new(n + 1, usize::from(n) % 2, SIZE)).collect();
        let luns = disks.iter().enumerate().map(|(lun, disk)| mapping(lun as u16, disk)).collect();
        let table = Arc::new(Table::default());
        table.0.lock().unwrap().insert(HOST.into(), Host { proof, luns, ceiling: None });
        let events: Arc<Mutex<Vec<PoolEvent>>> = Arc::default();
        let sink = {
            let events = events.clone();
            Arc::new(move |event| events.lock().unwrap().push(event))
        };
        let portals = [1, 2].map(|group| Portal { listen: "127.0.0.1:0".into(), group }).to_vec();
        let config = IscsiConfig { chap_minimum, ..IscsiConfig::from(portals) };
        let volumes = Disks(Arc::new(disks.clone()));
        let starting = {
            let (table, cores) = (table.clone(), cores.clone());
            async move { IscsiServer::start(cores, volumes, table, config, sink).await }
        };
        let server = Arc::new(wait(starting).unwrap());
        Served { server, disks, table, events, cores, _running: running }
    }

    pub fn address(&self, portal: usize) -> &str {
        &self.server.portals()[portal].listen
    }

    pub fn stop(self) {
        let server = self.server.clone();
        wait(async move { server.stop().await });
    }

    /// Waits (bounded) until an event of this code came, and returns its object and message.
    pub fn event(&self, code: &str) -> String {
        let find = || self.events.lock().unwrap().iter().find(|event| event.code == code).cloned();
        eventually(|| find().is_some());
        let event = find().expect("events stay");
        format!("{}: {}", event.object, event.message)
    }
}

pub fn wanted(initiator: &str) -> Wanted {
    Wanted {
        initiator: initiator.into(),
        purpose: Purpose::Normal { target: TARGET.into() },
        parameters: Parameters::TARGET,
        isid: [0x80, 0, 0, 0, 0, 1],
        tsih: 0,
        credentials: None,
        algorithms: "7,5",
        target: None,
    }
}

/// What came of a command.
#[derive(Debug)]
pub struct Answer {
    pub itt: u32,
    pub status: u8,
    /// Sense key, and code with qualifier.
    pub sense: Option<(u8, u16)>,
    pub data: Vec<u8>,
    pub residual: Residual,
}

/// A blocking initiator.
pub struct Client {
    pub stream: TcpStream,
    pub session: Session,
    pub connected: Connected,
    pub arena: Arena,
}

impl Client {
    pub fn open(address: &str) -> Client {
        let mut client = Client::log_in(address, wanted(HOST)).unwrap();
        // POWER ON, RESET, OR BUS DEVICE RESET OCCURRED, once for each unit.
        for lun in 0..3 {
            assert_eq!(client.call(lun, test_unit_ready()).sense, Some((6, 0x2900)));
        }
        client
    }

    pub fn log_in(address: &str, wanted: Wanted) -> Result<Client, LoginError> {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (arena, mut login) = (Arena::new(), Login::new(wanted));
        loop {
            if login.has_output() {
                stream.write_all(&join(&login.take_batch(&arena))).unwrap();
            }
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).unwrap_or(0);
            if count == 0 {
                return Err(LoginError::Nonsense("nothing: it hung up"));
            }
            if let Some(connected) = login.handle_input(&mut &bytes[..count])? {
                let session = Session::new(&connected);
                return Ok(Client { stream, session, connected, arena });
            }
        }
    }

    /// Sends what is queued.
    pub fn flush(&mut self) {
        if self.session.has_output() {
            let bytes = join(&self.session.take_batch(&self.arena));
            // The server may have hung up: that shows in what it sends.
            let _ = self.stream.write_all(&bytes);
        }
    }

    /// The next event; `None` when the server has hung up.
    pub fn event(&mut self) -> Option<Event> {
        let mut bytes = vec![0; 256 << 10];
        loop {
            if let Some(event) = self.session.poll_event() {
                return Some(event);
            }
            self.flush();
            let count = self.stream.read(&mut bytes).unwrap_or(0);
            if count == 0 {
                return None;
            }
            self.session
                .handle_input(&mut &bytes[..count], &self.arena)
                .expect("the server keeps to the protocol");
        }
    }

    /// The next answer to a command.
    pub fn answer(&mut self) -> Answer {
        loop {
            if let Event::Completed { itt, status, sense, data_in, residual } =
                self.event().expect("an answer")
            {
                let sense =
                    (!sense.is_empty()).then(|| (sense[2], u16::from_be_bytes([sense[12], sense[13]])));
                return Answer { itt, status, sense, data: join(&data_in), residual };
            }
        }
    }

    pub fn start(&mut self, lun: u64, request: ScsiRequest) -> u32 {
        self.session.command(ScsiRequest { lun: lun << 48, ..request }).expect("the window is open")
    }

    /// One command, one answer.
    pub fn call(&mut self, lun: u64, request: ScsiRequest) -> Answer {
        let itt = self.start(lun, request);
        let answer = self.answer();
        assert_eq!(answer.itt, itt);
        answer
    }

    pub fn write(&mut self, lun: u64, at: u64, data: &[u8]) {
        let request = write(&self.arena, at, data);
        let answer = self.call(lun, request);
        assert_eq!(answer.status, 0, "{answer:?}");
    }

    pub fn read(&mut self, lun: u64, at: u64, len: usize) -> Vec<u8> {
        let answer = self.call(lun, read(at, len));
        assert_eq!((answer.status, answer.residual), (0, Residual::None));
        answer.data
    }

    /// Whether the server hangs up, sooner or later.
    pub fn is_hung_up(&mut self) -> bool {
        while self.event().is_some() {}
        true
    }
}

pub fn join(parts: &[Buf]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}

pub fn test_unit_ready() -> ScsiRequest {
    ScsiRequest::default()
}

/// READ (16) and WRITE (16) of 512-byte blocks.
pub fn read(at: u64, len: usize) -> ScsiRequest {
    ScsiRequest { cdb: cdb(0x88, at, len), expected_in: len as u32, ..ScsiRequest::default() }
}

pub fn write(arena: &Arena, at: u64, data: &[u8]) -> ScsiRequest {
    let data_out = data.chunks(1 << 20).map(|part| arena.copy(part).freeze()).collect();
    ScsiRequest { cdb: cdb(0x8a, at, data.len()), data_out, ..ScsiRequest::default() }
}

pub fn cdb(opcode: u8, at: u64, len: usize) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..10].copy_from_slice(&(at / 512).to_be_bytes());
    cdb[10..14].copy_from_slice(&((len / 512) as u32).to_be_bytes());
    cdb
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (((i + seed * BLOCK) * 2_654_435_761) >> 13) as u8).collect()
}

/// Reads from a socket until it ends; fails when it does not within a minute.
pub fn drain(stream: &mut TcpStream) -> Vec<u8> {
    let begun = Instant::now();
    let mut all = Vec::new();
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        all.extend_from_slice(&bytes[..count]);
        assert!(begun.elapsed() < Duration::from_secs(60), "the server does not hang up");
    }
    all
}

pub fn chap(user: &str, secret: &str, target: Option<(&str, &str)>) -> Proof {
    Proof::Chap(Chap {
        initiator: credentials(user, secret),
        target: target.map(|(user, secret)| credentials(user, secret)),
    })
}

pub fn credentials(user: &str, secret: &str) -> Credentials {
    Credentials { user: user.into(), secret: Secret::new(secret).expect("long enough") }
}
