//! An iSCSI target over disks in memory: for trying clients and protocol suites without a pool.
//!
//! `iscsi-memory ADDRESS:PORT... [--disks N] [--size MIB] [--cores N]`: each address is a portal group of its own; everybody is
//! let in and sees all disks as logical units 0, 1 and so on. Runs until its standard input ends.

#[path = "../tests/iscsi/house.rs"]
mod house;

use forebay_iscsi::Algorithm;
use forebay_runtime::uring;
use forebay_target::{IscsiConfig, IscsiServer, Portal, Proof};
use house::{Disks, Host, MemoryDisk, TARGET, Table, mapping};
use std::io::Read;
use std::sync::Arc;

fn main() {
    let (mut portals, mut disks, mut mib, mut cores_wanted) = (Vec::new(), 2u8, 1024u64, 1usize);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|n| n.parse::<u64>().ok()).expect("a number");
        match &argument[..] {
            "--disks" => disks = number() as u8,
            "--size" => mib = number(),
            "--cores" => cores_wanted = number() as usize,
            _ => portals.push(Portal { listen: argument, group: portals.len() as u16 + 1 }),
        }
    }
    let (cores, running) = uring::start(cores_wanted).expect("io_uring works here");
    let all: Vec<_> =
        (0..disks).map(|n| MemoryDisk::new(n + 1, usize::from(n) % cores_wanted, mib << 20)).collect();
    let luns = all.iter().enumerate().map(|(lun, disk)| mapping(lun as u16, disk)).collect();
    let table = Table::default();
    table
        .0
        .lock()
        .expect("nobody panics")
        .insert("*".into(), Host { proof: Proof::Name, luns, ceiling: None });
    let sink = Arc::new(|event: forebay_pool::Event| {
        eprintln!("{:?} {} {}: {}", event.severity, event.code, event.object, event.message);
    });
    let volumes = Disks(Arc::new(all));
    let config = IscsiConfig { portals, chap_minimum: Algorithm::Md5 };
    let start = {
        let cores = cores.clone();
        async move { IscsiServer::start(cores, volumes, Arc::new(table), config, sink).await }
    };
    let server =
        uring::block_on(|_| start).expect("io_uring works here").unwrap_or_else(|error| panic!("{error}"));
    for portal in server.portals() {
        println!("iscsi://{}/{TARGET}/0", portal.listen);
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    uring::block_on(|_| async move { server.stop().await }).expect("io_uring works here");
    drop(cores);
    drop(running);
}
