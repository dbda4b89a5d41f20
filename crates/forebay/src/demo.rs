//! `forebay demo`: something to look at within a second, on files, with a light load.
//!
//! The first start makes four sparse files, a mirrored pool, some volumes and a host that sees one of them over iSCSI;
//! later starts find them again, also after
//! a `kill -9` at any point in between (what is missing is made, what is there is kept). Otherwise it is the same daemon
//! as `serve`.

use crate::appliance::{Addresses, Appliance, say};
use crate::load::Load;
use forebay_api::{Layout, PoolCreate};
use forebay_base::{GIB, Id, MIB};
use forebay_cli::{Exit, Failure, ServeOptions};
use forebay_control::{problem, target_name};
use forebay_pool::{BUILT_IN_LEVELS, ErrorKind, SyncPolicy, VolumeFormat, VolumeSpec};
use std::fs::{self, OpenOptions};
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

const POOL: &str = "demo";
const HOST: &str = "demo-host";
/// What qemu and libiscsi's iscsi-ls call themselves when they are not told otherwise.
const INITIATORS: [&str; 2] =
    ["iqn.2008-11.org.linux-kvm", "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-ls"];
/// Half a second: a process that was killed lets its ports go within milliseconds.
const PORT_TRIES: u32 = 10;
const PORT_PAUSE: Duration = Duration::from_millis(50);
const DISKS: usize = 4;
const DISK_BYTES: u64 = 2 * GIB;

struct DemoVolume {
    name: &'static str,
    size: u64,
    block_size: u32,
    sync: SyncPolicy,
    level: Option<Id>,
}

const fn volume(name: &'static str, block_kib: u32) -> DemoVolume {
    let (size, sync) = (256 * MIB, SyncPolicy::Always);
    DemoVolume { name, size, block_size: block_kib << 10, sync, level: None }
}

/// The first is the user's, and mapped to the demonstration's host; the others have the load's clients.
const VOLUMES: [DemoVolume; 6] = [
    DemoVolume { size: GIB, ..volume("files", 8) },
    // The least that is promised to anybody, so that also slow disks can keep it.
    DemoVolume { level: Some(BUILT_IN_LEVELS[4].0), ..volume("database", 8) },
    volume("mail", 32),
    volume("media", 128),
    DemoVolume { sync: SyncPolicy::Disabled, ..volume("scratch", 64) },
    volume("desktops", 16),
];

/// `forebay demo`.
pub fn run(mut options: ServeOptions) -> Result<(), Failure> {
    let moved = avoid_taken_ports(&mut options);
    let mut appliance = Appliance::start(&options)?;
    set_up(&appliance)?;
    let addresses = appliance.announce(&options)?;
    moved.iter().for_each(|usual| say(&format!("forebay: {usual} is in use; using another port")));
    say(&guide(&program(), &options.data.display().to_string(), &addresses));
    match appliance.daemon.setup_link()? {
        Some(link) => {
            say(&format!("\nOpen this link in a browser and create the first administrator:\n\n  {link}\n"))
        }
        None => say(&format!("\nOpen it in a browser:\n\n  {}\n", addresses.http_url)),
    }
    let load = match options.nbd_tls {
        // The load's clients speak plainly.
        Some(_) => None,
        None => {
            let nbd = addresses.nbd.as_ref().and_then(|nbd| nbd.listen.parse().ok());
            nbd.map(|nbd| Load::start(nbd, &appliance.events))
        }
    };
    appliance.daemon.wait_for_signal();
    load.into_iter().for_each(Load::stop);
    appliance.stop()
}

/// Has the system choose ports where nobody asked for certain ones and the usual ones are taken; says which.
fn avoid_taken_ports(options: &mut ServeOptions) -> Vec<String> {
    let is_default = |key: &str| options.defaults.iter().any(|default| default == key);
    let (http, nbd, iscsi) = (is_default("listen"), is_default("nbd"), is_default("iscsi"));
    let listens = [(http, Some(&mut options.listen)), (nbd, options.nbd.as_mut())];
    let portals = options.iscsi.iter_mut().map(|portal| (iscsi, Some(portal)));
    let mut moved = Vec::new();
    for listen in listens.into_iter().chain(portals).filter_map(|(usual, listen)| listen.filter(|_| usual)) {
        if is_taken(listen) {
            let free = listen.rsplit_once(':').map(|(host, _)| format!("{host}:0"));
            moved.push(std::mem::replace(listen, free.expect("a default is an address and a port")));
        }
    }
    moved
}

/// A demonstration that was killed just now may hold its ports for a moment.
fn is_taken(listen: &str) -> bool {
    let mut tries = 0;
    loop {
        match TcpListener::bind(listen) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries == PORT_TRIES => return true,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => tries += 1,
            _ => return false,
        }
        std::thread::sleep(PORT_PAUSE);
    }
}

/// Makes what is missing.
fn set_up(appliance: &Appliance) -> Result<(), Failure> {
    let daemon = &appliance.daemon;
    let pools = daemon.block_on(appliance.engine.pools());
    if !pools.iter().any(|pool| pool.name == POOL) {
        let disks = make_disks(&appliance.directory().join("disks"))?;
        let found = daemon.block_on(appliance.engine.pool_scan(disks.clone()));
        if found.iter().any(|pool| pool.name == POOL) {
            daemon.import_pool(POOL, disks)?;
        } else {
            daemon.create_pool(PoolCreate {
                name: POOL.into(),
                layout: Layout::Mirror,
                disks,
                log_disks: Vec::new(),
                spare_disks: Vec::new(),
                cache_disks: Vec::new(),
                enclosures: Default::default(),
                sectors: Default::default(),
                shards: None,
                log_bytes: None,
                force: false,
                calibrate: true,
            })?;
        }
    }
    for wanted in &VOLUMES {
        let name = format!("{POOL}/{}", wanted.name);
        match daemon.block_on(appliance.engine.volume(&name)) {
            Err(error) if error.kind == ErrorKind::NotFound => {
                let spec = VolumeSpec {
                    pool: POOL.into(),
                    name: wanted.name.into(),
                    size: wanted.size,
                    block_size: wanted.block_size,
                    sync: Some(wanted.sync),
                    compression: None,
                    format: VolumeFormat::Thin,
                    level: wanted.level,
                    own_hosts: false,
                };
                daemon.block_on(appliance.engine.volume_create(spec))
            }
            found => found,
        }
        .map_err(problem)?;
    }
    daemon.ensure_host(HOST, &INITIATORS, &format!("{POOL}/{}", VOLUMES[0].name))?;
    Ok(())
}

/// Sparse files; one that is there is left as it is.
fn make_disks(directory: &Path) -> Result<Vec<String>, Failure> {
    let failed = |path: &Path, error: io::Error| {
        Failure::new(
            Exit::Failed,
            format!("the demonstration's disk cannot be created: {error}"),
            "Choose a directory on a local file system with --data DIR.",
        )
        .object(path.display().to_string())
    };
    fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    let mut disks = Vec::new();
    for index in 0..DISKS {
        let path = directory.join(format!("disk{index}"));
        let made =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path).and_then(
                |file| {
                    // Shorter: made by a start that was killed before it got here.
                    if file.metadata()?.len() < DISK_BYTES { file.set_len(DISK_BYTES) } else { Ok(()) }
                },
            );
        made.map_err(|error| failed(&path, error))?;
        disks.push(path.display().to_string());
    }
    Ok(disks)
}

/// How the user called this program.
fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "forebay".into())
}

fn guide(program: &str, data: &str, addresses: &Addresses) -> String {
    let command = format!("{program} --data {data}");
    let over_nbd = addresses.nbd.as_ref().map_or(String::new(), |nbd| {
        let uri = nbd.uri(&format!("{POOL}/files"));
        format!(
            "
Use {POOL}/files with any NBD client:

  nbdinfo {uri}
  qemu-img info {uri}
  fio --name=try --ioengine=nbd --uri={uri} --rw=randrw --bs=8k --iodepth=16 --size=256M
"
        )
    });
    let portal = &addresses.iscsi[0];
    let target = target_name(POOL);
    format!(
        "
A mirrored pool on four files is in use by five clients, which verify every read. See it in a browser, or from another terminal:

  {command} pool status            the pool, its groups and disks
  {command} volume list            the volumes; {POOL}/files is for you
  {command} event list --follow    events, as they happen
  {command} volume create {POOL}/mine --size 10G
{over_nbd}
Use {POOL}/files over iSCSI, as host {HOST}:

  {command} host show {HOST}       its initiator names and volumes
  iscsi-ls -s iscsi://{portal}
  qemu-img info iscsi://{portal}/{target}/0

Or with open-iscsi; its initiator name is in /etc/iscsi/initiatorname.iscsi:

  {command} host create mine --iqn NAME
  {command} volume create {POOL}/lun --size 10G --host mine
  iscsiadm -m discovery -t sendtargets -p {portal} --login

Kill it (kill -9 {pid}) and start it again: every acknowledged write is still there. Ctrl-C stops it.",
        pid = std::process::id(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_cli::ChapAlgorithm;

    #[test]
    fn usual_ports_that_are_taken_are_avoided_and_wanted_ones_are_not() {
        let holder = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = holder.local_addr().unwrap().to_string();
        let free = "127.0.0.1:0".to_string();
        let options = |defaults: &[&str]| ServeOptions {
            data: "data".into(),
            listen: taken.clone(),
            http_names: Vec::new(),
            http_tls: None,
            https: false,
            nbd: None,
            iscsi: vec![taken.clone(), free.clone()],
            iscsi_chap_minimum: ChapAlgorithm::Md5,
            cores: None,
            memory_bytes: None,
            nbd_tls: None,
            defaults: defaults.iter().map(ToString::to_string).collect(),
        };
        for (defaults, listen, portal) in [
            (&["listen", "nbd", "iscsi"][..], &free, &free),
            (&["listen"], &free, &taken),
            (&["iscsi"], &taken, &free),
            (&[], &taken, &taken),
        ] {
            let mut options = options(defaults);
            let moved = avoid_taken_ports(&mut options);
            assert_eq!((&options.listen, &options.iscsi[0], &options.iscsi[1]), (listen, portal, &free));
            assert_eq!(moved.len(), defaults.iter().filter(|&&key| key != "nbd").count());
        }
    }
}
