//! The committed reference of the command line and the manual pages, made from the commands' own help.

use crate::failure::{Exit, Failure};
use crate::listing;
use crate::tree;
use clap::Command;
use std::path::Path;

const GLOBALS: [&str; 3] = ["--data <DIR>", "--json", "-h, --help"];

/// The exact content of `docs/reference/cli.md`.
pub fn document() -> String {
    let mut out = String::from(
        "# Command line\n\n\
         The help of every command, as the program prints it. This page is generated and a test compares it with the \
         program; after a change: `FOREBAY_UPDATE=1 cargo test -p forebay-cli --test help`.\n",
    );
    out.push_str("\nEvery list takes these options as well:\n\n```text\n");
    let list = listing::options(Command::new("list")).disable_help_flag(true).render_help().to_string();
    let list = list.split_once("Options:\n").map_or("", |(_, options)| options);
    out.push_str(&list.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>());
    out.push_str("```\n");
    let mut root = tree::command().version(None::<&str>).disable_version_flag(true);
    root.build();
    write(&mut out, &mut root, "forebay", true);
    out
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

fn write(out: &mut String, command: &mut Command, path: &str, is_root: bool) {
    let help = command.render_help().to_string();
    let mut help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    if !is_root {
        // What every command has is told once, at the top.
        help = without_globals(&help);
    }
    out.push_str(&format!("\n## {path}\n\n```text\n{}\n```\n", help.trim_end()));
    let names: Vec<String> = command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .map(|sub| sub.get_name().to_string())
        .collect();
    for name in names {
        let sub = command.find_subcommand_mut(&name).expect("it was just listed");
        write(out, sub, &format!("{path} {name}"), false);
    }
}

/// Drops the entries of what every command, and every list, has, each with its indented text.
fn without_globals(help: &str) -> String {
    let mut out = String::new();
    let is_list = help.contains("--no-header");
    let mut dropping = false;
    for line in help.lines() {
        let entry = line.trim_start();
        let is_option = entry.starts_with('-');
        if is_option {
            let shared = if is_list { &listing::OPTIONS[..] } else { &[] };
            dropping = GLOBALS.iter().chain(shared).any(|name| entry.starts_with(name));
        } else if !line.starts_with(' ') && !line.is_empty() {
            dropping = false;
        }
        if !dropping {
            out.push_str(line);
            out.push('\n');
        }
    }
    let out = out.trim_end();
    // A command without options of its own is left with the title of an empty section.
    format!("{}\n", out.strip_suffix("Options:").unwrap_or(out).trim_end())
}
