//! What no run can change: data that does not fit, and more than interfaces carry.
//!
//! Bounds are from what cannot be better than it is, so nothing that might be enough is left out: reads may all come from memory and are not
//! counted; writes come to the disks once each, with their parity or copies, at the rate of the fastest zone.

use forebay_reference::{Configuration, Needs};
use forebay_simulation::Sheet;

const GIB: u64 = 1 << 30;
/// Of a pool, what data can take at most: chunks, trees and free space to write to are the rest.
const FULL: f64 = 0.9;

/// Bytes a second that a device writes at most.
fn write_rate(sheet: &Sheet) -> f64 {
    match sheet {
        Sheet::Disk(disk) => disk.outer as f64,
        Sheet::Flash(flash) => flash.write.bytes as f64,
        // A byte that costs nothing beside its command has no rate of its own.
        Sheet::Measured(device) => {
            let ps = device.write.byte_ps.into_iter().min().unwrap_or(0).max(1);
            1e12 / ps as f64
        }
    }
}

/// Why this cannot be enough, if that is certain.
pub(crate) fn impossible(configuration: &Configuration) -> Option<String> {
    let (machine, pool) = (&configuration.machine, configuration.cases.first()?.pools.first()?);
    let (sheet, _) = configuration.sheet(&machine.disk)?;
    let layout = pool.layout.0;
    let disks = pool.disks.map_or(layout.width() as u64, u64::from) * u64::from(pool.groups);
    let useful = f64::from(layout.data()) / layout.width() as f64;
    let clients = || pool.workloads.iter().filter_map(|name| configuration.client(name));
    let wanted: u64 = clients().map(|client| client.workload.size_gib * GIB).sum();
    let room = (sheet.bytes() * disks) as f64 * useful * FULL;
    if wanted as f64 > room {
        let gib = |bytes: f64| bytes / GIB as f64;
        return Some(format!("{:.0} GiB of data do not fit into {:.0} GiB", gib(wanted as f64), gib(room)));
    }
    let written: f64 = clients()
        .filter_map(|client| {
            // What a trace writes is in its file.
            let Needs { iops, .. } = client.needs.filter(|_| client.workload.trace.is_none())?;
            let writes = iops as f64 * f64::from(100 - client.workload.read_percent.min(100)) / 100.0;
            Some(writes * client.workload.block_bytes() as f64)
        })
        .sum();
    let rate = write_rate(&sheet) * disks as f64 * useful;
    (written > rate).then(|| {
        format!("the workloads write {:.0} MB/s, and its disks take {:.0} MB/s", written / 1e6, rate / 1e6)
    })
}
