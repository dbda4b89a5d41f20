//! The guest's kernel and initramfs, made from Debian's packages.
//!
//! Nothing is installed and nothing is mounted: apt says which packages the tools need on a machine that has none,
//! they are downloaded and unpacked beside each other, and what the guest uses of them is packed into an archive in the
//! format that the kernel unpacks at its start (cpio "newc", uncompressed: under emulation, unpacking costs more than
//! loading). The archive is the guest's whole system and lies in its memory, so every boot starts from the same.
//!
//! The same versions give the same bytes: names are sorted, times and owners are zero. The list of versions lies beside
//! the archive, together with the files that are ours; the archive is made again when any of it differs.
//!
//! Of the kernel's modules only those in [`MODULES`] and what they depend on are packed, with a list in the order in which
//! they can be loaded: each names in its own `.modinfo` section what it needs, so no `depmod` has to run.

use crate::host::{Context, Outcome, command, run, run_command};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

const PACKAGES: &[&str] = &[
    "linux-image-amd64",
    "busybox-static",
    "kmod",
    "udev",
    "open-iscsi",
    "multipath-tools",
    "sg3-utils",
    "fio",
    "e2fsprogs",
    "xfsprogs",
];

/// What they depend on only to be installed, or for scripts that the guest does not run.
const UNUSED: &[&str] = &[
    "adduser",
    "coreutils",
    "cpio",
    "debconf",
    "dpkg",
    "gcc-12-base",
    "init-system-helpers",
    "initramfs-tools",
    "initramfs-tools-core",
    "klibc-utils",
    "libfile-find-rule-perl",
    "libgdbm-compat4",
    "libgdbm6",
    "libklibc",
    "libnumber-compare-perl",
    "libperl5.36",
    "libpython3-stdlib",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libsqlite3-0",
    "libtext-glob-perl",
    "linux-base",
    "linux-image-amd64",
    "media-types",
    "passwd",
    "perl",
    "perl-base",
    "perl-modules-5.36",
    "python3",
    "python3-minimal",
    "python3.11",
    "python3.11-minimal",
    "tar",
    "usrmerge",
];

/// What the guest uses of a package that it uses.
const DROPPED: &[&str] = &[
    "boot",
    "lib/modules",
    "lib/udev/hwdb.d",
    "lib/systemd/system",
    "usr/include",
    "usr/share",
    "usr/lib/x86_64-linux-gnu/gconv",
];

const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "sd_mod",
    "sg",
    "iscsi_tcp",
    "scsi_dh_alua",
    "dm_multipath",
    "dm_round_robin",
    "dm_service_time",
    // Not named by those that use them: they ask for an algorithm, and the kernel for a program that finds its module.
    "crc32c_generic",
    "crc32c_intel",
    "ext4",
    "xfs",
];

const INIT: &str = include_str!("../../guest/init");
const MULTIPATH: &str = include_str!("../../guest/multipath.conf");
/// The name that the guest logs in with.
pub const INITIATOR: &str = "iqn.1993-08.org.debian:01:forebay-guest";

/// Where the two files lie that QEMU starts from.
pub struct Image {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
}

/// The image, made when it is not there or no longer what it would be.
pub fn image() -> Outcome<Image> {
    let place = place()?;
    let image = Image { kernel: place.join("vmlinuz"), initramfs: place.join("initramfs") };
    let manifest = place.join("manifest");
    // Lists of packages that are missing or name versions that are gone are asked for once.
    let fresh =
        |packages: &[Package]| fs::read_to_string(&manifest).is_ok_and(|there| there == describe(packages));
    let packages = match resolve() {
        Ok(packages) if fresh(&packages) => return Ok(image),
        Ok(packages) => build(&packages, &place).map(|()| packages),
        Err(error) => Err(error),
    };
    let packages = match packages {
        Ok(packages) => packages,
        Err(first) => {
            run("apt-get update -q").context(&first)?;
            let packages = resolve()?;
            build(&packages, &place)?;
            packages
        }
    };
    // Last, so that what is beside it is whole.
    fs::write(&manifest, describe(&packages)).context(manifest.display())?;
    Ok(image)
}

/// Below the directory that this program was built into.
fn place() -> Outcome<PathBuf> {
    let program = std::env::current_exe().context("this program's path")?;
    let target = program.ancestors().nth(2).ok_or("this program does not lie in a target directory")?;
    let place = target.join("guest");
    fs::create_dir_all(&place).context(place.display())?;
    Ok(place)
}

struct Package {
    name: String,
    version: String,
}

/// The packages that apt would install on a machine with none, less [`UNUSED`].
fn resolve() -> Outcome<Vec<Package>> {
    let mut apt = command("apt-get");
    apt.args(["install", "--simulate", "--no-install-recommends", "-o", "Dir::State::status=/dev/null"]);
    let said = run_command(apt.args(PACKAGES), "apt-get install --simulate")?;
    // "Inst NAME (VERSION ARCHIVE [ARCHITECTURE])"
    let mut packages: Vec<Package> = said
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("Inst ")?.split_once(" (")?;
            let version = rest.split(' ').next()?;
            Some(Package { name: name.to_owned(), version: version.to_owned() })
        })
        .filter(|package| !UNUSED.contains(&package.name.as_str()))
        .collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    if packages.iter().any(is_kernel) { Ok(packages) } else { Err(format!("apt names no kernel:\n{said}")) }
}

/// `linux-image-amd64` itself is empty and depends on the one with the version in its name.
fn is_kernel(package: &Package) -> bool {
    package.name.starts_with("linux-image-")
}

/// Everything that the image follows from, but for this file's code.
fn describe(packages: &[Package]) -> String {
    let mut text = String::new();
    for Package { name, version } in packages {
        text += &format!("{name} {version}\n");
    }
    for list in [UNUSED, DROPPED, MODULES] {
        text += &format!("{}\n", list.join(" "));
    }
    text + INITIATOR + "\n" + INIT + MULTIPATH
}

fn build(packages: &[Package], place: &Path) -> Outcome {
    // What an interrupted run left is neither used nor kept.
    let _ = fs::remove_file(place.join("manifest"));
    let work = place.join("work");
    let _ = fs::remove_dir_all(&work);
    let (downloads, root, kernel) = (work.join("packages"), work.join("root"), work.join("kernel"));
    for directory in [&downloads, &root, &kernel] {
        fs::create_dir_all(directory).context(directory.display())?;
    }
    let mut apt = command("apt-get");
    // As root apt would fetch as a user of its own, who may not write here.
    apt.args(["download", "-q", "-o", "APT::Sandbox::User=root"]).current_dir(&downloads);
    apt.args(packages.iter().map(|package| format!("{}={}", package.name, package.version)));
    run_command(&mut apt, "apt-get download")?;

    let mut files: Vec<PathBuf> =
        fs::read_dir(&downloads).context("the packages")?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in &files {
        let name = file.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        let to = if name.starts_with("linux-image-") { &kernel } else { &root };
        run(&format!("dpkg-deb --extract {} {}", file.display(), to.display()))?;
    }
    let mut archive = Archive::default();
    archive.add_tree(&root)?;
    add_modules(&mut archive, &kernel)?;
    archive.add_text("init", INIT, 0o755);
    archive.add_text("etc/multipath.conf", MULTIPATH, 0o644);
    archive.add_text("etc/iscsi/initiatorname.iscsi", &format!("InitiatorName={INITIATOR}\n"), 0o600);
    archive.add_text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644);
    archive.add_text("etc/group", "root:x:0:\ndisk:x:6:\ntty:x:5:\n", 0o644);
    archive.write(&place.join("initramfs"))?;
    let boot = kernel.join("boot");
    let vmlinuz = first_that(&boot, "vmlinuz-")?;
    fs::copy(&vmlinuz, place.join("vmlinuz")).context(vmlinuz.display())?;
    fs::remove_dir_all(&work).context(work.display())
}

fn first_that(directory: &Path, starts: &str) -> Outcome<PathBuf> {
    let entries = fs::read_dir(directory).context(directory.display())?;
    let mut found = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(starts));
    found.next().map(|entry| entry.path()).ok_or(format!("no {starts} in {}", directory.display()))
}

/// Packs [`MODULES`] with what they need, and `/modules` with their paths in an order in which they load.
fn add_modules(archive: &mut Archive, kernel: &Path) -> Outcome {
    let mut there = BTreeMap::new();
    find_modules(&kernel.join("lib/modules"), &mut there)?;
    let mut order = Vec::new();
    for name in MODULES {
        // What is not a module of its own in this kernel is built in, or differs from what is asked for here: then the
        // guest lacks a driver, and its first step fails for it.
        if there.contains_key(*name) {
            load_order(name, &there, &mut order)?;
        }
    }
    let mut list = String::new();
    for name in order {
        let path = format!("lib/modules/{name}.ko");
        let content = fs::read(&there[&name]).context(there[&name].display())?;
        list += &format!("/{path}\n");
        archive.add(&path, 0o100_644, Content::Bytes(content));
    }
    archive.add_text("modules", &list, 0o644);
    Ok(())
}

/// The modules below `directory` by name: file names may have `-` where the kernel's names have `_`.
fn find_modules(directory: &Path, there: &mut BTreeMap<String, PathBuf>) -> Outcome {
    for entry in fs::read_dir(directory).context(directory.display())?.flatten() {
        let path = entry.path();
        if entry.file_type().context(path.display())?.is_dir() {
            find_modules(&path, there)?;
        } else if path.extension().is_some_and(|extension| extension == "ko") {
            let name = path.file_stem().expect("it has an extension").to_string_lossy().replace('-', "_");
            there.insert(name, path);
        }
    }
    Ok(())
}

/// Appends `name`'s dependencies and `name` to `order`, unless they are in it.
fn load_order(name: &str, there: &BTreeMap<String, PathBuf>, order: &mut Vec<String>) -> Outcome {
    if order.iter().any(|loaded| loaded == name) {
        return Ok(());
    }
    let path = there.get(name).ok_or(format!("the kernel has no module {name}, which another one needs"))?;
    let content = fs::read(path).context(path.display())?;
    for needed in depends(&content).split(',').filter(|needed| !needed.is_empty()) {
        load_order(&needed.replace('-', "_"), there, order)?;
    }
    order.push(name.to_owned());
    Ok(())
}

/// The value of `depends=` among the NUL-terminated strings of a module's `.modinfo` section.
fn depends(module: &[u8]) -> String {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return String::new() };
    let value = &module[at + KEY.len()..];
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

enum Content {
    Directory,
    Bytes(Vec<u8>),
    File(PathBuf),
    Link(PathBuf),
}

/// A cpio archive: entries by path, each with its mode.
#[derive(Default)]
struct Archive {
    entries: BTreeMap<String, (u32, Content)>,
}

impl Archive {
    /// An entry, and the directories above it. What was there under this path is replaced.
    fn add(&mut self, path: &str, mode: u32, content: Content) {
        let mut above = Path::new(path).parent();
        while let Some(directory) = above.filter(|directory| !directory.as_os_str().is_empty()) {
            let name = directory.to_str().expect("packages' paths are UTF-8").to_owned();
            self.entries.entry(name).or_insert((0o040_755, Content::Directory));
            above = directory.parent();
        }
        self.entries.insert(path.to_owned(), (mode, content));
    }

    fn add_text(&mut self, path: &str, text: &str, permissions: u32) {
        self.add(path, 0o100_000 | permissions, Content::Bytes(text.as_bytes().to_vec()));
    }

    fn add_tree(&mut self, root: &Path) -> Outcome {
        let mut directories = vec![root.to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).context(directory.display())?.flatten() {
                let path = entry.path();
                let name = path.strip_prefix(root).expect("found below it").to_str();
                let name = name.ok_or("a package's path is not UTF-8")?.to_owned();
                if DROPPED.contains(&name.as_str()) {
                    continue;
                }
                let metadata = path.symlink_metadata().context(path.display())?;
                let kind = metadata.file_type();
                let mode = metadata.permissions().mode();
                if kind.is_dir() {
                    self.add(&name, mode, Content::Directory);
                    directories.push(path);
                } else if kind.is_symlink() {
                    self.add(&name, mode, Content::Link(fs::read_link(&path).context(path.display())?));
                } else if !kind.is_fifo() && !kind.is_socket() {
                    self.add(&name, mode, Content::File(path));
                }
            }
        }
        Ok(())
    }

    fn write(&self, path: &Path) -> Outcome {
        let file = File::create(path).context(path.display())?;
        let mut out = BufWriter::new(file);
        for (number, (name, (mode, content))) in (1..).zip(&self.entries) {
            let bytes = match content {
                Content::Directory => Vec::new(),
                Content::Bytes(bytes) => bytes.clone(),
                Content::File(file) => fs::read(file).context(file.display())?,
                Content::Link(to) => to.to_str().ok_or("a link's target is not UTF-8")?.as_bytes().to_vec(),
            };
            put(&mut out, number, name, *mode, &bytes).context(path.display())?;
        }
        put(&mut out, 0, "TRAILER!!!", 0, &[]).context(path.display())?;
        out.flush().context(path.display())
    }
}

/// One entry: a header of 8-digit hexadecimal fields, the name, the content, each filled up to a multiple of 4
/// (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).
fn put(out: &mut impl Write, number: u32, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
    let size = u32::try_from(content.len()).expect("a package's file is below 4 GiB");
    let name_size = u32::try_from(name.len() + 1).expect("a path is short");
    // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
    let fields = [number, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
    let mut head = String::from("070701");
    for field in fields {
        head += &format!("{field:08x}");
    }
    let fill = |length: usize| &[0; 3][..length.next_multiple_of(4) - length];
    let name_end = head.len() + name.len() + 1;
    out.write_all(head.as_bytes())?;
    out.write_all(name.as_bytes())?;
    out.write_all(&[0])?;
    out.write_all(fill(name_end))?;
    out.write_all(content)?;
    out.write_all(fill(content.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_names_what_it_needs() {
        assert_eq!(
            depends(b"\x7fELF\0license=GPL\0depends=libiscsi,scsi_mod\0name=x\0"),
            "libiscsi,scsi_mod"
        );
        assert_eq!(depends(b"\x7fELF\0license=GPL\0depends=\0name=x\0"), "");
        assert_eq!(depends(b"\x7fELF"), "");
    }

    /// The layout drawn in the kernel's description, by hand for one file.
    #[test]
    fn entries_are_what_the_kernel_reads() {
        let mut out = Vec::new();
        put(&mut out, 1, "a", 0o100_644, b"hello").expect("writing to memory");
        let head = "070701000000010000 81a40000000000000000000000010000000000000005\
                    00000000000000000000000000000000000000020000 0000";
        let mut expected = head.replace(' ', "").into_bytes();
        expected.extend(b"a\0hello\0\0\0");
        assert_eq!(out, expected);
    }
}
