//! The real world beside the modelled one: devices that a model is fitted to.

mod device;
mod fit;
mod probe;

pub use device::{BOUNDS, DeviceOptions, DeviceReport, Judged, Refused, model_device};
