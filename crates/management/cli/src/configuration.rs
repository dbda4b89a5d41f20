//! The configuration file: the options of `forebay serve`, under the names that they have on the command line.
//!
//! Nothing is declared here. The file is TOML; each key is looked up among the options ([`Serve`], and `--data`), and its value is given to
//! the parser of that option, so that file and command line take the same values, refuse the same ones and share one explanation. What counts is,
//! in this order: the command line, `FOREBAY_DATA`, the file, the default. An unknown key is an error, never ignored: a protection that was switched
//! on by a misspelt name would be off.

use crate::failure::{Exit, Failure, printable};
use crate::serve::{Serve, ServeOptions};
use crate::table::{Cell, render};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::json;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Read where no other is named, if it exists.
pub const FILE: &str = "/etc/forebay/forebay.toml";
const BYTES_MAX: u64 = 1 << 20;
/// Of the example's comments.
const COLUMNS: usize = 100;

/// Something in a configuration that is wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The key, or nothing when the file as a whole is meant.
    pub key: String,
    /// What is wrong, a clause.
    pub problem: String,
    /// What is allowed instead, a clause.
    pub allowed: String,
}

/// A finding, and in which line of the file it is; none for what only the whole says.
type Located = (Option<usize>, Finding);

/// A key of the file.
struct Entry {
    key: String,
    line: usize,
    values: Vec<String>,
}

/// A file that was read.
struct File {
    path: PathBuf,
    entries: Vec<Entry>,
    findings: Vec<Located>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    Default,
    /// The line.
    File(usize),
    Environment,
    Option,
}

/// An option's value.
struct Setting {
    key: String,
    /// Empty when it has none; then `unset` says what that means.
    values: Vec<OsString>,
    unset: String,
    origin: Origin,
}

/// What the daemon starts with.
struct Effective {
    file: Option<PathBuf>,
    settings: Vec<Setting>,
    options: ServeOptions,
}

/// Options for the daemon: of the file at `path`, or else of the usual one if it exists, and of the command line.
pub fn load(path: Option<&Path>, given: &ArgMatches) -> Result<ServeOptions, Failure> {
    effective(read(path)?, given).map(|effective| effective.options)
}

/// Options for a daemon that has no file.
pub fn without_file(given: &ArgMatches) -> Result<ServeOptions, Failure> {
    effective(None, given).map(|effective| effective.options)
}

/// The data directory that the usual file names, for commands that look for the daemon. They do not depend on the file: what is wrong
/// with it says the daemon.
pub fn data_directory() -> Option<PathBuf> {
    let file = read(None).ok()??;
    let entry = file.entries.into_iter().find(|entry| entry.key == "data")?;
    entry.values.first().map(PathBuf::from)
}

/// `forebay config check`; `examine` looks at what options name.
pub fn check(
    path: &Path,
    examine: fn(&ServeOptions) -> Vec<Finding>,
    as_json: bool,
) -> Result<Exit, Failure> {
    let file = read(Some(path))?.expect("a file that is named is read or a failure");
    let mut findings = file.findings.clone();
    if findings.is_empty() {
        let given = options().get_matches_from(std::iter::empty::<OsString>());
        match merge(Some(&file), &given) {
            Ok((_, options)) => {
                let mut found = examine(&options);
                for finding in found.iter_mut().filter(|finding| finding.allowed.is_empty()) {
                    finding.allowed = allowed_for(&finding.key);
                }
                findings.extend(found.into_iter().map(|finding| (file.line(&finding.key), finding)));
            }
            Err(finding) => findings.push((None, finding)),
        }
    }
    findings.sort_by_key(|(line, _)| line.unwrap_or(usize::MAX));
    if as_json {
        let findings: Vec<_> = findings
            .iter()
            .map(|(line, finding)| {
                json!({ "line": line, "key": finding.key, "problem": finding.problem, "allowed": finding.allowed })
            })
            .collect();
        crate::show::json(&json!({ "file": path.display().to_string(), "findings": findings }));
    } else {
        let path = printable(&path.display().to_string());
        for (line, finding) in &findings {
            let line = line.map(|line| format!(":{line}")).unwrap_or_default();
            let key = if finding.key.is_empty() { "" } else { &format!(" {}:", printable(&finding.key)) };
            println!("{path}{line}:{key} {}", printable(&finding.problem));
            println!("  allowed: {}", printable(&finding.allowed));
        }
        if findings.is_empty() {
            println!("{path} has no errors.");
        }
    }
    Ok(if findings.is_empty() { Exit::Ok } else { Exit::Usage })
}

/// `forebay config show`.
pub fn show(path: Option<&Path>, given: &ArgMatches, as_json: bool) -> Result<Exit, Failure> {
    let effective = effective(read(path)?, given)?;
    let file = effective.file.map(|path| path.display().to_string());
    let text = |value: &OsString| value.to_string_lossy().into_owned();
    if as_json {
        let settings: Vec<_> = effective
            .settings
            .iter()
            .map(|setting| {
                let (source, line) = match setting.origin {
                    Origin::Default => ("default", None),
                    Origin::File(line) => ("file", Some(line)),
                    Origin::Environment => ("environment", None),
                    Origin::Option => ("option", None),
                };
                let values: Vec<String> = setting.values.iter().map(text).collect();
                json!({ "key": setting.key, "values": values, "source": source, "line": line })
            })
            .collect();
        crate::show::json(&json!({ "file": file, "settings": settings }));
        return Ok(Exit::Ok);
    }
    let row = |setting: &Setting| {
        let values: Vec<String> = setting.values.iter().map(text).collect();
        let value = if values.is_empty() { setting.unset.clone() } else { values.join(" ") };
        let source = match setting.origin {
            Origin::Default => "default".to_string(),
            Origin::File(line) => format!("{}:{line}", file.as_deref().unwrap_or_default()),
            Origin::Environment => "FOREBAY_DATA".to_string(),
            Origin::Option => "option".to_string(),
        };
        [setting.key.clone(), value, source].map(Cell::text).to_vec()
    };
    let rows: Vec<Vec<Cell>> = effective.settings.iter().map(row).collect();
    print!("{}", render(&["KEY", "VALUE", "SOURCE"], &rows, crate::table::colour()));
    Ok(Exit::Ok)
}

/// The file that is shipped: every option with its explanation and its default, all of it comments.
pub fn example() -> String {
    let mut out = String::from(
        "# The configuration of the Forebay daemon.\n\
         #\n\
         # Each key is an option of `forebay serve`. A line that begins with # has no effect; here such lines show defaults or examples.\n\
         # Several values are a list in brackets. Options on the command line override this file.\n\
         #\n\
         #   forebay config check    lists the errors in this file\n\
         #   forebay config show     prints the values that the daemon would start with\n\
         #\n\
         # The daemon reads this file when it starts: systemctl restart forebay\n",
    );
    for arg in options().get_arguments() {
        let (help, _) = explanation(arg);
        out.push_str(&format!("\n{}", comment(&format!("{}.", help.trim_end_matches('.')))));
        if let Some(unset) = unset(arg) {
            out.push_str(&comment(&format!("Default: {unset}.")));
        }
        let key = arg.get_long().expect("options have names");
        let text = example_value(arg, key);
        let is_bare = text.parse::<u64>().is_ok() || text.parse::<bool>().is_ok();
        let value = if is_bare { text } else { format!("\"{text}\"") };
        let value = if is_list(arg) { format!("[{value}]") } else { value };
        out.push_str(&format!("#{key} = {value}\n"));
    }
    out
}

/// The options that the file may set, as the command line declares them.
fn options() -> Command {
    let root = crate::tree::command();
    let data = root.get_arguments().find(|arg| arg.get_id() == "data").expect("it is declared").clone();
    let data = data
        .default_value(crate::DATA)
        .help("The daemon's data directory, with its settings and the socket for local commands");
    let command = Command::new("forebay").no_binary_name(true).disable_help_flag(true).arg(data);
    Serve::augment_args(command)
}

/// Reads a file. `None`: no file is named and the usual one does not exist.
fn read(named: Option<&Path>) -> Result<Option<File>, Failure> {
    let path = named.unwrap_or(Path::new(FILE));
    // A device or a pipe would have no end.
    let regular =
        std::fs::metadata(path).and_then(|found| match found.is_file() && found.len() <= BYTES_MAX {
            true => Ok(()),
            false => Err(io::Error::other("it is not a regular file of at most 1 MiB")),
        });
    let text = match regular.and_then(|()| std::fs::read_to_string(path)) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let exit = if error.kind() == io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Failed };
            let detail = format!("the configuration file cannot be read: {error}");
            return Err(Failure::new(exit, detail, "Name a text file that this user can read.")
                .object(path.display().to_string()));
        }
    };
    Ok(Some(parse(path, &text)))
}

fn parse(path: &Path, text: &str) -> File {
    let line_of =
        |offset: usize| 1 + text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count();
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut findings: Vec<Located> = errors
        .iter()
        .map(|error| {
            let allowed =
                "lines like `listen = \"127.0.0.1:8080\"`, in TOML: texts in quotes, lists in brackets";
            let problem = error.message().replace('\n', ", ");
            let finding = Finding { key: String::new(), problem, allowed: allowed.into() };
            (error.span().map(|span| line_of(span.start)), finding)
        })
        .collect();
    let mut entries = Vec::new();
    for (key, value) in table.get_ref() {
        let line = line_of(key.span().start);
        match values(key.get_ref(), value.get_ref()) {
            Ok(values) => entries.push(Entry { key: key.get_ref().to_string(), line, values }),
            // What is left of a line that is no TOML says nothing more.
            Err(_) if !errors.is_empty() => {}
            Err(finding) => findings.push((Some(line), finding)),
        }
    }
    findings.sort_by_key(|(line, _)| *line);
    File { path: path.to_path_buf(), entries, findings }
}

impl File {
    fn line(&self, key: &str) -> Option<usize> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| entry.line)
    }
}

/// The values of a key, as the command line would have them; each has been tried.
fn values(key: &str, value: &DeValue) -> Result<Vec<String>, Finding> {
    let wrong = |problem: String, allowed: String| Finding { key: key.into(), problem, allowed };
    if let DeValue::Table(_) = value {
        let allowed =
            format!("keys without sections, like `{key}-NAME = \"…\"`; `forebay serve --help` lists them");
        return Err(wrong("this is a section, and the file cannot have sections".into(), allowed));
    }
    let command = options();
    let Some(arg) = command.get_arguments().find(|arg| arg.get_long() == Some(key)) else {
        let error = options().try_get_matches_from([format!("--{key}")]).err();
        let known = error.as_ref().and_then(|error| error.get(ContextKind::SuggestedArg));
        let allowed = match known {
            Some(ContextValue::String(known)) => {
                format!("`{}`, which has a similar name", known.trim_start_matches('-'))
            }
            _ => "the options of `forebay serve --help`, without the leading dashes".into(),
        };
        return Err(wrong("no option of the daemon has this name".into(), allowed));
    };
    let scalars = match value {
        DeValue::Array(_) if !is_list(arg) => None,
        DeValue::Array(items) => items.iter().map(|item| scalar(item.get_ref())).collect::<Option<Vec<_>>>(),
        value => scalar(value).map(|scalar| vec![scalar]),
    };
    let Some(scalars) = scalars.filter(|scalars| !scalars.is_empty()) else {
        let kind = if is_list(arg) {
            "one text, or a list of texts with at least one"
        } else {
            "one text, number, true or false"
        };
        return Err(wrong(format!("the value is {}", value.type_str()), format!("{kind}; {}", allowed(arg))));
    };
    for scalar in &scalars {
        let Err(error) = options().try_get_matches_from([format!("--{key}={scalar}")]) else { continue };
        // Another option that it needs is looked for when all are known.
        if error.kind() != ErrorKind::MissingRequiredArgument {
            let reason = std::error::Error::source(&error).map(|reason| format!(": {reason}"));
            let problem = format!("`{scalar}` is not allowed{}", reason.unwrap_or_default());
            return Err(wrong(problem, allowed(arg)));
        }
    }
    Ok(scalars)
}

/// As a word of the command line.
fn scalar(value: &DeValue) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().into()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

fn effective(file: Option<File>, given: &ArgMatches) -> Result<Effective, Failure> {
    if let Some(file) = &file
        && let Some((line, finding)) = file.findings.first()
    {
        return Err(refusal(&file.path, *line, finding));
    }
    let usual = Path::new("forebay serve");
    let (settings, options) = merge(file.as_ref(), given)
        .map_err(|finding| refusal(file.as_ref().map_or(usual, |file| &file.path), None, &finding))?;
    Ok(Effective { file: file.map(|file| file.path), settings, options })
}

fn refusal(path: &Path, line: Option<usize>, finding: &Finding) -> Failure {
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    let key = if finding.key.is_empty() { "" } else { &format!("{}: ", finding.key) };
    let detail = format!("{key}{}", finding.problem);
    let remedy = format!("Allowed: {}. `forebay config check FILE` lists all errors", finding.allowed);
    Failure::new(Exit::Usage, detail, remedy).object(format!("{}{line}", path.display()))
}

/// Each option's value from where it counts most, and all of them as the daemon takes them.
fn merge(file: Option<&File>, given: &ArgMatches) -> Result<(Vec<Setting>, ServeOptions), Finding> {
    let command = options();
    let (mut settings, mut words) = (Vec::new(), Vec::new());
    for arg in command.get_arguments() {
        let (id, key) = (arg.get_id().as_str(), arg.get_long().expect("options have names"));
        let entry = file.and_then(|file| file.entries.iter().find(|entry| entry.key == key));
        let environment = crate::environment("FOREBAY_DATA").filter(|dir| id == "data" && !dir.is_empty());
        let (values, origin) = if given.value_source(id) == Some(clap::parser::ValueSource::CommandLine) {
            let raw = given.get_raw(id).expect("it has a source");
            (raw.map(OsString::from).collect(), Origin::Option)
        } else if let Some(directory) = environment {
            (vec![directory.into()], Origin::Environment)
        } else if let Some(entry) = entry {
            (entry.values.iter().map(OsString::from).collect(), Origin::File(entry.line))
        } else {
            (arg.get_default_values().iter().map(|value| value.to_os_string()).collect(), Origin::Default)
        };
        if origin != Origin::Default {
            words.extend(values.iter().map(|value| {
                let mut word = OsString::from(format!("--{key}="));
                word.push(value);
                word
            }));
        }
        settings.push(Setting { key: key.into(), values, unset: unset(arg).unwrap_or("-".into()), origin });
    }
    let matches = command.clone().try_get_matches_from(words).map_err(|error| {
        // Each value was tried alone: what is left are options that need each other.
        let missing = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(missing)) => missing.join(" "),
            _ => String::new(),
        };
        let key = missing.trim_start_matches('-').split(' ').next().unwrap_or_default().to_string();
        let allowed = allowed_for(&key);
        Finding { key, problem: "it is missing, and another option requires it".into(), allowed }
    })?;
    let data = matches.get_one::<PathBuf>("data").expect("it has a default").clone();
    let serve = Serve::from_arg_matches(&matches).expect("what clap has parsed fits the declaration");
    let defaults = settings.iter().filter(|setting| setting.origin == Origin::Default);
    let defaults = defaults.map(|setting| setting.key.clone()).collect();
    Ok((settings, serve.into_options(data, defaults)))
}

fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

/// What the option is for, and its default, if the help has one.
fn explanation(arg: &Arg) -> (String, Option<String>) {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    match help.split_once(" [default: ") {
        Some((help, unset)) => (help.to_string(), Some(unset.trim_end_matches(']').to_string())),
        None => (help, None),
    }
}

fn unset(arg: &Arg) -> Option<String> {
    explanation(arg).1
}

/// What an option takes, a clause.
fn allowed(arg: &Arg) -> String {
    let (help, _) = explanation(arg);
    let words: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_string()).collect();
    let takes = match words.is_empty() {
        true => arg.get_value_names().map(|names| names.join(" ")).unwrap_or_default(),
        false => words.join(" or "),
    };
    format!("{takes}: {help}")
}

fn allowed_for(key: &str) -> String {
    options().get_arguments().find(|arg| arg.get_long() == Some(key)).map(allowed).unwrap_or_default()
}

/// The default, or something that the option takes.
fn example_value(arg: &Arg, key: &str) -> String {
    if let Some(value) = arg.get_default_values().first() {
        return value.to_string_lossy().into_owned();
    }
    match arg.get_value_names().and_then(|names| names.first()).map(|name| name.as_str()) {
        Some("FILE") => format!("/etc/forebay/{key}.pem"),
        Some("NAME") => "storage.example.org".into(),
        Some("SIZE") => "4G".into(),
        _ => "4".into(),
    }
}

/// Lines of a comment.
fn comment(text: &str) -> String {
    let mut lines = vec![String::from("#")];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if line.len() + 1 + word.len() > COLUMNS {
            lines.push(format!("# {word}"));
        } else {
            line.push_str(&format!(" {word}"));
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}
