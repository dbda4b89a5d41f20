//! The command line: knows the API as any customer would, and nothing of the engine.
//!
//! What must run in this process (the daemon, the demonstration, the offline check) the binary passes in as
//! functions ([`Local`]). Data goes to stdout, everything else to stderr; `--json` prints what the API answers, in
//! base units; the exit status is one of [`Exit`].

mod arguments;
mod backup;
mod bookmarks;
mod channels;
mod client;
mod commands;
mod configuration;
mod daemon;
mod destinations;
mod disks;
mod events;
mod failure;
mod help;
mod hosts;
mod levels;
mod listing;
mod moves;
mod progress;
mod projects;
mod rename;
mod reports;
mod screen;
mod secret;
mod serve;
mod show;
mod size;
mod snapshots;
mod statistics;
mod streams;
mod support;
mod table;
mod thresholds;
mod tls;
mod top;
mod trash;
mod tree;
mod users;
mod validate;

pub use configuration::{Finding, example};
pub use daemon::{Daemon, Scratch};
pub use disks::DiskModel;
pub use failure::{Exit, Failure};
pub use help::document;
pub use serve::{ChapAlgorithm, NbdTls, ServeOptions};
pub use tree::command;
pub use validate::{Validate, ValidateRun, ValidateSize};

use arguments::{Arguments, Noun};
use clap::error::ErrorKind;
use clap::{ArgMatches, FromArgMatches};
use client::{Client, Target};
use commands::Session;
use serde::Serialize;
use serve::Config;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The default data directory of the daemon.
const DATA: &str = "/var/lib/forebay";

/// What an offline check found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckReport {
    /// Name and UUID.
    pub pool: String,
    /// What was looked at, as name and number.
    pub checked: Vec<(String, u64)>,
    /// Broken invariants, a sentence each; empty when all hold.
    pub findings: Vec<String>,
}

/// Finds the daemon, for a command that turns out to need it.
pub type Connect<'a> = &'a dyn Fn() -> Result<Daemon, Failure>;

/// What the command line does not do itself.
pub struct Local {
    pub serve: fn(ServeOptions) -> Result<(), Failure>,
    pub demo: fn(ServeOptions) -> Result<(), Failure>,
    pub check: fn(Vec<String>) -> Result<CheckReport, Failure>,
    /// Looks at what the daemon's options name, and starts nothing; says what is wrong.
    pub examine: fn(&ServeOptions) -> Vec<Finding>,
    /// Measures a device; prints what it finds, as JSON or for people.
    pub model: fn(DiskModel, json: bool) -> Result<Exit, Failure>,
    /// Prints what it finds, as JSON or for people.
    pub validate: fn(Validate, json: bool, connect: Connect) -> Result<Exit, Failure>,
}

/// Runs one command; returns the exit status. `arguments` begin with the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>, local: &Local) -> u8 {
    let words: Vec<OsString> = arguments.into_iter().collect();
    let json = words.iter().any(|word| word == "--json");
    let (arguments, matches) = match parse(words) {
        Ok(parsed) => parsed,
        Err(error)
            if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
        {
            tree::mistake(&error).report(json);
            return Exit::Usage as u8;
        }
        Err(error) => {
            // A closed pipe is the reader's decision.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage as u8 } else { Exit::Ok as u8 };
        }
    };
    match execute(arguments, &matches, local) {
        Ok(exit) => exit as u8,
        Err(failure) => {
            failure.report(json);
            failure.exit as u8
        }
    }
}

/// The command, and where each of its values comes from.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(Arguments, ArgMatches), clap::Error> {
    let matches = tree::command().try_get_matches_from(arguments)?;
    let parsed = Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut tree::command()))?;
    Ok((parsed, matches))
}

/// Of the command at the end of nouns and verbs.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, inner)| innermost(inner))
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn data_directory(given: Option<PathBuf>, environment: &impl Fn(&str) -> Option<String>) -> PathBuf {
    let from_environment = || environment("FOREBAY_DATA").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let given = given.or_else(from_environment).or_else(configuration::data_directory);
    given.unwrap_or_else(|| PathBuf::from(DATA))
}

fn execute(arguments: Arguments, matches: &ArgMatches, local: &Local) -> Result<Exit, Failure> {
    let Arguments { data, json, noun } = arguments;
    let session = |data: Option<&Path>| {
        let client = Client::new(Target::choose(data, environment)?)?;
        Ok::<_, Failure>(Session { client, json })
    };
    listing::remember(innermost(matches), json)?;
    let data_given = data.as_deref();
    match noun {
        Noun::Serve(serve) => {
            let options = configuration::load(serve.config.as_deref(), innermost(matches))?;
            (local.serve)(options).map(|()| Exit::Ok)
        }
        Noun::Demo(_) => (local.demo)(configuration::without_file(innermost(matches))?).map(|()| Exit::Ok),
        Noun::Config(Config::Check { file }) => configuration::check(&file, local.examine, json),
        Noun::Config(Config::Show(serve)) => {
            configuration::show(serve.config.as_deref(), innermost(matches), json)
        }
        Noun::Config(Config::Backup { file }) => {
            backup::backup(&data_directory(data, &environment), &file, json)
        }
        Noun::Config(Config::Restore { file, force }) => {
            backup::restore(&data_directory(data, &environment), &file, force, json)
        }
        Noun::Support(command) => session(data_given)?.support(command),
        Noun::Pool(command) => session(data_given)?.pool(command),
        Noun::Disk(disks::Disk::Model(options)) => (local.model)(options, json),
        Noun::Disk(command) => session(data_given)?.disk(command),
        Noun::Project(command) => session(data_given)?.project(command),
        Noun::Volume(command) => session(data_given)?.volume(command),
        Noun::Snapshot(command) => session(data_given)?.snapshot(command),
        Noun::Bookmark(command) => session(data_given)?.bookmark(command),
        Noun::Clone(command) => session(data_given)?.clone_command(command),
        Noun::Host(command) => session(data_given)?.host(command),
        Noun::Level(command) => session(data_given)?.level(command),
        Noun::Threshold(command) => session(data_given)?.threshold(command),
        Noun::Channel(command) => session(data_given)?.channel(command),
        Noun::Session(command) => session(data_given)?.session(command),
        Noun::Top(command) => session(data_given)?.top(command),
        Noun::Stat(command) => session(data_given)?.stat(command),
        Noun::Worksheet(command) => session(data_given)?.worksheet(command),
        Noun::Report(command) => session(data_given)?.report(command),
        Noun::Task(command) => session(data_given)?.task_command(command),
        Noun::Event(command) => session(data_given)?.event(command),
        Noun::Alert(command) => session(data_given)?.alert(command),
        Noun::User(command) => session(data_given)?.user(command),
        Noun::Setup(command) => session(data_given)?.setup(command),
        Noun::Audit(command) => session(data_given)?.audit(command),
        Noun::Token(command) => session(data_given)?.token(command),
        Noun::Check(check) => {
            let report = (local.check)(check.disks)?;
            show_check(&report, json);
            Ok(if report.findings.is_empty() { Exit::Ok } else { Exit::Failed })
        }
        Noun::Validate(command) => {
            (local.validate)(command, json, &|| Ok(Daemon(session(data_given)?.client)))
        }
        Noun::Completion { shell } => {
            clap_complete::generate(shell, &mut tree::command(), "forebay", &mut std::io::stdout());
            Ok(Exit::Ok)
        }
        Noun::Man { directory } => help::manual(&directory).map(|()| Exit::Ok),
        Noun::Help { command } => {
            let words = ["forebay".into()].into_iter().chain(command).chain(["--help".into()]);
            match parse(words.map(OsString::from)) {
                Err(error) if error.use_stderr() => return Err(tree::mistake(&error)),
                // A closed pipe is the reader's decision.
                shown => _ = shown.map_err(|help| help.print()),
            }
            Ok(Exit::Ok)
        }
        Noun::Version => {
            let version = env!("CARGO_PKG_VERSION");
            match json {
                true => show::json(&serde_json::json!({ "version": version })),
                false => println!("forebay {version}"),
            }
            Ok(Exit::Ok)
        }
    }
}

fn show_check(report: &CheckReport, json: bool) {
    if json {
        let checked: serde_json::Map<String, serde_json::Value> =
            report.checked.iter().map(|(name, number)| (name.clone(), (*number).into())).collect();
        let report =
            serde_json::json!({ "pool": report.pool, "checked": checked, "findings": report.findings });
        show::json(&report);
        return;
    }
    println!("Pool {}", failure::printable(&report.pool));
    for (name, number) in &report.checked {
        println!("  {name:<12}{number}");
    }
    match report.findings.len() {
        0 => println!("The pool is consistent."),
        count => {
            report.findings.iter().for_each(|finding| println!("ERROR  {}", failure::printable(finding)));
            println!("The pool is not consistent: {count} errors.");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        let words = std::iter::once("forebay").chain(line.split_whitespace());
        super::parse(words.map(OsString::from)).map(|(parsed, _)| parsed)
    }

    #[test]
    fn the_definition_is_sound() {
        tree::command().debug_assert();
    }

    #[test]
    fn what_the_interface_names_parses() {
        for line in [
            "serve --data d --listen 127.0.0.1:0 --nbd 127.0.0.1:0 --shards 2 --memory 4G",
            "serve --data d --iscsi 127.0.0.1:0 --iscsi 127.0.0.1:3261",
            "serve --iscsi-chap-minimum sha256",
            "serve --nbd off",
            "serve --config f --https --listen [::1]:0",
            "serve --https=false",
            "config check",
            "config check f --json",
            "config show --config f --shards 2",
            "config backup f --data d",
            "config restore f --force --json",
            "support bundle",
            "support bundle f",
            "serve --nbd unix:/run/nbd.sock",
            "serve --nbd-tls-cert c --nbd-tls-key k --nbd-tls-ca a",
            "demo --data d",
            "pool create tank --layout mirror a b",
            "pool create tank --layout 4+1 a b c d e",
            "pool create tank a b --layout mirror --log c d --force --dry-run --no-wait",
            "pool list --json",
            "pool status",
            "pool status tank",
            "pool import a/b c/d",
            "pool import tank a/b --no-wait",
            "pool import tank a/b --read-only --dry-run",
            "pool create tank --layout 2+1 a b c --spare d --enclosure a=left /dev/b=c=right --force",
            "pool create tank --layout mirror a b --sector 4K b=8K --force",
            "pool create tank --layout mirror a b --log c --cache d e",
            "pool add tank c --cache",
            "pool add tank a b --spare --enclosure left --force --dry-run",
            "pool add tank a b --sector 4K --sector a=512",
            "pool export tank --wait",
            "pool destroy tank --yes --dry-run",
            "disk list --pool tank",
            "disk replace tank/3",
            "disk replace tank//dev/sdb /dev/sdc --force --no-wait",
            "disk replace tank/3 /dev/sdc --sector 4096",
            "disk remove tank/3 --yes --dry-run",
            "disk offline tank/b --yes",
            "disk online tank/3 --path /dev/sdc",
            "disk clear tank/3 --dry-run",
            "disk locate tank/3 --seconds 5 --no-wait",
            "disk model /dev/sdb",
            "validate run c.toml --model --live --pool tank --case x --scale 8 --nbd 127.0.0.1:10810",
            "validate run C --live --pool tank --seconds 10 --json",
            "validate size --workloads w.toml --catalogue c.toml --runs 10 --configuration out.toml",
            "validate import jobs.fio",
            "disk model f --write --yes --seconds 60 --json",
            "volume create tank/a --size 100G --block-size 8K --sync standard",
            "volume create tank/a --size 100G --format eagerzeroedthick",
            "volume convert tank/a --format thin --dry-run",
            "volume convert tank/a --format thick",
            "volume list",
            "volume show tank/a",
            "volume set tank/a --sync disabled --dry-run",
            "volume resize tank/a --size 200G",
            "volume delete tank/a --yes",
            "volume delete tank/a --with-snapshots --dry-run",
            "volume delete tank/a --purge --force --yes",
            "volume move tank/a vault --no-wait",
            "volume move tank/a vault --dry-run",
            "volume moves",
            "volume reclaim tank/a --no-wait",
            "volume keep vault/a --as vault/b --yes",
            "volume abandon vault/a --yes",
            "volume trash --pool tank",
            "volume restore tank/a --as tank/b --dry-run",
            "volume purge tank/a --yes",
            "pool set tank --trash-keep 7d --dry-run",
            "pool set tank --trash-keep off --yes",
            "volume create tank/b --from tank/a@s --host esx1",
            "volume create tank/b --from tank/a@s --size 200G --sync standard --dry-run",
            "volume set tank/a --snapshot-every 1h --snapshot-keep 24",
            "volume set tank/a --snapshot-every 0 --sync always",
            "volume set tank/a --snapshot-keep 7 --dry-run",
            "volume set tank/a --snapshot-keep last=8,hourly=24,daily=7,weekly=4,monthly=12",
            "volume rename tank/a tank/db/a --dry-run",
            "snapshot rename tank/a@s tank/a@t",
            "project rename tank/db tank/web --dry-run",
            "bookmark rename tank/a#b tank/a#c",
            "token rename ci deploy",
            "snapshot create tank/a@s",
            "snapshot create tank/a@s tank/b@s --dry-run --json",
            "snapshot list",
            "snapshot list tank/a",
            "snapshot list --pool tank",
            "snapshot show tank/a@s",
            "snapshot delete tank/a@s --yes",
            "snapshot rollback tank/a@s --force --yes",
            "snapshot rollback tank/a@s --dry-run",
            "snapshot hold tank/a@s",
            "snapshot release tank/a@s --dry-run",
            "snapshot set tank/a@s --template true",
            "snapshot send tank/a@t --from @s",
            "snapshot send tank/a@t --resume x",
            "snapshot receive vault/a --discard-changes --force",
            "bookmark create tank/a@s",
            "bookmark create tank/a@s old --dry-run",
            "bookmark list tank/a",
            "bookmark list --pool tank --json",
            "bookmark delete tank/a#s --yes",
            "snapshot send tank/a@t --from #s",
            "snapshot receives --pool vault",
            "snapshot abandon vault/a --yes --dry-run",
            "clone create tank/a@s tank/b --dry-run",
            "clone promote tank/b",
            "volume create tank/a --size 100G --host esx1 esx2 --logical-block 4K",
            "volume map tank/a --host esx1 --lun 3 --dry-run",
            "volume unmap tank/a --host esx1",
            "host create esx1 --iqn iqn.1998-01.com.vmware:esx1 eui.02004567a425678d --dry-run",
            "host create esx1 --iqn iqn.a --chap esx1 --chap-secret-file f --mutual t --mutual-secret-file g",
            "host list",
            "host show esx1",
            "host set esx1 --iqn iqn.b --no-chap --no-mutual",
            "host delete esx1 --unmap --yes",
            "host group create cluster --host esx1 esx2",
            "host group list",
            "host group show cluster",
            "host group set cluster --host",
            "host group delete cluster --yes",
            "level create gold --class mission-critical --min-iops 5000 --min-bandwidth 50M --latency 10ms",
            "level create capped --max-iops 100 --max-bandwidth 10M --burst 30s --dry-run",
            "level list",
            "level show gold",
            "level set gold --max-iops none --burst none",
            "level delete gold --dry-run",
            "volume create tank/a --size 1G --level gold",
            "volume set tank/a --level none",
            "volume set tank/a --inherit level",
            "project create tank/db --level gold",
            "project set tank/db --level none",
            "project create tank/db --max-iops 2000 --max-bandwidth 100M",
            "project set tank/db --max-iops none",
            "host create esx1 --iqn iqn.1998-01.com.vmware:esx1 --max-iops 2000",
            "host set esx1 --max-bandwidth none",
            "pool create tank --layout single a --no-calibrate",
            "pool calibrate tank --no-wait",
            "session list --host esx1",
            "session drop 7",
            "stat list",
            "stat off",
            "top volumes --sort latency --count 3",
            "top clients --json",
            "top disks",
            "report add july a.html a.json --dry-run",
            "report list",
            "report show july",
            "report export july --format json",
            "report delete july",
            "stat query iscsi.ops[op=read][client] --from -3600 --to 0 --step 10 --limit 20",
            "stat query nbd.latency --from 1790000000 --to 1790000300 --json",
            "stat heatmap nbd.ops[latency] --from -60",
            "worksheet list",
            "worksheet show x",
            "worksheet delete x --dry-run",
            "worksheet export x --format csv",
            "task list",
            "task watch x",
            "task cancel x",
            "event list --follow --json",
            "token create ci --role admin --expires 1d",
            "token list",
            "token delete ci",
            "serve --data d --http-name box.example --http-name box",
            "serve --data d --http-cert c --http-key k",
            "user create anna --role admin --password-file f --dry-run",
            "user list",
            "user set anna --role viewer --password",
            "user set anna --password-file f",
            "user delete anna --dry-run",
            "setup link --json",
            "audit list --limit 5",
            "channel set ops --host mail2 --port 26 --to a@x --to b@x --password-file f",
            "channel set pager --url https://b.example/x --secret-file f",
            "alert list",
            "check --offline a b",
            "completion bash",
            "completion zsh",
            "completion fish",
            "man /tmp/man1",
            "version --json",
            "help",
            "help volume create",
            "vol ls --columns name,size --sort -size --filter SIZE>1G --limit 5 --no-header",
            "snap rm tank/a@s",
            "host mv a b",
            "level rename a b --dry-run",
            "channel rename a b",
            "event list --since 2h --code disk. --object tank --severity warning",
            "event list --since 2026-11-20T17:04",
            "volume resize tank/a --size +50G",
            "--data d --json pool list",
        ] {
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn mistakes_are_refused_in_words() {
        for (line, words) in [
            ("pool create tank --layout 4+9 a b c d e", "1 to 3 parity disks"),
            ("pool create tank --layout raid5 a", "single, mirror, mirror3 or D+P"),
            ("pool add tank c --cache --spare", "--spare"),
            ("pool add tank c --cache --group 1", "--group"),
            ("pool create tank --layout mirror a b --enclosure left", "DISK=NAME"),
            ("pool add tank", "<DISK>"),
            ("disk replace", "<DISK>"),
            ("disk locate tank/3 --seconds 0", "--seconds"),
            ("disk replace tank/3 --sector 4K", "<NEW>"),
            ("pool create tank --layout mirror a b --sector 3K", "power of two from 512 to 64K"),
            ("pool add tank a --sector =4K", "DISK=SIZE"),
            ("disk offline tank/3 --force", "--force"),
            ("pool create tank --layout mirror", "<DISK>"),
            ("volume create tank/a", "--size"),
            ("volume create tank/a --size 10Q", "is not a size"),
            ("volume create tank/a --size -5G", "`-5G` is not a size"),
            ("volume create tank/a --from tank/b@s --block-size 4K", "cannot be used with"),
            ("volume set tank/a", "--snapshot-every"),
            ("volume set tank/a --snapshot-every daily", "is not a duration"),
            (
                "volume set tank/a --inherit format",
                "give some of sync, compression, snapshot-schedule, hosts, level",
            ),
            ("pool set tank", "--trash-keep"),
            ("volume restore tank/a --as", "--as"),
            ("volume move tank/a", "<POOL>"),
            ("snapshot create", "<VOLUME@NAME>"),
            ("snapshot list tank/a --pool tank", "cannot be used with"),
            ("snapshot set tank/a@s", "--template"),
            ("snapshot set tank/a@s --template maybe", "possible values"),
            ("snapshot send tank/a@t --from @s --resume x", "cannot be used with"),
            ("snapshot receive", "<VOLUME>"),
            ("clone create tank/a@s", "<NEW>"),
            ("volume create tank/a --size 1G --sync maybe", "possible values"),
            ("host create esx1", "--iqn"),
            ("level set gold", "--class"),
            ("level set gold --class urgent", "possible values"),
            ("level create gold --latency 10", "is not a latency"),
            ("level create gold --min-iops 5K", "is not a number of IOPS"),
            ("host create esx1 --iqn iqn.a --chap-secret-file f", "--chap"),
            ("host set esx1 --chap u --no-chap", "cannot be used with"),
            ("host group set cluster", "--host"),
            ("volume map tank/a", "--host"),
            ("volume map tank/a --host esx1 --lun 16384", "16384"),
            ("volume create tank/a --size 1G --logical-block 4K", "--host"),
            ("stat query", "<EXPRESSION>"),
            ("top volumes --sort name", "possible values"),
            ("report add july", "<FILE>"),
            ("stat query nbd.ops --limit 101", "101"),
            ("stat heatmap nbd.ops[latency] --step 0", "--step"),
            ("worksheet export x --format xml", "possible values"),
            ("check a", "--offline"),
            ("user set anna", "--password"),
            ("user create anna --password secret", "--password"),
            ("serve --nbd-tls-cert c", "--nbd-tls-key"),
            ("serve --http-cert c", "--http-key"),
            ("serve --shards 0", "--shards"),
            ("serve --listen 127.0.0.1", "a host and a port"),
            ("serve --nbd unix:nbd.sock", "not absolute"),
            ("pool import", "NAME_AND_DISKS"),
            ("pool export tank --wait --no-wait", "cannot be used with"),
            ("pool polish tank", "unrecognized subcommand"),
        ] {
            let error = parse(line).err().unwrap_or_else(|| panic!("accepted: {line}"));
            assert!(error.use_stderr() && error.to_string().contains(words), "{line}: {error}");
        }
    }
}
