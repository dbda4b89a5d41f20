//! A disk for the unit tests, about which nothing is known but its name.

use crate::disk::{Contents, Disk, Identity, Transport, Zoned};

pub(crate) fn blank(name: &str) -> Disk {
    Disk {
        name: name.into(),
        device: format!("/dev/{name}"),
        identity: Identity(format!("name:{name}")),
        by_id: None,
        by_path: None,
        model: None,
        vendor: None,
        serial: None,
        firmware: None,
        wwn: None,
        size: 1 << 40,
        sector_logical: 512,
        sector_physical: 4096,
        rotational: true,
        transport: Transport::Sata,
        zoned: Zoned::No,
        read_only: false,
        removable: false,
        hctl: None,
        slot: None,
        paths: Vec::new(),
        multipath: None,
        partitions: Vec::new(),
        contents: Contents::default(),
        system: Vec::new(),
        not_free: Vec::new(),
        health: None,
    }
}
