//! Does every command that a message, an alert, an empty state or a dialog advises do what it says?
//!
//! Method: the sources are searched for commands in quotes. Each has to be in the table below, with a script in which just that command ends well, on a
//! running daemon, in the situation in which it is advised or one as near to it as can be made. What is advised anew fails here until it is in the table;
//! what is advised no longer, too.

use crate::common::{Daemon, Nbd, Place, program};
use forebay_base::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Shell functions of the scripts: pools of their own, on files.
const PRELUDE: &str = r#"
set -e
file() { truncate -s 64M "$1"; }
pool() { file $1.a; file $1.b; forebay pool create $1 --layout mirror $PWD/$1.a $PWD/$1.b --no-calibrate; }
spare() { file $1.c; forebay pool add $1 $PWD/$1.c --spare; }
gone() { forebay pool destroy $1 --yes; }
"#;

/// What is advised, with `_` for what depends on the case, and what it is tried with. In their order; they leave things behind that later ones need.
const TABLE: &[(&str, &str)] = &[
    ("forebay --help", "forebay --help"),
    (
        "forebay pool create tank --layout mirror _ _",
        "truncate -s 512M A B; forebay pool create tank --layout mirror $PWD/A $PWD/B --no-calibrate",
    ),
    (
        "forebay pool create _ --layout mirror _ _",
        "file x; file y; forebay pool create first --layout mirror $PWD/x $PWD/y; gone first",
    ),
    ("forebay project create tank/db --quota 1T", "forebay project create tank/db --quota 1T"),
    ("forebay project create _", "forebay project create tank/web"),
    ("forebay volume create tank/vm1 --size 100G", "forebay volume create tank/vm1 --size 100G"),
    ("forebay volume create _ --size 100G", "forebay volume create tank/web/vm --size 100G"),
    ("forebay pool calibrate _", "forebay pool calibrate tank"),
    ("forebay top qos _", "forebay top qos tank --count 1"),
    ("forebay pool list", "forebay pool list"),
    ("forebay pool status", "forebay pool status"),
    ("forebay pool status _", "forebay pool status tank"),
    ("forebay pool status _ --errors", "forebay pool status tank --errors"),
    ("forebay pool scrub _", "forebay pool scrub tank"),
    (
        "forebay check --offline _",
        "pool off; forebay pool export off; forebay check --offline $PWD/off.a $PWD/off.b",
    ),
    ("forebay pool import _", "forebay pool import off $PWD/off.a $PWD/off.b"),
    ("forebay pool export _", "forebay pool export off"),
    ("forebay pool import _ _", "forebay pool import off $PWD/off.a $PWD/off.b; gone off"),
    (
        "forebay pool import _ _ --as _",
        "pool one; forebay pool export one; forebay pool import one $PWD/one.a $PWD/one.b --as other; gone other",
    ),
    (
        "forebay pool add _ _",
        "pool more; file more.c; file more.d; forebay pool add more $PWD/more.c $PWD/more.d; gone more",
    ),
    (
        "forebay pool add _ _ --cache",
        "pool flash; file flash.c; forebay pool add flash $PWD/flash.c --cache; gone flash",
    ),
    (
        "forebay pool add _ _ --force",
        "pool taken; file taken.c; printf data > taken.d; truncate -s 64M taken.d\n\
         forebay pool add taken $PWD/taken.c $PWD/taken.d --force; gone taken",
    ),
    (
        "forebay pool add _ _ --layout _",
        "pool wide; file wide.c; file wide.d; forebay pool add wide $PWD/wide.c $PWD/wide.d --layout mirror; gone wide",
    ),
    ("forebay disk list", "forebay disk list"),
    ("forebay disk list --free", "forebay disk list --free"),
    ("forebay disk list --machine", "forebay disk list --machine"),
    ("forebay disk list --pool _", "forebay disk list --pool tank"),
    ("forebay disk clear _", "forebay disk clear tank/1"),
    ("forebay disk online _", "pool back; forebay disk offline back/1 --yes; forebay disk online back/1"),
    (
        "forebay disk online _ --path _",
        "forebay disk offline back/0 --yes; forebay disk online back/0 --path $PWD/back.a; gone back",
    ),
    ("forebay disk remove _", "pool less; spare less; forebay disk remove less/2 --yes; gone less"),
    ("forebay disk replace _", "pool bad; spare bad; forebay disk replace bad/0"),
    ("forebay disk replace _ _", "file bad.d; forebay disk replace bad/1 $PWD/bad.d; gone bad"),
    (
        "forebay disk replace _ _ --force",
        "pool old; printf data > old.c; truncate -s 64M old.c; forebay disk replace old/1 $PWD/old.c --force; gone old",
    ),
    ("forebay disk model _", "head -c 16M /dev/urandom > model; forebay disk model $PWD/model --seconds 5"),
    (
        "forebay snapshot create _",
        "forebay snapshot create tank/vm1@before; forebay snapshot create tank/vm1@later",
    ),
    ("forebay snapshot list", "forebay snapshot list"),
    ("forebay snapshot list --json", "forebay snapshot list --json"),
    ("forebay snapshot set _ --template false", "forebay snapshot set tank/vm1@before --template false"),
    (
        "forebay snapshot release _",
        "forebay snapshot hold tank/vm1@before; forebay snapshot release tank/vm1@before",
    ),
    (
        "forebay snapshot send tank/vm1@before | ssh _ forebay snapshot receive vault/vm1",
        "pool vault; ssh() { shift; \"$@\"; }\n\
         forebay snapshot send tank/vm1@before | ssh HOST forebay snapshot receive vault/vm1",
    ),
    ("forebay snapshot send _", "forebay snapshot send tank/vm1@before > stream"),
    ("forebay snapshot receive _", "forebay snapshot receive vault/vm2 < stream"),
    ("forebay snapshot receive _ < _", "forebay snapshot receive vault/vm5 < stream"),
    ("forebay snapshot rollback _", "forebay snapshot rollback vault/vm2@before --yes"),
    (
        "forebay snapshot receives",
        "head -c 1500000 stream | forebay snapshot receive vault/vm3 && exit 1; forebay snapshot receives",
    ),
    (
        "forebay snapshot send _ --resume _",
        "token=$(forebay snapshot receives --json | grep -o '\"resume_token\": *\"[^\"]*' | grep -o '[^\"]*$')\n\
         forebay snapshot send tank/vm1@before --resume $token | forebay snapshot receive vault/vm3",
    ),
    (
        "forebay snapshot abandon _",
        "head -c 1500000 stream | forebay snapshot receive vault/vm4 && exit 1; forebay snapshot abandon vault/vm4 --yes; gone vault",
    ),
    (
        "forebay clone promote _",
        "forebay clone create tank/vm1@before tank/copy; forebay clone promote tank/copy",
    ),
    (
        "forebay snapshot delete _",
        "forebay snapshot create tank/vm1@more; forebay snapshot delete tank/vm1@more --yes",
    ),
    (
        "forebay bookmark list",
        "forebay snapshot create tank/vm1@mark; forebay bookmark create tank/vm1@mark; forebay bookmark list",
    ),
    ("forebay bookmark delete _", "forebay bookmark delete 'tank/vm1#mark' --yes"),
    ("forebay volume list", "forebay volume list"),
    ("forebay volume show _", "forebay volume show tank/vm1"),
    (
        "forebay volume set tank/vm1 --snapshot-every 1h --snapshot-keep 24",
        "forebay volume set tank/vm1 --snapshot-every 1h --snapshot-keep 24",
    ),
    (
        "forebay volume convert _ --format thin",
        "forebay volume create tank/thick --size 4M --format thick; forebay volume convert tank/thick --format thin",
    ),
    ("forebay volume delete _ --purge", "forebay volume delete tank/thick --purge --yes"),
    (
        "forebay volume trash",
        "forebay volume create tank/old --size 4M; forebay volume delete tank/old --yes; forebay volume trash",
    ),
    ("forebay volume purge _", "forebay volume purge tank/old --yes"),
    (
        "forebay volume move _ _",
        "pool there; forebay volume create tank/moved --size 4M; forebay volume move tank/moved there; gone there",
    ),
    ("forebay volume moves", "forebay volume moves"),
    // Its situation needs a daemon that dies while a volume moves: here it is only seen that there is such a command.
    ("forebay volume abandon _", "forebay volume abandon --help"),
    ("forebay volume trace _", "forebay volume trace tank/vm1 --seconds 1"),
    (
        "forebay host create esx1 --iqn iqn.1998-01.com.vmware:esx1",
        "forebay host create esx1 --iqn iqn.1998-01.com.vmware:esx1",
    ),
    ("forebay host create _ --iqn _", "forebay host create esx2 --iqn iqn.1998-01.com.vmware:esx2"),
    ("forebay host set _ --iqn _", "forebay host set esx2 --iqn iqn.1998-01.com.vmware:second"),
    ("forebay host set _ --chap _", "printf 'a secret of length' | forebay host set esx2 --chap esx2"),
    (
        "forebay host group create cluster --host esx1 esx2",
        "forebay host group create cluster --host esx1 esx2",
    ),
    ("forebay host group create _ --host _ _", "forebay host group create twins --host esx1 esx2"),
    ("forebay host list", "forebay host list"),
    ("forebay host group list", "forebay host group list"),
    ("forebay host show _", "forebay host show esx1"),
    ("forebay volume map _ --host esx1", "forebay volume map tank/vm1 --host esx1"),
    ("forebay volume unmap _ --host _", "forebay volume unmap tank/vm1 --host esx1"),
    ("forebay volume map _ --host _", "forebay volume map tank/vm1 --host esx2"),
    (
        "forebay volume map tank/vm1 --host _",
        "forebay volume unmap tank/vm1 --host esx2; forebay volume map tank/vm1 --host esx2",
    ),
    ("forebay volume set _ --inherit hosts", "forebay volume set tank/vm1 --inherit hosts"),
    ("forebay session list", "forebay session list"),
    ("forebay project set _ --host _", "forebay project set tank/db --host esx1"),
    ("forebay project set _ --inherit hosts", "forebay project set tank/db --inherit hosts"),
    ("forebay project set _ --quota _", "forebay project set tank/db --quota 2T"),
    ("forebay project show _", "forebay project show tank/db"),
    ("forebay project list", "forebay project list"),
    (
        "forebay project rename _ _",
        "forebay project rename tank/db tank/sql; forebay project rename tank/sql tank/db",
    ),
    (
        "forebay level create gold --min-iops 500 --latency 10ms",
        "forebay level create gold --min-iops 500 --latency 10ms",
    ),
    ("forebay level create _", "forebay level create other"),
    ("forebay level list", "forebay level list"),
    ("forebay volume set _ --level _", "forebay volume set tank/vm1 --level other"),
    ("forebay project set _ --level _", "forebay project set tank/db --level other"),
    // As long as nobody can log in.
    ("forebay setup link", "forebay setup link"),
    (
        "forebay user create anna --role admin",
        "printf 'a long password' | forebay user create anna --role admin",
    ),
    ("forebay user set _ --password", "printf 'another password' | forebay user set anna --password"),
    ("forebay user list", "forebay user list"),
    (
        "forebay user delete _",
        "printf 'a long password' | forebay user create ben --role viewer; forebay user delete ben",
    ),
    (
        "forebay token create ci --role operator --expires 30d",
        "forebay token create ci --role operator --expires 30d",
    ),
    ("forebay token create _", "forebay token create other"),
    ("forebay token list", "forebay token list"),
    ("forebay token delete _", "forebay token delete other"),
    (
        "forebay channel mail operators --host mail.example.com --from nas@example.com --to ops@example.com",
        "forebay channel mail operators --host mail.example.com --from nas@example.com --to ops@example.com",
    ),
    ("forebay channel mail --help", "forebay channel mail --help"),
    // There is no such server, which it says.
    ("forebay channel test _", "forebay channel test operators || [ $? = 1 ]"),
    ("forebay channel list", "forebay channel list"),
    ("forebay channel show _", "forebay channel show operators"),
    ("forebay alert list", "forebay alert list"),
    ("forebay event list", "forebay event list"),
    ("forebay event list --follow", "timeout 1 forebay event list --follow || [ $? = 124 ]"),
    (
        "forebay threshold create slow-disks disk.latency[device] --above 100ms",
        "forebay threshold create slow-disks disk.latency[device] --above 100ms",
    ),
    (
        "forebay threshold create slow-disks 'disk.latency[device]' --above 50ms --over 5m",
        "forebay threshold create slow-disk 'disk.latency[device]' --above 50ms --over 5m",
    ),
    ("forebay threshold list", "forebay threshold list"),
    ("forebay stat on", "forebay stat on"),
    ("forebay stat list", "forebay stat list"),
    ("forebay stat query 'nbd.ops[client]'", "forebay stat query 'nbd.ops[client]'"),
    ("forebay stat query _ --from -3600", "forebay stat query 'volume.ops[volume]' --from -3600"),
    ("forebay worksheet list", "forebay worksheet list"),
    ("forebay report list", "forebay report list"),
    (
        "forebay report add validation-1 report.html figures.json",
        "echo '<p>met</p>' > report.html; echo '[]' > figures.json; forebay report add validation-1 report.html figures.json",
    ),
    ("forebay support bundle", "forebay support bundle"),
    ("forebay help _", "forebay help volume"),
    ("forebay task list", "forebay task list"),
    (
        "forebay task watch _",
        "forebay task watch $(forebay task list --json | grep -m1 -o '\"id\": *\"[^\"]*' | grep -o '[^\"]*$')",
    ),
    ("forebay validate list", "forebay validate list"),
    ("forebay validate list --json", "forebay validate list --json"),
    (
        "forebay validate run --model _ --json",
        "forebay validate run --model B --case 'one client, 128 KiB' --json --seconds 1 --scale 64",
    ),
    ("forebay config backup _", "forebay config backup $PWD/backup"),
    ("forebay config restore _", "mkdir other; forebay --data $PWD/other config restore $PWD/backup"),
    ("forebay config check _", "printf '' > empty.toml; forebay config check empty.toml"),
    // The daemon that all this is asked of was started so.
    ("forebay serve", "forebay serve --help"),
    ("forebay serve --data _", "forebay serve --data $FOREBAY_DATA --help"),
    ("forebay serve --help", "forebay serve --help"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files below a directory of the tree whose names end so.
fn sources(below: &str, endings: &[&str]) -> Vec<PathBuf> {
    let (mut directories, mut found) = (vec![root().join(below)], Vec::new());
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory of the tree") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_test = name == "tests" || name.ends_with("_tests.rs") || name.ends_with(".test.ts");
            match path.is_dir() {
                _ if is_test || name == "node_modules" => {}
                true => directories.push(path),
                false if endings.iter().any(|ending| name.ends_with(ending)) => found.push(path),
                false => {}
            }
        }
    }
    found
}

/// The string literals of a Rust file above its tests, with lines joined that continue.
fn literals(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let (mut found, mut rest) = (Vec::new(), text.chars().peekable());
    while let Some(c) = rest.next() {
        match c {
            '/' if rest.peek() == Some(&'/') => while rest.next().is_some_and(|c| c != '\n') {},
            '\'' if rest.peek() == Some(&'"') => _ = rest.next(),
            '"' => {
                let mut literal = String::new();
                while let Some(c) = rest.next().filter(|c| *c != '"') {
                    match (c, rest.peek()) {
                        ('\\', Some('\n')) => while rest.next_if(|c| c.is_whitespace()).is_some() {},
                        ('\\', _) => literal.extend(rest.next().filter(|c| *c == '"')),
                        _ => literal.push(c),
                    }
                }
                found.push(literal);
            }
            _ => {}
        }
    }
    found
}

/// Commands that a text has in quotes, or is.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for quote in ['\'', '`'] {
        let mut rest = text;
        while let Some((_, after)) = rest.split_once(&format!("{quote}forebay ")) {
            let (command, then) = after.split_once(quote).unwrap_or((after, ""));
            // `forebay stat query 'EXPRESSION'` has quotes of its own.
            let command = if command.ends_with(' ') { after } else { command };
            found.push(format!("forebay {command}"));
            rest = then;
        }
    }
    if text.starts_with("forebay ") {
        found.push(text.to_string());
    }
    // `Make one with: forebay …` ends with the text.
    found.extend(text.split(": forebay ").skip(1).map(|command| format!("forebay {command}")));
    found
}

/// With `_` for what depends on the case; nothing where it is no command but a sentence.
fn generic(command: &str) -> Option<String> {
    let of = |word: &str| {
        let bare = word.trim_matches('\'');
        let depends = bare.starts_with(['{', '$']) || bare.starts_with(|c: char| c.is_ascii_uppercase());
        if depends { word.replace(bare, "_") } else { word.to_string() }
    };
    let words: Vec<String> = command.replace('…', "").split_whitespace().map(of).collect();
    let is_verb = words
        .get(1)
        .is_some_and(|word| word.starts_with("--") || word.chars().all(|c| c.is_ascii_lowercase()));
    (is_verb && !command.ends_with(' ')).then(|| words.join(" "))
}

/// What the sources advise, with where.
fn advised() -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for path in sources("crates", &[".rs"]) {
        // Texts of the command line about itself, and an example of an alert.
        if path.ends_with("arguments.rs") || path.ends_with("samples.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source");
        for command in literals(&text).iter().flat_map(|literal| commands(literal)) {
            found.extend(generic(&command).map(|command| (command, path.clone())));
        }
    }
    for path in sources("web/src", &[".svelte", ".ts"]) {
        let text = fs::read_to_string(&path).expect("a source");
        for (begin, end) in [("command=\"forebay ", "\""), ("command={`forebay ", "`")] {
            for rest in text.split(begin).skip(1) {
                let command = rest.split(end).next().unwrap_or_default();
                found.extend(generic(&format!("forebay {command}")).map(|command| (command, path.clone())));
            }
        }
    }
    found
}

/// Whether the script has the command that it is to try: its verb and its options.
fn tries(advised: &str, script: &str) -> bool {
    let verb: Vec<&str> = advised
        .split_whitespace()
        .skip(1)
        .take_while(|word| word.chars().all(|c| c.is_ascii_lowercase()))
        .collect();
    let options = advised.split_whitespace().filter(|word| word.starts_with("--"));
    let mut rest = script;
    verb.iter().take(2).copied().chain(options).all(|word| match rest.split_once(word) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

#[test]
fn every_advised_command_does_what_it_says() {
    let advised = advised();
    let known: BTreeSet<&str> = TABLE.iter().map(|(command, _)| *command).collect();
    let unknown: Vec<_> = advised.iter().filter(|(command, _)| !known.contains(command.as_str())).collect();
    assert!(unknown.is_empty(), "advised, and not tried here: {unknown:#?}");
    let stale: Vec<_> = known.iter().filter(|command| !advised.contains_key(**command)).collect();
    assert!(stale.is_empty(), "tried, and advised nowhere: {stale:#?}");

    let place = Place::new();
    let daemon = Daemon::start(&place);
    symlink(env!("CARGO_BIN_EXE_forebay"), place.path().join("forebay")).expect("a link");
    let path = format!("{}:{}", place.path().display(), std::env::var("PATH").expect("there is one"));
    let mut failed = Vec::new();
    for (command, script) in TABLE {
        assert!(tries(command, script), "`{script}` does not try `{command}`");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{PRELUDE}\n{script}")]).current_dir(place.path());
        shell.env("PATH", &path).env("FOREBAY_DATA", place.data()).stdin(std::process::Stdio::null());
        let output = shell.output().expect("there is a shell");
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            failed.push(format!("{command}\n    {script}\n    {}: {told}", output.status));
        }
        // Enough for a stream that breaks off to have come in part.
        if command.starts_with("forebay volume create tank/vm1 ") {
            let mut nbd = Nbd::open(&daemon.nbd, "tank/vm1");
            let mut data = vec![0; 1 << 20];
            for mib in 0..3 {
                Random::new(mib).fill(&mut data);
                nbd.write(mib << 20, &data);
            }
            nbd.flush();
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    drop(daemon);
}

/// Goal: what a dialog shows as the command that does the same is one.
#[test]
fn dialogs_show_commands_that_there_are() {
    let mut looked = 0;
    for path in sources("web/src", &[".svelte", ".ts"]) {
        let text = fs::read_to_string(&path).expect("a source");
        for call in text.split("command([").skip(1) {
            let Some((words, rest)) = call.split_once(']') else { continue };
            let words: Vec<&str> = words
                .split(',')
                .map(str::trim)
                .map_while(|word| word.strip_prefix('"')?.strip_suffix('"'))
                .collect();
            let words: Vec<&str> = words.into_iter().filter(|word| !word.starts_with("--")).take(3).collect();
            let options = match rest.trim_start().strip_prefix(',').map(str::trim_start) {
                Some(rest) if rest.starts_with('{') => rest[1..].split(['}', ')']).next().unwrap_or_default(),
                _ => "",
            };
            let names = options
                .split(',')
                .filter_map(|one| one.split_once(':'))
                .map(|(name, _)| name.trim().trim_matches('"'));
            let names: Vec<&str> =
                names.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-')).collect();
            let output = program().args(&words).arg("--help").output().expect("it runs");
            let help = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{}: forebay {words:?}", path.display());
            // Which one it is depends on the case.
            if help.contains("<COMMAND>") {
                continue;
            }
            for name in names {
                assert!(
                    help.contains(&format!("--{name}")),
                    "{}: forebay {words:?} --{name}",
                    path.display()
                );
            }
            looked += 1;
        }
    }
    assert!(looked > 20, "only {looked} commands were found");
}
