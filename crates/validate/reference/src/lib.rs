//! Published reference architectures as configurations that run: on modelled disks, in virtual time, with the engine's own code.
//!
//! What a configuration says is in [`Configuration`], how a case is run in [`model`], what is told of it in [`Report`].

mod configuration;
mod device;
mod html;
pub mod model;
mod report;

pub use configuration::{
    Case, ClassName, Client, Configuration, Figure, Machine, Measure, Mistake, Needs, Pool, Promise,
};
pub use device::{DeviceCosts, DeviceModel};
pub use html::html;
pub use report::{CaseReport, ClientReport, FigureReport, Report};

/// Those that come with the product.
const TEXTS: [&str; 2] = [include_str!("../configurations/a.toml"), include_str!("../configurations/c.toml")];

/// The published ones.
pub fn references() -> Vec<Configuration> {
    TEXTS.iter().map(|text| Configuration::parse(text).expect("tests parse them all")).collect()
}
