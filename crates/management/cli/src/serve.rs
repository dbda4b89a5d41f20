//! The options of the daemon, declared once.
//!
//! The command line, the configuration file and the example that is shipped of it all come from this declaration: a key of the file is an
//! option's name, and takes what the option takes. Each option therefore takes a value, `--https` too, so that one can overrule the other.

use crate::size::parse_size;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Args, Debug)]
pub struct Configured {
    /// The configuration file, whose keys are the options below; what the command line says overrides it [default:
    /// /etc/forebay/forebay.toml if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Taken from clap's matches, which say where each value comes from.
    #[command(flatten)]
    _options: Serve,
}

#[derive(Subcommand, Debug)]
pub enum Config {
    /// Check a configuration file without starting anything: what is wrong, in which line, and what is allowed; exit 2 when something is
    Check {
        /// The file
        #[arg(value_name = "FILE", default_value = crate::configuration::FILE)]
        file: PathBuf,
    },
    /// Print the value of each option and where it comes from, as `forebay serve` with the same options would start
    Show(Box<Configured>),
    /// Write what the daemon remembers besides the pools to a new file: users, hosts, levels, channels and the like, with their secrets
    Backup {
        /// A file that does not exist yet; only its owner may read it
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Put a backup into the data directory of a daemon that does not run
    Restore {
        /// Made by `forebay config backup`
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Also if something is remembered there: it is replaced
        #[arg(long)]
        force: bool,
    },
}

#[derive(Args, Debug)]
pub struct Serve {
    /// Where the API and the browser interface answer; port 0 takes a free one. Beyond this host over HTTPS
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080", value_parser = parse_address)]
    pub listen: String,
    /// A name of this host under which the API is reached, besides its addresses; given several times, there are more
    #[arg(long, value_name = "NAME", action = clap::ArgAction::Append)]
    pub http_name: Vec<String>,
    /// Certificate chain for HTTPS, PEM [default: beyond this host, one of its own]
    #[arg(long, value_name = "FILE", requires = "http_key")]
    pub http_cert: Option<PathBuf>,
    /// The certificate's private key, PEM
    #[arg(long, value_name = "FILE", requires = "http_cert")]
    pub http_key: Option<PathBuf>,
    /// HTTPS on this host, too
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false)]
    pub https: bool,
    /// Where NBD clients connect: an address, of which port 0 takes a free one, and beyond this host only with TLS; unix:PATH, a
    /// socket that only the daemon's user can open; or off
    #[arg(long, value_name = "HOST:PORT|unix:PATH|off", default_value = "127.0.0.1:10809", value_parser = parse_nbd)]
    pub nbd: String,
    /// Where iSCSI initiators connect; given several times, each is a path of its own. Only known hosts may log in
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:3260", action = clap::ArgAction::Append,
        value_parser = parse_address)]
    pub iscsi: Vec<String>,
    /// The weakest CHAP algorithm that proves an iSCSI host's secret: `sha256` refuses initiators that know MD5 only
    #[arg(long, value_name = "ALGORITHM", value_enum, default_value_t = ChapAlgorithm::Md5)]
    pub iscsi_chap_minimum: ChapAlgorithm,
    /// Engine cores [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub shards: Option<u32>,
    /// Memory for cached blocks, 64M or more [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Certificate chain for NBD over TLS, PEM
    #[arg(long, value_name = "FILE", requires = "nbd_tls_key")]
    pub nbd_tls_cert: Option<PathBuf>,
    /// The certificate's private key, PEM
    #[arg(long, value_name = "FILE", requires = "nbd_tls_cert")]
    pub nbd_tls_key: Option<PathBuf>,
    /// Admit only NBD clients with a certificate from this authority, PEM
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
    /// Names of the options that nobody has set.
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
