//! The iSCSI target under test, as the guest's steps see it: portals, a name, one logical unit.

use super::image::INITIATOR;
use crate::host::{Context, Directory, Outcome};
use crate::server::{Export, Forebay, Server};
use std::net::SocketAddr;
use std::path::Path;

/// Forebay's daemon with one volume, mapped to the guest.
pub struct Target {
    forebay: Forebay,
    volume: Export,
}

impl Target {
    pub const IQN: &str = "iqn.2026-11.io.forebay:e2e";
    /// The first volume that is mapped to a host.
    pub const LUN: u32 = 0;

    pub fn create(binary: &Path, directory: &Directory, size: u64) -> Outcome<Target> {
        let mut forebay = Forebay::create(binary, directory, "mirror", 2, 4 * size)?;
        forebay.cli(&["host", "create", "guest", "--iqn", INITIATOR])?;
        let volume = forebay.create_volume("guest", size, "8K", true)?;
        forebay.cli(&["volume", "map", &volume.name, "--host", "guest"])?;
        Ok(Target { forebay, volume })
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
