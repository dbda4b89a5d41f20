//! Do the clients that people have work, with and without TLS?
//! Method: libnbd's tools, QEMU's and fio as they come with Debian, against a real server over disks in memory; what
//! one tool wrote another reads, and the disk's contents are compared with the source.

use crate::support::{House, MemoryDisk, Served, TempDir, start, wait};
use forebay_pool::Event;
use forebay_runtime::{Cores, uring};
use forebay_target::{NbdConfig, NbdServer, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

const SIZE: u64 = 64 << 20;

/// Runs a tool with a time limit.
fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new("timeout").arg("300").arg(program).args(arguments).output().unwrap_or_else(|error| {
        panic!("{program} cannot be started ({error}); Debian has it in libnbd-bin, qemu-utils or fio")
    })
}

fn succeed(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// A file with data and holes, of the disks' size.
fn source(directory: &TempDir) -> String {
    let path = directory.path("source");
    let mut image = vec![0u8; SIZE as usize];
    let mut random = forebay_base::Random::new(5);
    for at in (0..image.len()).step_by(3 << 20) {
        let len = 1 + random.below(1 << 20) as usize;
        let end = (at + len).min(image.len());
        random.fill(&mut image[at..end]);
    }
    std::fs::write(&path, image).unwrap();
    succeed("fallocate", &["--dig-holes", &path]);
    path
}

/// So many disks, served at `listen`.
fn many(cores: &Cores, exports: usize, listen: &str) -> (NbdServer, Arc<Mutex<Vec<Event>>>) {
    let disks = (0..exports).map(|number| MemoryDisk::new(&format!("pool/volume-{number:05}"), 0, 1 << 20));
    let (house, events) = (House(Arc::new(disks.collect())), Arc::default());
    (start(cores, house, NbdConfig::plain(listen), &events).unwrap(), events)
}

/// Both tools ask about every export of the list on one connection. Over TCP libnbd takes 200 ms for each: its kernel holds back the last
/// part of a question.
#[test]
fn ten_thousand_exports_are_listed() {
    let (directory, (cores, _running)) = (TempDir::new(), uring::start(1).expect("io_uring works here"));
    let socket = directory.path("nbd.sock");
    let (server, events) = many(&cores, 10_000, &format!("unix:{socket}"));
    let listed = succeed("nbdinfo", &["--no-content", "--list", &format!("nbd+unix://?socket={socket}")]);
    assert_eq!(listed.matches("export=\"pool/volume-").count(), 10_000);
    let listed = succeed("qemu-nbd", &["-L", "-k", &socket]);
    assert_eq!(listed.matches("export: 'pool/volume-").count(), 10_000);
    wait(async move { server.stop().await });

    let (tcp, more) = many(&cores, 200, "127.0.0.1:0");
    let (address, port) = tcp.address().rsplit_once(':').expect("an address has a port");
    let listed = succeed("nbdinfo", &["--no-content", "--list", &format!("nbd://{address}:{port}")]);
    assert_eq!(listed.matches("export=\"pool/volume-").count(), 200);
    let listed = succeed("qemu-nbd", &["-L", "-b", address, "-p", port]);
    assert_eq!(listed.matches("export: 'pool/volume-").count(), 200);
    assert!(events.lock().unwrap().is_empty() && more.lock().unwrap().is_empty());
    wait(async move { tcp.stop().await });
}

#[test]
fn libnbd() {
    let (served, directory) = (Served::new(SIZE, None), TempDir::new());
    let (a, b) = (served.uri("pool/a"), served.uri("pool/b"));
    let info = succeed("nbdinfo", &[&a]);
    for line in [
        "export-size: 67108864 (64M)",
        "protocol: newstyle-fixed without TLS, using structured packets",
        "base:allocation",
        "can_cache: true",
        "can_fast_zero: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "can_fua: true",
        "is_read_only: false",
        "block_size_minimum: 1",
        "block_size_preferred: 8192",
        "block_size_maximum: 33554432",
    ] {
        assert!(info.contains(line), "{line} is missing in {info}");
    }
    let listed = succeed("nbdinfo", &["--list", &format!("nbd://{}", served.server.address())]);
    assert!(listed.contains("export=\"pool/a\"") && listed.contains("export=\"pool/b\""), "{listed}");
    assert!(!run("nbdinfo", &[&served.uri("pool/none")]).status.success());

    let source = source(&directory);
    succeed("nbdcopy", &["--connections=4", &source, &a]);
    succeed("nbdcopy", &["--flush", &a, &b]);
    let copy = directory.path("copy");
    succeed("nbdcopy", &["--synchronous", &b, &copy]);
    succeed("cmp", &[&source, &copy]);
    let map = succeed("nbdinfo", &["--map", &a]);
    assert!(map.contains("hole,zero") && map.contains("data"), "{map}");
    served.stop();
}

#[test]
fn qemu() {
    let (served, directory) = (Served::new(SIZE, None), TempDir::new());
    let (a, source) = (served.uri("pool/b"), source(&directory));
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "8", &source, &a]);
    succeed("qemu-img", &["compare", "-f", "raw", "-F", "raw", &source, &a]);
    let map = succeed("qemu-img", &["map", "-f", "raw", "--output=json", &a]);
    assert!(map.contains("\"zero\": true") && map.contains("\"data\": true"), "{map}");
    let script = [
        "write -P 0x5a 1000 5000",
        "write -f -P 0x5b 16384 8192",
        "read -P 0x5a 1000 5000",
        "write -z 16384 4096",
        "write -z -u 24576 8192",
        "discard 32768 65536",
        "read -P 0 16384 4096",
        "read -P 0x5b 20480 4096",
        "read -P 0 32768 65536",
        "flush",
    ];
    let mut arguments = vec!["-f", "raw"];
    script.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(&a);
    let out = succeed("qemu-io", &arguments);
    assert!(!out.contains("failed") && !out.contains("Pattern"), "{out}");
    served.stop();
}

#[test]
fn fio() {
    let (served, directory) = (Served::new(SIZE, None), TempDir::new());
    let out = Command::new("timeout")
        .args(["60", "fio", "--name=verify", "--ioengine=nbd", "--rw=randwrite", "--bsrange=512-64k"])
        .args(["--iodepth=32", "--size=16m", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1"])
        .args(["--fsync=64", "--output-format=terse", &format!("--uri={}", served.uri("pool/a"))])
        .current_dir(&directory.0)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    served.stop();
}

/// A root, a server's and a client's certificate in a directory, under the names that libnbd and QEMU look for.
fn certificates(directory: &TempDir) -> TlsFiles {
    let root_key = KeyPair::generate().unwrap();
    let mut root = CertificateParams::new(Vec::new()).unwrap();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let root_pem = root.self_signed(&root_key).unwrap().pem();
    let issuer = Issuer::new(root, root_key);
    let leaf = |names: &[&str], usage| {
        let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
        let (mut parameters, key) = (CertificateParams::new(names).unwrap(), KeyPair::generate().unwrap());
        parameters.extended_key_usages = vec![usage];
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        (parameters.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    let server = leaf(&["localhost", "127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth);
    let client = leaf(&["client"], ExtendedKeyUsagePurpose::ClientAuth);
    for (name, pem) in [
        ("ca-cert.pem", &root_pem),
        ("server-cert.pem", &server.0),
        ("server-key.pem", &server.1),
        ("client-cert.pem", &client.0),
        ("client-key.pem", &client.1),
    ] {
        std::fs::write(directory.path(name), pem).unwrap();
    }
    TlsFiles {
        certificate: directory.path("server-cert.pem").into(),
        key: directory.path("server-key.pem").into(),
        client_ca: None,
    }
}

#[test]
fn tls() {
    let directory = TempDir::new();
    let files = certificates(&directory);
    let served = Served::new(SIZE, Some(files));
    let trust = TempDir::new();
    std::fs::copy(directory.path("ca-cert.pem"), trust.path("ca-cert.pem")).unwrap();
    let port = served.port();
    let uri = format!("nbds://localhost:{port}/pool/b?tls-certificates={}", trust.0.display());
    let info = succeed("nbdinfo", &[&uri]);
    assert!(info.contains("with TLS, using structured packets"), "{info}");
    let (source, copy) = (source(&directory), directory.path("copy"));
    succeed("nbdcopy", &[&source, &uri]);
    succeed("nbdcopy", &[&uri, &copy]);
    succeed("cmp", &[&source, &copy]);
    let credentials =
        format!("tls-creds-x509,id=tls0,dir={},endpoint=client,verify-peer=on", trust.0.display());
    let options =
        format!("driver=nbd,host=localhost,port={port},export=pool/b,tls-creds=tls0,tls-hostname=localhost");
    let file = format!("driver=file,filename={source}");
    succeed("qemu-img", &["compare", "--object", &credentials, "--image-opts", &options, &file]);
    // Without TLS there is nothing.
    let plain = run("nbdinfo", &[&served.uri("pool/b")]);
    assert!(!plain.status.success());
    // A client that does not trust the server.
    let other = TempDir::new();
    certificates(&other);
    std::fs::remove_file(other.path("client-cert.pem")).unwrap();
    let uri = format!("nbds://localhost:{port}/pool/b?tls-certificates={}", other.0.display());
    assert!(!run("nbdinfo", &[&uri]).status.success());
    served.event("nbd.tls.failed");
    served.stop();
}

#[test]
fn tls_with_client_certificates() {
    let directory = TempDir::new();
    let mut files = certificates(&directory);
    files.client_ca = Some(directory.path("ca-cert.pem").into());
    let served = Served::new(SIZE, Some(files));
    let port = served.port();
    let uri = |directory: &TempDir| {
        format!("nbds://localhost:{port}/pool/a?tls-certificates={}", directory.0.display())
    };
    succeed("nbdinfo", &[&uri(&directory)]);
    let stranger = TempDir::new();
    std::fs::copy(directory.path("ca-cert.pem"), stranger.path("ca-cert.pem")).unwrap();
    assert!(!run("nbdinfo", &[&uri(&stranger)]).status.success());
    assert!(served.event("nbd.tls.failed").contains("TLS handshake failed"));
    served.stop();
}

#[test]
fn broken_certificates_are_refused_at_the_start() {
    let directory = TempDir::new();
    let files = certificates(&directory);
    let good = files.clone();
    let other = TempDir::new();
    certificates(&other);
    let served = Served::new(SIZE, None);
    let cases: [(&str, TlsFiles, &str); 4] = [
        ("missing", TlsFiles { key: directory.path("none").into(), ..files.clone() }, "No such file"),
        (
            "no certificate",
            TlsFiles { certificate: directory.path("server-key.pem").into(), ..files.clone() },
            "contains no certificate",
        ),
        (
            "no key",
            TlsFiles { key: directory.path("server-cert.pem").into(), ..files.clone() },
            "no usable private key",
        ),
        (
            "another's key",
            TlsFiles { key: other.path("server-key.pem").into(), ..files },
            "does not work with its key",
        ),
    ];
    for (name, tls, expected) in cases {
        let config = NbdConfig { tls: Some(tls), ..NbdConfig::plain("127.0.0.1:0") };
        let house = crate::support::House(served.disks.clone().into());
        let error = crate::support::start(&served.cores, house, config, &served.events).err().expect(name);
        assert!(error.message.contains(expected), "{name}: {error}");
    }
    // With TLS any address will do that this machine has.
    let config = NbdConfig { tls: Some(good), ..NbdConfig::plain("198.51.100.7:0") };
    let house = crate::support::House(served.disks.clone().into());
    let error =
        crate::support::start(&served.cores, house, config, &served.events).err().expect("no such address");
    assert!(error.message.contains("cannot listen for NBD"), "{error}");
    served.stop();
}
