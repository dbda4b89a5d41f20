//! The real world beside the modelled one: devices that a model is fitted to, and running pools that are asked as clients ask them.

mod device;
mod fit;
mod iscsi;
mod nbd;
mod probe;
mod run;

pub use device::{BOUNDS, DeviceOptions, DeviceReport, Judged, Refused, model_device};
pub use forebay_workload::Tally;
pub use iscsi::{Initiator, REQUEST_BYTES_MAX};
pub use run::{Door, LiveClient, Span, drive_live};
