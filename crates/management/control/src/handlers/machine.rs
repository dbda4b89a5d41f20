//! The machine's own parts: its disks.

use crate::Shared;
use crate::machine::PoolDisk;
use crate::request::{Answered, Ask, ok};
use axum::extract::State;
use std::sync::Arc;

pub async fn disks(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let mut used = Vec::new();
    for pool in shared.engine.pools().await {
        let disks = pool.groups.iter().flat_map(|group| &group.disks);
        let disks = disks.filter(|disk| !disk.path.is_empty()).map(|disk| PoolDisk {
            pool: pool.name.clone(),
            number: disk.number,
            path: disk.path.clone(),
        });
        used.extend(disks);
    }
    let disks = shared.machine.disks(&used).await?;
    // As people count: sdb before sdaa, nvme2n1 before nvme10n1.
    ok(&ask.page(disks, |disk| format!("{:03} {}", disk.name.len(), disk.name))?)
}
