//! Clients of a running pool, with the workloads that modelled ones have: one driver for both worlds.

use crate::iscsi::{Initiator, Unit};
use crate::nbd::{Export, Nbd, filling};
use forebay_base::Nanos;
use forebay_runtime::{Rt, uring};
use forebay_workload::{Costs, Link, Remote, Request, Store, Tally, Target, Workload, drive};
use std::rc::Rc;

const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
/// Requests of a MiB with which a volume is filled, at a time.
const FILLING: u64 = 4;
/// Nothing of the network is modelled here: it is there.
const GBIT: u64 = 1_000_000;

/// A client and its volume.
#[derive(Clone, Debug)]
pub struct LiveClient {
    pub workload: Workload,
    /// Its name, which is that of its NBD export, and its id, which is its serial number over iSCSI.
    pub volume: String,
    pub serial: String,
}

/// Where a pool is asked.
#[derive(Clone, Debug)]
pub enum Door {
    /// The address of an NBD server.
    Nbd(String),
    Iscsi(Initiator),
}

/// A volume that can be asked.
enum Opened {
    Export(Rc<Export>),
    Unit(Rc<Unit>),
}

/// When it begins to be measured, and for how long it is.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub warm_seconds: u64,
    pub seconds: u64,
}

impl Opened {
    async fn open(rt: &Rt, door: &Door, client: &LiveClient, number: u16) -> Result<Opened, String> {
        Ok(match door {
            Door::Nbd(address) => {
                Opened::Export(Rc::new(Export(Nbd::open(rt, address, &client.volume).await?)))
            }
            Door::Iscsi(initiator) => {
                Opened::Unit(Unit::open(rt, initiator, &client.serial, number + 1).await?)
            }
        })
    }

    fn size(&self) -> u64 {
        match self {
            Opened::Export(export) => export.0.size(),
            Opened::Unit(unit) => unit.size(),
        }
    }

    fn remote(&self) -> Rc<dyn Remote> {
        match self {
            Opened::Export(export) => export.clone(),
            Opened::Unit(unit) => unit.clone(),
        }
    }

    async fn close(&self) {
        match self {
            // It says goodbye when nobody has it any more.
            Opened::Export(_) => {}
            Opened::Unit(unit) => unit.close().await,
        }
    }

    /// Writes it from end to end.
    async fn fill(&self, rt: &Rt) -> Result<(), String> {
        let (size, data) = (self.size(), filling(rt, MIB as usize));
        let tasks: Vec<_> = (0..FILLING)
            .map(|first| {
                let (remote, data) = (self.remote(), data.clone());
                rt.spawn(async move {
                    for at in (first * MIB..size / MIB * MIB).step_by((FILLING * MIB) as usize) {
                        let request = Request { at, bytes: MIB, is_write: true };
                        if !remote.ask(&request, data.clone()).await {
                            return Err(format!("the volume could not be written at {at}"));
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let mut filled = Ok(());
        for task in tasks {
            filled = filled.and(task.await);
        }
        filled
    }
}

/// Fills all volumes from end to end, has the clients work side by side, and gives what each got.
pub fn drive_live(
    door: &Door,
    clients: Vec<LiveClient>,
    seed: u64,
    span: Span,
) -> Result<Vec<Tally>, String> {
    let door = door.clone();
    let ended = uring::block_on(move |rt| async move { work(&rt, &door, &clients, seed, span).await });
    ended.map_err(|error| error.to_string())?
}

async fn work(
    rt: &Rt,
    door: &Door,
    clients: &[LiveClient],
    seed: u64,
    span: Span,
) -> Result<Vec<Tally>, String> {
    let mut opened = Vec::new();
    for (client, number) in clients.iter().zip(0..) {
        let volume = Opened::open(rt, door, client, number).await?;
        volume.fill(rt).await.map_err(|error| format!("{}: {error}", client.volume))?;
        opened.push(volume);
    }
    let from = Nanos(rt.now().0 + span.warm_seconds * SECOND);
    let to = Nanos(from.0 + span.seconds * SECOND);
    let tasks: Vec<_> = clients
        .iter()
        .zip(&opened)
        .enumerate()
        .map(|(nth, (client, volume))| {
            let (own, workload) = (rt.clone(), client.workload.clone());
            let link = Rc::new(Link::new(1, GBIT, 0));
            let (size, store) = (volume.size(), Store::Remote(volume.remote()));
            let target = Target { size, store, link, costs: Costs::default() };
            let seed = seed.wrapping_mul(1000) + nth as u64;
            rt.spawn(async move { drive(&own, target, &workload, seed, (from, to)).await })
        })
        .collect();
    let mut tallies = Vec::new();
    for task in tasks {
        tallies.push(task.await);
    }
    for volume in &opened {
        volume.close().await;
    }
    Ok(tallies)
}
