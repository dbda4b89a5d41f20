//! `forebay validate`: what to run; the binary knows how.

use clap::{ArgGroup, Args, Subcommand};
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub enum Validate {
    /// Reference architectures that can be run
    List,
    /// Run one, and print what it delivers beside what was published of it
    Run(ValidateRun),
    /// Search a catalogue for the cheapest pool that keeps every promise, and say why nothing cheaper does; needs no daemon
    Size(ValidateSize),
    /// Print what a trace or a fio job file asks, as workloads for a configuration
    Import {
        /// What `volume trace` has written, or a job file; an option that would make another workload of it and is not understood is refused by name
        #[arg(value_name = "FILE")]
        path: PathBuf,
    },
}

#[derive(Args, Debug)]
pub struct ValidateSize {
    /// What it is wanted for: a TOML file like a configuration, without disks and cases
    #[arg(long, value_name = "FILE")]
    pub workloads: PathBuf,
    /// Disks with prices, layouts and how many groups there may be: a TOML file
    #[arg(long, value_name = "FILE")]
    pub catalogue: PathBuf,
    /// The same seed gives the same answer
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Layouts that are run, at most
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Write what was found as a configuration, for `validate run`
    #[arg(long, value_name = "FILE")]
    pub configuration: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("world").required(true).multiple(true).args(["model", "live"]))]
pub struct ValidateRun {
    /// One of the list, `all`, or a TOML file of your own like theirs
    #[arg(value_name = "NAME|FILE")]
    pub name: String,
    /// On modelled disks, in virtual time, with the engine's own code; needs no daemon
    #[arg(long)]
    pub model: bool,
    /// On a running pool, over NBD or iSCSI, with volumes that are made for it and deleted; with --model, how far the model is from it
    #[arg(long, requires = "pool")]
    pub live: bool,
    /// The pool that --live asks, whatever layout the file says
    #[arg(long, value_name = "NAME", requires = "live")]
    pub pool: Option<String>,
    /// Where the daemon's NBD server is
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10809")]
    pub nbd: String,
    /// Ask over iSCSI instead, at this portal of the daemon's: a host is made known for it, and forgotten
    #[arg(long, value_name = "ADDRESS:PORT", requires = "live", conflicts_with = "nbd")]
    pub iscsi: Option<String>,
    /// Only this case
    #[arg(long, value_name = "NAME")]
    pub case: Option<String>,
    /// Disks and volumes are so many times smaller than they are said to be, instead of what the file says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub scale: Option<u64>,
    /// The same seed gives the same figures
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Run each case with so many seeds, and say how far they are apart
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub seeds: u64,
    /// Measure for so many seconds instead of those that the file says
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
    /// Write it as a page of HTML, too
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}
