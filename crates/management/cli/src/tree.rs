//! The tree of commands as it is typed: [`Arguments`], and what all of its commands have in common.
//!
//! - `list` and `delete` are also `ls` and `rm`, and each list takes the options of [`listing`].
//! - An option that takes an amount takes everything behind it as its value, so that `--size -5G` is refused as a size, and not as an unknown option.

use crate::arguments::Arguments;
use crate::failure::{Exit, Failure};
use crate::listing;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};

/// Other names of verbs.
const ALIASES: &[(&str, &str)] = &[("list", "ls"), ("delete", "rm"), ("rename", "mv")];
/// Other names of nouns.
const NOUN_ALIASES: &[(&str, &str)] = &[("volume", "vol"), ("snapshot", "snap")];
/// What the values of amounts are called.
const AMOUNTS: &[&str] = &[
    "SIZE", "RATE", "DURATION", "N", "NUMBER", "PERCENT", "SECONDS", "HOURS", "COUNT", "TIME", "IOPS",
    "VALUE",
];
/// Verbs that list.
const LISTS: &[&str] = &["list", "trash", "moves", "receives"];
/// Nouns whose lists are no tables.
const NO_TABLES: &[&str] = &["alert", "event", "validate"];

/// All commands with their options.
pub fn command() -> Command {
    let mut root = Arguments::command();
    for (noun, other) in NOUN_ALIASES {
        root = root.mut_subcommand(noun, |command| command.visible_alias(*other));
    }
    below("", root)
}

/// What all commands below this one have, and it itself as one of `noun`.
fn below(noun: &str, command: Command) -> Command {
    let own = command.get_name().to_string();
    let command = command.mut_args(typed).mut_subcommands(|verb| below(&own, verb));
    let command = match ALIASES.iter().find(|(verb, _)| *verb == own) {
        Some((_, other)) => command.visible_alias(*other),
        None => command,
    };
    match LISTS.contains(&&*own) && !NO_TABLES.contains(&noun) {
        true => listing::options(command),
        false => command,
    }
}

fn typed(arg: Arg) -> Arg {
    let is_amount = |names: &[clap::builder::Str]| names.iter().any(|name| AMOUNTS.contains(&name.as_str()));
    match !arg.is_positional() && arg.get_value_names().is_some_and(is_amount) {
        true => arg.allow_hyphen_values(true),
        false => arg,
    }
}

/// What is wrong with a command line, in our words.
pub fn mistake(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let is_said = |line: &&&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    // What is no option of a command is seldom meant as a value of it.
    let tips = lines.iter().filter_map(|line| line.strip_prefix("tip: "));
    let tips: Vec<&str> = tips.filter(|tip| !tip.starts_with("to pass ")).collect();
    let said: Vec<&str> =
        lines.iter().filter(is_said).filter(|line| !line.starts_with("tip: ")).copied().collect();
    let said = said.join(" ");
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    let usage = lines.iter().find_map(|line| line.strip_prefix("Usage: "));
    let known = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    // A value's own parser says all that there is to say.
    let detail = match (error.kind(), known(ContextKind::InvalidArg), std::error::Error::source(error)) {
        (ErrorKind::ValueValidation, Some(option), Some(source)) => {
            let option = option.split(' ').next().unwrap_or_default().to_string();
            format!("{option}: {source}")
        }
        _ => said.to_string(),
    };
    // What the parser's own types say of numbers.
    let detail = match detail
        .split_once(" is not in ")
        .and_then(|(value, range)| Some((value, range.split_once("..=")?)))
    {
        Some((value, (least, most))) => format!("{value} is not between {least} and {most}"),
        None => detail.replace("invalid digit found in string", "not a whole number"),
    };
    let remedy = match (tips.is_empty(), usage) {
        (false, _) => tips.join("; "),
        (true, Some(usage)) => usage.to_string(),
        (true, None) => "The command with `--help` shows what it takes.".into(),
    };
    Failure::new(Exit::Usage, detail, remedy)
}
