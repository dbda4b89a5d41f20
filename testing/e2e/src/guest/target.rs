//! The iSCSI target under test, as the guest's steps see it: portals, a name, one logical unit.

use super::image::INITIATOR;
use crate::host::{Context, Directory, Outcome};
use crate::server::{Export, Forebay, Server};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Forebay's daemon with one volume, mapped to the guest.
pub struct Target {
    forebay: Forebay,
    volume: Export,
    /// Where the command line reads secrets from.
    secrets: PathBuf,
}

const HOST: &str = "guest";

/// What a side of a login proves itself by (CHAP).
#[derive(Clone, Copy)]
pub struct Proof {
    pub user: &'static str,
    pub secret: &'static str,
}

impl Target {
    pub const IQN: &str = "iqn.2026-11.io.forebay:e2e";
    /// The first volume that is mapped to a host.
    pub const LUN: u32 = 0;
    /// The next one.
    pub const SECOND_LUN: u32 = 1;

    /// udev's name of a logical unit behind a portal.
    pub fn path(portal: &str, lun: u32) -> String {
        format!("/dev/disk/by-path/ip-{portal}-iscsi-{}-lun-{lun}", Target::IQN)
    }

    pub fn create(binary: &Path, directory: &Directory, size: u64) -> Outcome<Target> {
        let mut forebay = Forebay::create(binary, directory, "mirror", 2, 4 * size)?;
        forebay.cli(&["host", "create", HOST, "--iqn", INITIATOR])?;
        let volume = forebay.create_volume("guest", size, "8K", true)?;
        forebay.cli(&["volume", "map", &volume.name, "--host", HOST])?;
        Ok(Target { forebay, volume, secrets: directory.create("secrets")? })
    }

    /// Gives the guest another volume, while it is logged in.
    pub fn map_second(&mut self, size: u64) -> Outcome {
        let second = self.forebay.create_volume("second", size, "16K", true)?;
        self.forebay.cli(&["volume", "map", &second.name, "--host", HOST]).map(|_| ())
    }

    /// From now on the guest has to prove itself, and with `mutual`, too, the target to the guest: user and secret of each.
    pub fn demand_chap(&self, chap: Proof, mutual: Option<Proof>) -> Outcome {
        let mut words = vec!["host".to_owned(), "set".into(), HOST.into()];
        for (side, proof) in [("chap", Some(chap)), ("mutual", mutual)] {
            let Some(proof) = proof else { continue };
            let file = self.secrets.join(side);
            fs::write(&file, proof.secret).context(file.display())?;
            words.extend([format!("--{side}"), proof.user.into()]);
            words.extend([format!("--{side}-secret-file"), file.display().to_string()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.forebay.cli(&words).map(|_| ())
    }

    /// Two, each reaching the same logical unit.
    pub fn portals(&self) -> Outcome<[SocketAddr; 2]> {
        let portals = self.forebay.portals();
        let [first, second] = portals else { return Err(format!("not two portals: {portals:?}")) };
        Ok([first.parse().context(first)?, second.parse().context(second)?])
    }

    /// Bytes of the volume.
    pub fn size(&self) -> u64 {
        self.volume.size
    }

    pub fn resize(&mut self, size: u64) -> Outcome {
        self.forebay.cli(&["volume", "resize", &self.volume.name, "--size", &size.to_string()])?;
        self.volume.size = size;
        Ok(())
    }

    /// The orderly end, and what the offline checker says.
    pub fn stop(mut self) -> Outcome {
        self.forebay.stop()?;
        self.forebay.check_offline()
    }

    /// The end of what the daemon said, for a failure's report.
    pub fn log_tail(&self) -> String {
        self.forebay.log_tail()
    }
}
