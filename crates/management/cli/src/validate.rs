//! `forebay validate`: what to run; the binary knows how.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub enum Validate {
    /// Reference architectures that can be run
    List,
    /// Run one, and print what it delivers beside what was published of it
    Run(ValidateRun),
}

#[derive(Args, Debug)]
pub struct ValidateRun {
    /// One of the list, `all`, or a TOML file of your own like theirs
    #[arg(value_name = "NAME|FILE")]
    pub name: String,
    /// Required: on modelled disks, in virtual time, with the engine's own code; needs no daemon
    #[arg(long, required = true)]
    pub model: bool,
    /// The same seed gives the same figures
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Measure for so many seconds instead of those that the file says
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
    /// Write it as a page of HTML, too
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}
