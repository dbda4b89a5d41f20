//! Published reference architectures as configurations that run: on modelled disks, in virtual time, with the engine's own code.
//!
//! What a configuration says is in [`Configuration`], how a case is run in [`model`], what is told of it in [`Report`], also of
//! running pools.

mod configuration;
mod device;
mod html;
mod jobs;
mod live;
pub mod model;
mod plot;
mod report;
mod text;

pub use configuration::{
    Case, ClassName, Client, Configuration, Curve, Fails, Figure, Likeness, Machine, Measure, Mistake, Needs,
    Pool, Processor, Promise, Traces, Verdict, traces,
};
pub use device::{DeviceCosts, DeviceModel};
pub use html::html;
pub use jobs::Progress;
pub use live::{BOUNDS, ErrorReport, LiveCase, LiveClientReport, LiveReport};
pub use report::{
    CaseReport, ClientReport, FailureReport, FigureReport, LoadReport, PhaseReport, Report, check_littles_law,
};

/// Those that come with the product.
const TEXTS: [&str; 5] = [
    include_str!("../configurations/a.toml"),
    include_str!("../configurations/b.toml"),
    include_str!("../configurations/c.toml"),
    include_str!("../configurations/d.toml"),
    include_str!("../configurations/e.toml"),
];

/// The published ones.
pub fn references() -> Vec<Configuration> {
    TEXTS.iter().map(|text| Configuration::parse(text).expect("tests parse them all")).collect()
}
