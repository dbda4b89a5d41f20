//! The disks of the machine: what each one is, its place, use and health.
//!
//! Unlike [`crate::Disk`], which is a member of a pool and may be a file, these are pieces of hardware, most of them
//! not in a pool yet.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A disk of the machine that the daemon runs on. A disk with several paths is listed once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MachineDisk {
    /// Identifies the disk in any port and after a restart: world-wide name, else model and serial number, else
    /// place. Unique in the list.
    pub id: String,
    /// The kernel's present name, such as `sda`; another disk may have it after a restart.
    pub name: String,
    /// The path for `pool create`, `pool add` and `disk replace`.
    pub device: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// World-wide name: `0x5000c500…`, `eui.…` or `uuid.…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    /// 0 without a medium, or when the disk does not answer.
    pub size_bytes: u64,
    pub sector_logical_bytes: u32,
    pub sector_physical_bytes: u32,
    pub rotational: bool,
    pub transport: DiskTransport,
    /// Its place, as precisely as it is known: enclosure and slot, port, or SCSI numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The enclosure's logical identifier; absent for a slot of the machine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enclosure: Option<String>,
    /// The slot's name in the enclosure or the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// Its contents, a sentence each, as far as they were read.
    pub contents: Vec<String>,
    /// Whether a pool can take it without a loss of data.
    pub free: bool,
    /// Why it is not free, a sentence each; empty when it is free.
    pub not_free: Vec<String>,
    /// Whether the machine's own system is on it.
    pub system: bool,
    /// The imported pool that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Its number in that pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    pub health: DiskHealth,
}

/// Health of a disk, as the disk reports it (SMART). It is read every ten minutes at most. A disk in standby is not
/// woken for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskHealth {
    pub state: DiskHealthState,
    /// A sentence each, the worst first; empty for a good disk.
    pub reasons: Vec<String>,
    /// When the disk last reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_unix_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_on_hours: Option<u64>,
    /// Used part of the rated endurance; it may exceed 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wear_percent: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskHealthState {
    Good,
    /// Nothing is known about its health.
    Unknown,
    /// Needs attention: a replacement, another cable, or cooling.
    Warning,
    /// Replace it.
    Failing,
}

/// How a disk is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiskTransport {
    Sata,
    Sas,
    /// NVMe over PCI Express.
    Nvme,
    /// NVMe over TCP, RDMA or Fibre Channel.
    NvmeFabrics,
    FibreChannel,
    Iscsi,
    Usb,
    /// A virtual disk of KVM.
    Virtio,
    /// A virtual disk of Xen, Hyper-V or VMware.
    Virtual,
    Mmc,
    /// Persistent memory.
    Pmem,
    Loop,
    Nbd,
    /// SCSI of an unknown kind.
    Scsi,
    Other,
}

impl DiskTransport {
    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            DiskTransport::Sata => "SATA",
            DiskTransport::Sas => "SAS",
            DiskTransport::Nvme => "NVMe",
            DiskTransport::NvmeFabrics => "NVMe over fabrics",
            DiskTransport::FibreChannel => "Fibre Channel",
            DiskTransport::Iscsi => "iSCSI",
            DiskTransport::Usb => "USB",
            DiskTransport::Virtio | DiskTransport::Virtual => "virtual",
            DiskTransport::Mmc => "MMC",
            DiskTransport::Pmem => "persistent memory",
            DiskTransport::Loop => "loop",
            DiskTransport::Nbd => "NBD",
            DiskTransport::Scsi => "SCSI",
            DiskTransport::Other => "other",
        }
    }
}
