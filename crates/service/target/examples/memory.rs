//! The NBD server over a disk in memory: what the protocol costs, without any disk.
//!
//! `cargo run --release -p forebay-target --example memory -- ADDRESS:PORT MEGABYTES`, then
//! `fio --ioengine=nbd --uri=nbd://ADDRESS:PORT/memory …` against it, and stop it with Ctrl-C.

use forebay_base::Id;
use forebay_nbd::Export;
use forebay_pool::{Cancellation, Error, ErrorKind, Extent, IoError};
use forebay_runtime::{Buf, Rt, uring};
use forebay_target::{Catalog, Device, Found, NbdConfig, NbdServer};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// One buffer of the arena per megabyte.
const PIECE: usize = 1 << 20;

#[derive(Clone)]
struct Memory {
    size: u64,
}

#[derive(Clone)]
struct Disk(Rc<RefCell<Vec<Buf>>>);

impl Catalog for Memory {
    type Device = Disk;
    async fn list(&self) -> Result<Vec<String>, Error> {
        Ok(vec!["memory".into()])
    }
    async fn find(&self, name: &str) -> Result<Found, Error> {
        if name != "memory" {
            return Err(Error::new(ErrorKind::NotFound, name, "only `memory` is here"));
        }
        let export = Export { name: name.into(), size: self.size, block_size: 8192, read_only: false };
        Ok(Found { id: Id(0), core: 0, export })
    }
    fn open(&self, rt: &Rt, _: Id) -> Result<Disk, IoError> {
        #[derive(Default)]
        struct Shared(RefCell<Option<Disk>>);
        let shared = rt.local::<Shared>();
        let pieces = (self.size as usize).div_ceil(PIECE);
        let new = || (0..pieces).map(|_| rt.arena().take_zeroed(PIECE).freeze()).collect();
        Ok(shared.0.borrow_mut().get_or_insert_with(|| Disk(Rc::new(RefCell::new(new())))).clone())
    }
}

impl Disk {
    fn each(at: u64, len: usize, mut visit: impl FnMut(usize, usize, usize)) {
        let (mut at, end) = (at as usize, at as usize + len);
        while at < end {
            let count = (PIECE - at % PIECE).min(end - at);
            visit(at / PIECE, at % PIECE, count);
            at += count;
        }
    }
}

impl Device for Disk {
    /// Nothing here waits before it begins.
    fn cancellable(&self, _: &Cancellation) -> Disk {
        self.clone()
    }
    fn block_size(&self) -> u32 {
        8192
    }
    async fn read(&self, at: u64, len: usize) -> Result<Vec<Buf>, IoError> {
        let pieces = self.0.borrow();
        let mut parts = Vec::with_capacity(1);
        Disk::each(at, len, |piece, within, count| parts.push(pieces[piece].slice(within, count)));
        Ok(parts)
    }
    async fn write(&self, _: u64, data: Vec<Buf>, _: bool) -> Result<(), IoError> {
        // What a write costs beyond this is the disk's.
        drop(data);
        Ok(())
    }
    async fn flush(&self) -> Result<(), IoError> {
        Ok(())
    }
    async fn discard(&self, _: u64, _: u64, _: bool) -> Result<(), IoError> {
        Ok(())
    }
    async fn write_zeroes(&self, _: u64, _: u64, _: bool) -> Result<(), IoError> {
        Ok(())
    }
    async fn status(&self, _: u64, len: u64, _: usize) -> Result<Vec<Extent>, IoError> {
        Ok(vec![Extent { len, mapped: true }])
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().unwrap_or("127.0.0.1:10809".into());
    let megabytes: u64 = arguments.next().map_or(256, |text| text.parse().expect("a number of megabytes"));
    let (cores, _running) = uring::start(1).unwrap_or_else(|error| panic!("{error}"));
    let config = NbdConfig::plain(listen);
    let events = Arc::new(|event| eprintln!("{event:?}"));
    let server = NbdServer::start(cores, Memory { size: megabytes << 20 }, config, events);
    let server = uring::block_on(|_| server).unwrap_or_else(|error| panic!("{error}"));
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    println!("nbd://{}/memory", server.address());
    std::thread::park();
}
