//! Other people's NBD clients on a volume: what one writes, another reads; what the server says, they believe.

use crate::host::{Context, Directory, Outcome, run};
use crate::server::{Export, Forebay, Other, Server};
use forebay_base::Random;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

const SIZE: u64 = 192 << 20;

pub fn all(binary: &Path, directory: &Directory) -> Outcome<String> {
    // The same steps on a server that others rely on: a failure here is a mistake in the steps.
    let mut known = Other::nbdkit_file(directory, SIZE)?;
    known.start()?;
    let export = known.exports()[0].clone();
    steps(&known, &export, directory).map_err(|error| format!("on nbdkit, where it works: {error}"))?;
    known.kill();

    let mut server = Forebay::create(binary, directory, "mirror", 2, 2 << 30)?;
    let export = server.create_volume("tools", SIZE, "8K", true)?;
    promises(&server.uri(&export))?;
    let mut done = steps(&server, &export, directory).map_err(|e| format!("{e}\n{}", server.log_tail()))?;
    done.push(grown(&mut server, &export)?);
    done.push(listed(&server)?);
    server.stop()?;
    server.check_offline()?;
    Ok(done.join(", "))
}

fn steps(server: &dyn Server, export: &Export, directory: &Directory) -> Outcome<Vec<&'static str>> {
    let uri = server.uri(export);
    let info = info(&uri)?;
    if info["export-size"].as_u64() != Some(export.size) {
        return Err(format!("nbdinfo: export-size is {}, not {}", info["export-size"], export.size));
    }
    fio(&uri, directory)?;
    copies(&uri, directory)?;
    patterns(&uri)?;
    Ok(vec!["nbdinfo", "fio --verify", "nbdcopy", "qemu-img", "qemu-io"])
}

fn info(uri: &str) -> Outcome<Value> {
    let text = run(&format!("nbdinfo --json {uri}"))?;
    let value: Value = serde_json::from_str(&text).context("nbdinfo's JSON")?;
    Ok(value["exports"][0].clone())
}

/// What Forebay has to offer its clients.
fn promises(uri: &str) -> Outcome {
    let info = info(uri)?;
    for promise in
        ["can_flush", "can_fua", "can_trim", "can_zero", "can_fast_zero", "can_multi_conn", "can_cache"]
    {
        if info[promise].as_bool() != Some(true) {
            return Err(format!("nbdinfo: {promise} is {}", info[promise]));
        }
    }
    if info["is_read_only"].as_bool() != Some(false) {
        return Err("nbdinfo: the export is read-only".into());
    }
    Ok(())
}

/// Writes blocks of many sizes at random, then reads and checks them all.
fn fio(uri: &str, directory: &Directory) -> Outcome {
    let state = directory.path().display();
    run(&format!(
        "fio --name=verify --ioengine=nbd --uri={uri} --rw=randwrite --bsrange=4k-256k --size=64m --iodepth=32 \
         --verify=crc32c --verify_fatal=1 --do_verify=1 --fsync=64 --aux-path={state}"
    ))?;
    Ok(())
}

/// A file of `size` bytes with data, zeros and holes.
pub fn source(directory: &Directory, size: u64) -> Outcome<PathBuf> {
    let path = directory.sparse_file("source.img", size)?;
    let file = File::options().write(true).open(&path).context(path.display())?;
    let mut random = Random::new(size);
    let mut part = vec![0; 1 << 20];
    let mut out = BufWriter::new(file);
    for megabyte in 0..size >> 20 {
        // Every fourth megabyte is data, so that there are holes to find.
        if megabyte % 4 == 0 {
            random.fill(&mut part);
            std::io::Seek::seek(&mut out, std::io::SeekFrom::Start(megabyte << 20)).context("seeking")?;
            out.write_all(&part).context(path.display())?;
        }
    }
    out.flush().context(path.display())?;
    Ok(path)
}

fn same(a: &Path, b: &Path) -> Outcome {
    run(&format!("cmp {} {}", a.display(), b.display())).map(|_| ())
}

/// In with one program, out and compared with another; then the other way round.
fn copies(uri: &str, directory: &Directory) -> Outcome {
    let source = source(directory, SIZE)?;
    let copy = directory.join("copy.img");
    let (from, to) = (source.display(), copy.display());

    run(&format!("nbdcopy --flush {from} {uri}"))?;
    map(uri)?;
    run(&format!("qemu-img compare -f raw -F raw {from} {uri}"))?;
    run(&format!("nbdcopy {uri} {to}"))?;
    same(&source, &copy)?;
    fs::remove_file(&copy).context(to)?;
    let to = copy.display();

    // Zeroed in between, so that what is read next cannot be what nbdcopy left.
    let mut zero = crate::host::command("qemu-io");
    zero.args(["-f", "raw", "-c", &format!("write -z 0 {SIZE}"), uri]);
    crate::host::run_command(&mut zero, "qemu-io write -z")?;
    run(&format!("qemu-img convert -n -f raw -O raw {from} {uri}"))?;
    run(&format!("qemu-img convert -f raw -O raw {uri} {to}"))?;
    same(&source, &copy)?;
    fs::remove_file(&copy).context("removing the copy")?;
    fs::remove_file(&source).context("removing the source")
}

/// The extents cover the volume, and the holes are where the source has them.
fn map(uri: &str) -> Outcome {
    let text = run(&format!("nbdinfo --map --json {uri}"))?;
    let extents: Value = serde_json::from_str(&text).context("nbdinfo's map")?;
    let mut at = 0;
    let mut data = 0;
    for extent in extents.as_array().ok_or("nbdinfo --map prints a list")? {
        let (offset, length) = (extent["offset"].as_u64(), extent["length"].as_u64());
        let (Some(offset), Some(length)) = (offset, length) else {
            return Err(format!("an extent: {extent}"));
        };
        if offset != at {
            return Err(format!("nbdinfo --map: nothing is said about {at}"));
        }
        at += length;
        if extent["type"].as_u64() == Some(0) {
            data += length;
        }
    }
    if at != SIZE || data < SIZE / 4 {
        return Err(format!(
            "nbdinfo --map: {at} bytes of {SIZE}, {data} of them data, expected {}",
            SIZE / 4
        ));
    }
    Ok(())
}

/// Small, unaligned and special requests, each read back.
fn patterns(uri: &str) -> Outcome {
    let steps = [
        "write -P 0x11 0 1M",
        "write -P 0x22 512 512",
        "write -P 0x33 4095 3",
        "write -f -P 0x44 65536 8192",
        "write -z 131072 65536",
        "write -z -u 262144 65536",
        "discard 524288 262144",
        "flush",
        "read -P 0x11 0 512",
        "read -P 0x22 512 512",
        "read -P 0x11 1024 3071",
        "read -P 0x33 4095 3",
        "read -P 0x11 4098 61438",
        "read -P 0x44 65536 8192",
        "read -P 0x11 73728 57344",
        "read -P 0 131072 65536",
        "read -P 0x11 196608 65536",
        "read -P 0 262144 65536",
        "read -P 0x11 327680 196608",
        "read -P 0 524288 262144",
        "read -P 0x11 786432 262144",
    ];
    let mut line = crate::host::command("qemu-io");
    line.args(["-f", "raw"]);
    for step in steps {
        line.args(["-c", step]);
    }
    let said = crate::host::run_command(line.arg(uri), "qemu-io")?;
    // qemu-io says so and goes on.
    if said.contains("verification failed") || said.contains("failed:") {
        return Err(format!("qemu-io:\n{said}"));
    }
    Ok(())
}

/// A volume grows while it is exported; who connects afterwards sees it.
fn grown(server: &mut Forebay, export: &Export) -> Outcome<&'static str> {
    let size = export.size + (64 << 20);
    server.cli(&["volume", "resize", &export.name, "--size", &size.to_string()])?;
    let now = info(&server.uri(export))?["export-size"].as_u64();
    if now != Some(size) {
        Err(format!("after growing to {size} nbdinfo says {now:?}"))
    } else {
        Ok("resize")
    }
}

/// More volumes than one negotiation has options, if it has none for each of them: both tools list them all.
fn listed(server: &Forebay) -> Outcome<&'static str> {
    const VOLUMES: usize = 140;
    for number in 1..VOLUMES {
        server.cli(&["volume", "create", &format!("e2e/listed-{number}"), "--size", "1M"])?;
    }
    let (address, port) = server.address().rsplit_once(':').ok_or("an address has a port")?;
    for (line, mark) in [
        (format!("nbdinfo --no-content --list nbd://{address}:{port}"), "export=\"e2e/"),
        (format!("qemu-nbd -L -b {address} -p {port}"), "export: 'e2e/"),
    ] {
        let count = run(&line)?.matches(mark).count();
        if count != VOLUMES {
            return Err(format!("{line} lists {count} of {VOLUMES} volumes"));
        }
    }
    Ok("lists")
}
