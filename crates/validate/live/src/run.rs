//! Clients of a running pool, with the workloads that modelled ones have: one driver for both worlds.

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
    /// Its NBD export.
    pub export: String,
}

/// When it begins to be measured, and for how long it is.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub warm_seconds: u64,
    pub seconds: u64,
}

/// Fills all volumes from end to end, has the clients work side by side, and gives what each got.
pub fn drive_live(
    address: &str,
    clients: Vec<LiveClient>,
    seed: u64,
    span: Span,
) -> Result<Vec<Tally>, String> {
    let address = address.to_string();
    let ended = uring::block_on(move |rt| async move { work(&rt, &address, &clients, seed, span).await });
    ended.map_err(|error| error.to_string())?
}

async fn fill(rt: &Rt, export: &Rc<Export>) -> Result<(), String> {
    let (size, data) = (export.0.size(), filling(rt, MIB as usize));
    let tasks: Vec<_> = (0..FILLING)
        .map(|first| {
            let (export, data) = (export.clone(), data.clone());
            rt.spawn(async move {
                for at in (first * MIB..size / MIB * MIB).step_by((FILLING * MIB) as usize) {
                    let request = Request { at, bytes: MIB, is_write: true };
                    if !export.ask(&request, data.clone()).await {
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

async fn work(
    rt: &Rt,
    address: &str,
    clients: &[LiveClient],
    seed: u64,
    span: Span,
) -> Result<Vec<Tally>, String> {
    let mut exports = Vec::new();
    for client in clients {
        let export = Rc::new(Export(Nbd::open(rt, address, &client.export).await?));
        fill(rt, &export).await.map_err(|error| format!("{}: {error}", client.export))?;
        exports.push(export);
    }
    let from = Nanos(rt.now().0 + span.warm_seconds * SECOND);
    let to = Nanos(from.0 + span.seconds * SECOND);
    let tasks: Vec<_> = clients
        .iter()
        .zip(exports)
        .enumerate()
        .map(|(nth, (client, export))| {
            let (own, workload) = (rt.clone(), client.workload.clone());
            let link = Rc::new(Link::new(1, GBIT, 0));
            let target =
                Target { size: export.0.size(), store: Store::Remote(export), link, costs: Costs::default() };
            let seed = seed.wrapping_mul(1000) + nth as u64;
            rt.spawn(async move { drive(&own, target, &workload, seed, (from, to)).await })
        })
        .collect();
    let mut tallies = Vec::new();
    for task in tasks {
        tallies.push(task.await);
    }
    Ok(tallies)
}
