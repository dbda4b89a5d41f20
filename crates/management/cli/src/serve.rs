//! The options of the daemon, declared once.
//!
//! The command line, the configuration file and the example that is shipped of it all come from this declaration: a key of the file is an
//! option's name, and takes what the option takes. Each option therefore takes a value, `--https` too, so that one can overrule the other.

use crate::size::parse_size;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct Configured {
    /// The configuration file, whose keys are the options below; the command line overrides it [default:
    /// /etc/forebay/forebay.toml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Taken from clap's matches, which say where each value comes from.
    #[command(flatten)]
    _options: Serve,
}

#[derive(Subcommand, Debug)]
pub enum Config {
    /// Check a configuration file, and list each error with its line and the allowed values; exit 2 on errors
    Check {
        /// The file
        #[arg(value_name = "FILE", default_value = crate::configuration::FILE)]
        file: PathBuf,
    },
    /// Print the value of each option and its source, as `forebay serve` would use them
    Show(Box<Configured>),
    /// Write the daemon's settings to a new file: users, hosts, levels, channels and others, with their secrets
    Backup {
        /// The backup file, which must not exist yet; only its owner can read it
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Restore a backup to the data directory of a stopped daemon
    Restore {
        /// A file that `forebay config backup` has written
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Replace the settings that the data directory already has
        #[arg(long)]
        force: bool,
    },
}

#[derive(Args, Debug)]
pub struct Serve {
    /// Address of the API and the browser interface; port 0 takes a free one. Other hosts connect over HTTPS only
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080", value_parser = parse_address)]
    pub listen: String,
    /// A name under which clients reach the API, in addition to its addresses; repeat the option for more
    #[arg(long, value_name = "NAME", action = clap::ArgAction::Append)]
    pub http_name: Vec<String>,
    /// Certificate chain for HTTPS, a PEM file [default: one of its own authority, for other hosts]
    #[arg(long, value_name = "FILE", requires = "http_key")]
    pub http_cert: Option<PathBuf>,
    /// Private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "http_cert")]
    pub http_key: Option<PathBuf>,
    /// Use HTTPS for clients on this host, too
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false)]
    pub https: bool,
    /// Address for NBD clients, where port 0 takes a free port and other hosts need TLS; unix:PATH, a socket that only the
    /// daemon's user can open; or off
    #[arg(long, value_name = "HOST:PORT|unix:PATH|off", default_value = "127.0.0.1:10809", value_parser = parse_nbd)]
    pub nbd: String,
    /// Address for iSCSI initiators; repeat the option for more paths. Only hosts that exist in Forebay may log in
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:3260", action = clap::ArgAction::Append,
        value_parser = parse_address)]
    pub iscsi: Vec<String>,
    /// Weakest CHAP algorithm to accept from iSCSI hosts; `sha256` refuses initiators that support only MD5
    #[arg(long, value_name = "ALGORITHM", value_enum, default_value_t = ChapAlgorithm::Md5)]
    pub iscsi_chap_minimum: ChapAlgorithm,
    /// Engine cores, 1 to 64 [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub shards: Option<u32>,
    /// Memory for cached blocks, 64M or more [default: a quarter of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Certificate chain for NBD over TLS, a PEM file
    #[arg(long, value_name = "FILE", requires = "nbd_tls_key")]
    pub nbd_tls_cert: Option<PathBuf>,
    /// Private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "nbd_tls_cert")]
    pub nbd_tls_key: Option<PathBuf>,
    /// Admit only NBD clients with a certificate of this authority, a PEM file
    #[arg(long, value_name = "FILE", requires = "nbd_tls_cert")]
    pub nbd_tls_ca: Option<PathBuf>,
}

/// From the weakest to the strongest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ChapAlgorithm {
    Md5,
    Sha256,
}

/// How to run the daemon.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    pub data: PathBuf,
    /// `HOST:PORT` of the API.
    pub listen: String,
    /// Names of this host under which the API is reached, besides its addresses.
    pub http_names: Vec<String>,
    /// Certificate and key for HTTPS, PEM files.
    pub http_tls: Option<(PathBuf, PathBuf)>,
    /// Also on loopback.
    pub https: bool,
    /// `HOST:PORT` of NBD, or `unix:PATH`; `None`: it is off.
    pub nbd: Option<String>,
    /// `HOST:PORT` of each iSCSI portal, in the order of their portal groups.
    pub iscsi: Vec<String>,
    /// The weakest algorithm of CHAP over iSCSI.
    pub iscsi_chap_minimum: ChapAlgorithm,
    /// Engine cores; `None`: one per CPU.
    pub cores: Option<usize>,
    /// Bytes for cached blocks; `None`: a quarter of the machine's.
    pub memory_bytes: Option<u64>,
    pub nbd_tls: Option<NbdTls>,
    /// Names of the options that are not set.
    pub defaults: Vec<String>,
}

/// PEM files.
#[derive(Clone, Debug)]
pub struct NbdTls {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Clients must show a certificate from this authority.
    pub authority: Option<PathBuf>,
}

impl Serve {
    pub fn into_options(self, data: PathBuf, defaults: Vec<String>) -> ServeOptions {
        let nbd_tls = self.nbd_tls_cert.zip(self.nbd_tls_key).map(|(certificate, key)| NbdTls {
            certificate,
            key,
            authority: self.nbd_tls_ca,
        });
        ServeOptions {
            data,
            listen: self.listen,
            http_names: self.http_name,
            http_tls: self.http_cert.zip(self.http_key),
            https: self.https,
            nbd: Some(self.nbd).filter(|nbd| nbd != "off"),
            iscsi: self.iscsi,
            iscsi_chap_minimum: self.iscsi_chap_minimum,
            cores: self.shards.map(|shards| shards as usize),
            memory_bytes: self.memory,
            nbd_tls,
            defaults,
        }
    }
}

fn parse_address(text: &str) -> Result<String, String> {
    let is_address = text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_plain = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '/');
        let is_literal = host.starts_with('[') && host.ends_with(']');
        is_plain && (is_literal || !host.contains(':')) && port.parse::<u16>().is_ok()
    });
    match is_address {
        true => Ok(text.to_string()),
        false => {
            Err(format!("`{text}` is not a host and a port; write it like 127.0.0.1:8080 or [::1]:8080"))
        }
    }
}

fn parse_nbd(text: &str) -> Result<String, String> {
    match text.strip_prefix("unix:") {
        Some(path) if path.starts_with('/') => Ok(text.to_string()),
        Some(_) => Err("the path is not absolute; write it like unix:/run/forebay/nbd.sock".into()),
        None if text == "off" => Ok(text.to_string()),
        None => parse_address(text).map_err(|wrong| format!("{wrong}, unix:/run/forebay/nbd.sock, or off")),
    }
}
