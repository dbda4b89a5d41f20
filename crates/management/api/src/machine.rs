//! The machine's disks as things: what each one is, where it sits, what uses it and how it is.
//!
//! Apart from [`crate::Disk`], which is a pool's part and may be a file: these are all pieces of hardware, most of them before they belong to a pool.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A disk of the machine that the daemon runs on, however many paths lead to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MachineDisk {
    /// The same disk in any port and after a restart: world-wide name, else model and serial number, else its place. Unique in the list.
    pub id: String,
    /// The kernel's name now, such as `sda`; another disk may have it after a restart.
    pub name: String,
    /// The path to give to a pool.
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
    /// 0 when there is no medium, or it does not answer.
    pub size_bytes: u64,
    pub sector_logical_bytes: u32,
    pub sector_physical_bytes: u32,
    pub rotational: bool,
    pub transport: DiskTransport,
    /// Where it sits, as precisely as is known, in words: enclosure and slot, the port, or SCSI numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The enclosure's logical identifier; absent for a slot of the machine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enclosure: Option<String>,
    /// What the enclosure or the machine calls the slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// What it holds, a sentence each, as far as somebody has looked.
    pub contents: Vec<String>,
    /// Whether a pool can have it without anything being lost.
    pub free: bool,
    /// Why it is not free, a sentence each; empty when it is.
    pub not_free: Vec<String>,
    /// Whether the machine itself lives on it.
    pub system: bool,
    /// The imported pool that it is a disk of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Its number in that pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    pub health: DiskHealth,
}

/// How a disk is, as it says itself (SMART). Read every ten minutes at most; a disk in standby is not woken for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskHealth {
    pub state: DiskHealthState,
    /// A sentence each, the worst first; empty for a good disk.
    pub reasons: Vec<String>,
    /// When the disk last said something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_unix_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_on_hours: Option<u64>,
    /// Of the rated endurance; it may be more than 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wear_percent: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskHealthState {
    Good,
    /// Nothing bad is known, and nothing good.
    Unknown,
    /// Look at it: order a replacement, check the cable, cool it.
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
    /// SCSI, but no more is known.
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
