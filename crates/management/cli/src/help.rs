//! The committed reference of the command line and the manual pages, made from the commands' own help.

use crate::arguments::{DryRun, Wait, Yes};
use crate::failure::{Exit, Failure};
use crate::listing;
use crate::rename::Rename;
use crate::tree;
use clap::{Args, Command};
use std::path::Path;

/// Every command has these.
const GLOBALS: [&str; 3] = ["--data <DIR>", "--json", HELP];
const HELP: &str = "-h, --help";
/// The options of every list, as they are named where they are not described.
const LISTS: &str = "`--columns`, `--sort`, `--filter`, `--no-header`";

/// The exact content of `docs/reference/cli.md`.
pub fn document() -> String {
    let mut root = tree::command().version(None::<&str>).disable_version_flag(true);
    root.build();
    let globals = entries(&root.render_help().to_string());
    let globals: Vec<Entry> = globals.into_iter().filter(|(name, _)| name.contains("--")).collect();
    let changes = Wait::augment_args(Yes::augment_args(DryRun::augment_args(Command::new("change"))));
    let changes = entries(&changes.disable_help_flag(true).render_help().to_string());
    let lists = listing::options(Command::new("list")).disable_help_flag(true).render_help().to_string();
    let renames = Rename::augment_args(Command::new("rename")).render_help().to_string();
    let renames: Vec<Entry> =
        entries(&renames).into_iter().filter(|(name, _)| name.starts_with('<')).collect();
    let lists = entries(&lists);
    let shared = [
        ("Every command", &globals[..]),
        ("Commands that change something", &changes[..]),
        ("Lists", &lists[..]),
        ("Every `rename`", &renames[..]),
    ];
    let mut out = String::from(
        "# Command line\n\n\
         Every command with its arguments and options, from the program's own help. This page is generated and a test compares it with the \
         program; after a change: `FOREBAY_UPDATE=1 cargo test -p forebay-cli --test help`.\n\n\
         `forebay help COMMAND` and `--help` print the same. `ls`, `rm` and `mv` stand for `list`, `delete` and `rename`, `vol` and `snap` for \
         `volume` and `snapshot`. Options of many commands are described here only. Brackets hold defaults and possible values.\n",
    );
    for (title, entries) in shared {
        out.push_str(&format!("\n{title}:\n\n{}", items(entries)));
    }
    write(&mut out, &mut root, "forebay", &shared.map(|(_, entries)| entries).concat());
    out
}

/// An argument, option or command, and what help says of it.
type Entry = (String, String);

/// The entries of a help text: lines that are indented, the name and its description apart by two spaces or more.
fn entries(help: &str) -> Vec<Entry> {
    let lines = help.lines().filter(|line| line.starts_with("  "));
    let entry = |line: &str| {
        let (name, text) = line.trim().split_once("  ").unwrap_or((line.trim(), ""));
        (name.trim().to_string(), text.trim().to_string())
    };
    lines.map(entry).collect()
}

fn items(entries: &[Entry]) -> String {
    // Help is plain text: what would be markup of the page is none.
    let plain = |text: &str| text.replace("[possible values: ", "[").replace('<', "\\<").replace('*', "\\*");
    entries.iter().map(|(name, text)| format!("- `{name}`: {}\n", plain(text))).collect()
}

/// Writes a manual page for each command.
pub fn manual(directory: &Path) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(tree::command().name("forebay"), directory));
    written.map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("the manual cannot be written: {error}"),
            "Give a directory that can be written",
        )
        .object(directory.display().to_string())
    })
}

/// A command and all below it. What `shared` has is named only; a group describes what several of its commands have.
fn write(out: &mut String, command: &mut Command, path: &str, shared: &[Entry]) {
    let help = command.render_help().to_string();
    let subs: Vec<String> = command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .map(|sub| sub.get_name().to_string())
        .collect();
    let about = help.lines().take_while(|line| !line.starts_with("Usage:")).collect::<Vec<_>>().join("\n");
    out.push_str(&format!("\n## {path}\n\n{}\n", about.trim()));
    let mut shared = shared.to_vec();
    if subs.is_empty() {
        out.push_str(&leaf(path, &help, &shared));
    } else {
        let several = several(command, &subs, &shared);
        if !several.is_empty() {
            out.push_str(&format!("\nSeveral commands take:\n\n{}", items(&several)));
        }
        shared.extend(several);
    }
    if path == "forebay" {
        let after = help.lines().skip_while(|line| !line.starts_with("Options:")).skip(1);
        let after: Vec<&str> = after.skip_while(|line| line.starts_with(' ') || line.is_empty()).collect();
        out.push_str(&format!("\n{}\n", after.join("\n\n").trim()));
    }
    for sub in subs {
        let command = command.find_subcommand_mut(&sub).expect("it was just listed");
        write(out, command, &format!("{path} {sub}"), &shared);
    }
}

/// How a command is written, what it takes alone, and the names of the rest.
fn leaf(path: &str, help: &str, shared: &[Entry]) -> String {
    let usage = help.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or_default();
    let usage = usage.replace(" [OPTIONS]", "");
    let mut out = if usage == path { String::new() } else { format!("\n`{usage}`\n") };
    let entries = entries(help).into_iter().filter(|(name, _)| name != HELP);
    let (known, own): (Vec<Entry>, Vec<Entry>) = entries.partition(|entry| shared.contains(entry));
    if !own.is_empty() {
        out.push_str(&format!("\n{}", items(&own)));
    }
    // Arguments stand in the usage.
    let is_option = |name: &&str| name.starts_with('-') && !GLOBALS.contains(name);
    let known = known.iter().map(|(name, _)| &**name).filter(is_option);
    let known: Vec<&str> = known.map(|name| name.split([' ', '[']).next().unwrap_or(name)).collect();
    if !known.is_empty() {
        let known = format!("`{}`", known.join("`, `"));
        let known = [format!("{LISTS}, `--limit`"), LISTS.into()]
            .iter()
            .fold(known, |text, lists| text.replace(lists, "options of lists"));
        out.push_str(&format!("\nAlso {known}.\n"));
    }
    out
}

/// What more than one of these commands take, with the same words.
fn several(command: &mut Command, subs: &[String], shared: &[Entry]) -> Vec<Entry> {
    let (mut seen, mut several) = (Vec::new(), Vec::new());
    for sub in subs {
        let sub = command.find_subcommand_mut(sub).expect("it was just listed");
        if sub.has_subcommands() {
            continue;
        }
        for entry in entries(&sub.render_help().to_string()) {
            // Of a name that means something else in another command, each says what it means there.
            if several.iter().chain(shared).any(|(name, _)| *name == entry.0) {
                continue;
            }
            if seen.contains(&entry) { several.push(entry) } else { seen.push(entry) }
        }
    }
    several
}
