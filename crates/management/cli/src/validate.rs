//! `forebay validate`: what to run; the binary knows how.

use clap::{ArgGroup, Args, Subcommand};
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub enum Validate {
    /// List the reference architectures
    List,
    /// Run a reference architecture or configuration, and compare the results with published ones
    Run(ValidateRun),
    /// Find the cheapest pool that meets all needs of workloads, and explain why nothing cheaper does; needs no daemon
    Size(ValidateSize),
    /// Convert a trace or a fio job file to workloads for a configuration
    Import {
        /// A trace of `volume trace`, or a fio job file. An unknown job option that changes the workload is refused by name
        #[arg(value_name = "FILE")]
        path: PathBuf,
    },
}

#[derive(Args, Debug)]
pub struct ValidateSize {
    /// TOML file with the workloads: like a configuration, but without disks and cases
    #[arg(long, value_name = "FILE")]
    pub workloads: PathBuf,
    /// TOML file with the choices: disks and their prices, layouts, and numbers of groups
    #[arg(long, value_name = "FILE")]
    pub catalogue: PathBuf,
    /// Random seed; the same seed gives the same answer
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Maximum number of layouts to run
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Write the pool that was found to this file, as a configuration for `validate run`
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("world").required(true).multiple(true).args(["model", "live"]))]
pub struct ValidateRun {
    /// A name from `validate list`, `all`, or a TOML file of your own
    #[arg(value_name = "NAME|FILE")]
    pub name: String,
    /// Run on modelled disks, in virtual time, with the engine's own code; needs no daemon
    #[arg(long)]
    pub model: bool,
    /// Run on a pool in use, over NBD or iSCSI, with temporary volumes; with --model, also compare the two
    #[arg(long, requires = "pool")]
    pub live: bool,
    /// The pool for --live; its own layout is used, not the file's
    #[arg(long, value_name = "NAME", requires = "live")]
    pub pool: Option<String>,
    /// Address of the daemon's NBD server
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10809")]
    pub nbd: String,
    /// Use iSCSI instead of NBD, at this portal of the daemon, with a temporary host
    #[arg(long, value_name = "ADDRESS:PORT", requires = "live", conflicts_with = "nbd")]
    pub iscsi: Option<String>,
    /// Run only this case [default: all cases]
    #[arg(long, value_name = "NAME")]
    pub case: Option<String>,
    /// Make disks and volumes smaller by this factor, 1 to 4096 [default: the file's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub scale: Option<u64>,
    /// Random seed; the same seed gives the same figures
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of seeds to run each case with, 1 to 100; the output shows the spread
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub seeds: u64,
    /// Duration of the measurement in seconds, 1 to 3600 [default: the file's]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
    /// Also write the results to this file, as an HTML page
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}
