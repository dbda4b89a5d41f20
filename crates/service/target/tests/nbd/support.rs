//! A house for tests: disks in memory behind a real server on real sockets, and a client that says exactly what
//! it is told to.

use forebay_base::Id;
use forebay_nbd::client::{self, OptionReply, Reply, RequestHeader};
use forebay_nbd::wire::{info, option, option_reply};
use forebay_nbd::{Export, Style};
use forebay_pool::{Cancellation, Error, ErrorKind, Event, Extent, IoError};
use forebay_runtime::{Buf, Cores, Rt, uring};
use forebay_target::{Catalog, Device, Found, NbdConfig, NbdServer, TlsFiles};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const BLOCK: u64 = 8192;

/// A sparse disk in memory. Writes are visible to reads at once; `durable` counts what a flush or FUA covered.
pub struct MemoryDisk {
    pub name: String,
    pub core: usize,
    pub size: u64,
    blocks: Mutex<HashMap<u64, Vec<u8>>>,
    pub gone: AtomicBool,
    /// Nanoseconds for which the next read waits; later ones do not.
    pub slow_read: AtomicU64,
    /// Nanoseconds that each read waits before it begins, unless it is cancelled.
    pub ceiling: AtomicU64,
    pub running: AtomicU64,
    pub running_most: AtomicU64,
    pub writes: AtomicU64,
    pub flushes: AtomicU64,
    pub fua: AtomicU64,
}

impl MemoryDisk {
    pub fn new(name: &str, core: usize, size: u64) -> Arc<MemoryDisk> {
        Arc::new(MemoryDisk {
            name: name.into(),
            core,
            size,
            blocks: Mutex::default(),
            gone: AtomicBool::new(false),
            slow_read: AtomicU64::new(0),
            ceiling: AtomicU64::new(0),
            running: AtomicU64::new(0),
            running_most: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            fua: AtomicU64::new(0),
        })
    }

    fn check(&self, at: u64, len: u64) -> Result<(), IoError> {
        if self.gone.load(Ordering::SeqCst) {
            return Err(IoError::Gone);
        }
        if at + len > self.size { Err(IoError::OutOfRange) } else { Ok(()) }
    }

    fn copy_out(&self, at: u64, into: &mut [u8]) {
        let blocks = self.blocks.lock().unwrap();
        let mut done = 0;
        while done < into.len() {
            let (block, within) = ((at + done as u64) / BLOCK, ((at + done as u64) % BLOCK) as usize);
            let count = (into.len() - done).min(BLOCK as usize - within);
            match blocks.get(&block) {
                Some(data) => into[done..done + count].copy_from_slice(&data[within..within + count]),
                None => into[done..done + count].fill(0),
            }
            done += count;
        }
    }

    fn copy_in(&self, at: u64, bytes: &[u8]) {
        let mut blocks = self.blocks.lock().unwrap();
        let mut done = 0;
        while done < bytes.len() {
            let (block, within) = ((at + done as u64) / BLOCK, ((at + done as u64) % BLOCK) as usize);
            let count = (bytes.len() - done).min(BLOCK as usize - within);
            let data = blocks.entry(block).or_insert_with(|| vec![0; BLOCK as usize]);
            data[within..within + count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
    }

    fn unmap(&self, at: u64, len: u64) {
        let (first, end) = (at.div_ceil(BLOCK), (at + len) / BLOCK);
        self.blocks.lock().unwrap().retain(|block, _| !(first..end).contains(block));
    }
}

#[derive(Clone)]
pub struct MemoryDevice {
    rt: Rt,
    disk: Arc<MemoryDisk>,
    cancellation: Cancellation,
}

struct Running<'a>(&'a MemoryDisk);
impl Running<'_> {
    fn new(disk: &MemoryDisk) -> Running<'_> {
        let now = disk.running.fetch_add(1, Ordering::SeqCst) + 1;
        disk.running_most.fetch_max(now, Ordering::SeqCst);
        Running(disk)
    }
}
impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Device for MemoryDevice {
    fn cancellable(&self, cancellation: &Cancellation) -> MemoryDevice {
        MemoryDevice { cancellation: cancellation.clone(), ..self.clone() }
    }
    fn block_size(&self) -> u32 {
        BLOCK as u32
    }
    async fn read(&self, at: u64, len: usize) -> Result<Vec<Buf>, IoError> {
        let ceiling = self.rt.sleep(Duration::from_nanos(self.disk.ceiling.load(Ordering::SeqCst)));
        self.cancellation.unless_cancelled(ceiling).await.ok_or(IoError::Cancelled)?;
        let _running = Running::new(&self.disk);
        self.disk.check(at, len as u64)?;
        match self.disk.slow_read.swap(0, Ordering::SeqCst) {
            0 => {}
            nanos => self.rt.sleep(Duration::from_nanos(nanos)).await,
        }
        let mut data = self.rt.buffer(len);
        self.disk.copy_out(at, &mut data);
        let data = data.freeze();
        // In two parts, as an engine may.
        let half = len / 2;
        Ok(vec![data.slice(0, half), data.slice(half, len - half)])
    }
    async fn write(&self, at: u64, data: Vec<Buf>, fua: bool) -> Result<(), IoError> {
        let len: usize = data.iter().map(|part| part.len()).sum();
        self.disk.check(at, len as u64)?;
        let mut place = at;
        for part in &data {
            self.disk.copy_in(place, part);
            place += part.len() as u64;
        }
        self.disk.writes.fetch_add(1, Ordering::SeqCst);
        self.disk.fua.fetch_add(fua.into(), Ordering::SeqCst);
        Ok(())
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.disk.check(0, 0)?;
        self.disk.flushes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    async fn discard(&self, at: u64, len: u64, _fua: bool) -> Result<(), IoError> {
        self.disk.check(at, len)?;
        self.disk.unmap(at, len);
        Ok(())
    }
    async fn write_zeroes(&self, at: u64, len: u64, _fua: bool) -> Result<(), IoError> {
        self.disk.check(at, len)?;
        let (first, end) = (at.next_multiple_of(BLOCK).min(at + len), (at + len) / BLOCK * BLOCK);
        self.disk.unmap(at, len);
        self.disk.copy_in(at, &vec![0; (first - at) as usize]);
        if end >= first {
            self.disk.copy_in(end, &vec![0; (at + len - end) as usize]);
        }
        Ok(())
    }
    async fn status(&self, at: u64, len: u64, extents_max: usize) -> Result<Vec<Extent>, IoError> {
        self.disk.check(at, len)?;
        let blocks = self.disk.blocks.lock().unwrap();
        let mut extents: Vec<Extent> = Vec::new();
        let mut place = at;
        while place < at + len {
            let end = ((place / BLOCK + 1) * BLOCK).min(at + len);
            let mapped = blocks.contains_key(&(place / BLOCK));
            let count = extents.len();
            match extents.last_mut() {
                Some(last) if last.mapped == mapped => last.len += end - place,
                _ if count == extents_max => break,
                _ => extents.push(Extent { len: end - place, mapped }),
            }
            place = end;
        }
        Ok(extents)
    }
}

#[derive(Clone)]
pub struct House(pub Arc<Vec<Arc<MemoryDisk>>>);

impl Catalog for House {
    type Device = MemoryDevice;
    async fn list(&self) -> Result<Vec<String>, Error> {
        Ok(self.0.iter().map(|disk| disk.name.clone()).collect())
    }
    async fn find(&self, name: &str) -> Result<Found, Error> {
        let index = self.0.iter().position(|disk| disk.name == name);
        let index = index.ok_or_else(|| Error::new(ErrorKind::NotFound, name, "there is no such volume"))?;
        let disk = &self.0[index];
        let export =
            Export { name: name.into(), size: disk.size, block_size: BLOCK as u32, read_only: false };
        Ok(Found { id: Id(index as u128), core: disk.core, export })
    }
    fn open(&self, rt: &Rt, id: Id) -> Result<MemoryDevice, IoError> {
        assert_eq!(rt.core(), self.0[id.0 as usize].core, "opened on the core that owns it");
        Ok(MemoryDevice {
            rt: rt.clone(),
            disk: self.0[id.0 as usize].clone(),
            cancellation: Cancellation::default(),
        })
    }
}

/// A server with two disks, `pool/a` on core 0 and `pool/b` on core 1, on a port of its own.
pub struct Served {
    pub server: NbdServer,
    pub disks: Vec<Arc<MemoryDisk>>,
    pub events: Arc<Mutex<Vec<Event>>>,
    pub cores: Cores,
    _running: uring::Running,
}

/// Waits (bounded) until something is so.
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

pub fn start(
    cores: &Cores,
    house: House,
    config: NbdConfig,
    events: &Arc<Mutex<Vec<Event>>>,
) -> Result<NbdServer, Error> {
    let (cores, events) = (cores.clone(), events.clone());
    let sink = Arc::new(move |event| events.lock().unwrap().push(event));
    wait(NbdServer::start(cores, house, config, sink))
}

impl Served {
    pub fn new(size: u64, tls: Option<TlsFiles>) -> Served {
        let (cores, running) = uring::start(2).expect("io_uring works here");
        let disks = vec![MemoryDisk::new("pool/a", 0, size), MemoryDisk::new("pool/b", 1, size)];
        let events = Arc::new(Mutex::default());
        let config = NbdConfig { tls, ..NbdConfig::plain("127.0.0.1:0") };
        let server = start(&cores, House(Arc::new(disks.clone())), config, &events).unwrap();
        Served { server, disks, events, cores, _running: running }
    }
    pub fn uri(&self, export: &str) -> String {
        format!("nbd://{}/{export}", self.server.address())
    }
    pub fn port(&self) -> &str {
        self.server.address().rsplit(':').next().unwrap()
    }
    pub fn stop(self) {
        let Served { server, cores, .. } = self;
        wait(async move { server.stop().await });
        drop(cores);
    }
    /// Waits (bounded) until an event of this code came, and returns its message.
    pub fn event(&self, code: &str) -> String {
        let find = || self.events.lock().unwrap().iter().find(|event| event.code == code).cloned();
        eventually(|| find().is_some());
        find().expect("events stay").message
    }
}

/// A blocking client.
pub struct Client {
    pub stream: TcpStream,
    pub style: Style,
    input: Vec<u8>,
    /// Bytes of `input` that have become replies.
    used: usize,
    reads: HashMap<u64, usize>,
}

impl Client {
    pub fn connect(address: &str) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut client =
            Client { stream, style: Style::Simple, input: Vec::new(), used: 0, reads: HashMap::new() };
        let mut greeting = [0; 18];
        client.stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        client.stream.write_all(&3u32.to_be_bytes()).unwrap();
        client
    }

    /// Connects and goes to transmission.
    pub fn open(address: &str, export: &str, style: Style) -> Client {
        let mut client = Client::connect(address);
        client.style = style;
        match style {
            Style::Simple => {}
            Style::Structured => drop(client.option(option::STRUCTURED_REPLY, &[])),
            Style::Extended => drop(client.option(option::EXTENDED_HEADERS, &[])),
        }
        if style != Style::Simple {
            let data = client::context_data(export, &["base:allocation"]);
            let replies = client.option(option::SET_META_CONTEXT, &data);
            assert_eq!(replies.len(), 2);
        }
        let replies = client.option(option::GO, &client::info_data(export, &[info::BLOCK_SIZE]));
        assert_eq!(replies.last().unwrap().kind, option_reply::ACK, "{replies:?}");
        client
    }

    /// Sends an option and returns its replies up to the final one.
    pub fn option(&mut self, number: u32, data: &[u8]) -> Vec<OptionReply> {
        self.stream.write_all(&client::option(number, data)).unwrap();
        let mut replies = Vec::new();
        loop {
            let mut rest = &self.input[..];
            if let Some(reply) = OptionReply::take(&mut rest).unwrap() {
                self.input = rest.to_vec();
                let last = reply.kind == option_reply::ACK || reply.kind >> 31 == 1;
                replies.push(reply);
                if last {
                    return replies;
                }
                continue;
            }
            assert!(self.receive(), "the server hung up");
        }
    }

    fn receive(&mut self) -> bool {
        let mut bytes = vec![0; 1 << 20];
        let count = self.stream.read(&mut bytes).unwrap_or(0);
        self.input.extend(&bytes[..count]);
        count > 0
    }

    pub fn encode(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, len: u64) -> Vec<u8> {
        if kind == forebay_nbd::wire::command::READ {
            self.reads.insert(cookie, len as usize);
        }
        let mut bytes = Vec::new();
        RequestHeader { flags, kind, cookie, offset, len }.encode(self.style, &mut bytes);
        bytes
    }

    pub fn send(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, len: u64, payload: &[u8]) {
        let mut bytes = self.encode(kind, flags, cookie, offset, len);
        bytes.extend(payload);
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next reply; `None` when the server has hung up.
    pub fn reply(&mut self) -> Option<Reply> {
        loop {
            let mut rest = &self.input[self.used..];
            let reads = &self.reads;
            let read_len = |cookie| reads.get(&cookie).copied().unwrap_or(0);
            if let Some(reply) = client::take_reply(&mut rest, self.style, read_len).unwrap() {
                self.used = self.input.len() - rest.len();
                self.reads.remove(&reply.cookie);
                return Some(reply);
            }
            self.input.drain(..std::mem::take(&mut self.used));
            if !self.receive() {
                assert!(self.input.is_empty(), "the server hung up within a reply");
                return None;
            }
        }
    }

    /// One request, one reply.
    pub fn call(
        &mut self,
        kind: u16,
        flags: u16,
        offset: u64,
        len: u64,
        payload: &[u8],
    ) -> Result<client::Answer, u32> {
        self.send(kind, flags, 42, offset, len, payload);
        let reply = self.reply().expect("the server answers");
        assert_eq!(reply.cookie, 42);
        reply.result.map_err(|failure| failure.code)
    }
}

/// A directory that is removed at the end, also of a failing test.
pub struct TempDir(pub std::path::PathBuf);
impl TempDir {
    pub fn new() -> TempDir {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("forebay-target-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        TempDir(path)
    }
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}
impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
