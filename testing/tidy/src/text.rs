//! Rules that one can see in a file's text: length, opening, forbidden words, places of `unsafe`, developers' paths, links of
//! the docs.
//!
//! The tree is walked as it lies on disk, without git: a source archive has to be as tidy as a clone. Directories
//! that hold what is built or generated are skipped.

use crate::Breach;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A file should be read at a sitting.
pub const LINES_MAX: usize = 700;

const SKIPPED: &[&str] = &["node_modules", "dist", "shared", "corpus", "artifacts"];

/// Macros and attributes that mean "not done yet" or "not looked at". Spelt in halves: this file is checked, too.
const UNFINISHED: &[&str] = &[
    concat!("todo", "!"),
    concat!("unimplemented", "!"),
    concat!("dbg", "!"),
    concat!("#[", "ignore"),
    concat!("allow(", "dead_code)"),
];
const UNFINISHED_WORDS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Where a developer's machine keeps things; nothing in the project may depend on it.
const DEVELOPER_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("/ro", "ot/"), concat!("/wo", "rk/")];

/// Where `unsafe` may stand: system calls and memory for devices, vector instructions, and tests (clippy asks for the reason
/// at each).
const UNSAFE_PLACES: &[&str] = &[
    "crates/foundation/runtime/",
    "crates/engine/raid/src/kernels.rs",
    "crates/forebay/src/main.rs",
    "testing/",
];
const UNSAFE: &[&str] = &[
    concat!("unsafe", " {"),
    concat!("unsafe", " fn"),
    concat!("unsafe", " impl"),
    concat!("unsafe", " extern"),
    concat!("unsafe", " trait"),
];

pub fn check(root: &Path) -> Vec<Breach> {
    let mut files = Vec::new();
    walk(root, Path::new(""), &mut files);
    files.sort();
    let mut breaches = Vec::new();
    for path in &files {
        let kind = Kind::of(path);
        if kind == Kind::Other {
            continue;
        }
        // What is not UTF-8 is not text.
        let Ok(text) = fs::read_to_string(root.join(path)) else { continue };
        let mut report = |rule, line: Option<usize>, message: String| {
            let place = match line {
                Some(line) => format!("{}:{line}", path.display()),
                None => path.display().to_string(),
            };
            breaches.push(Breach { rule, place, message });
        };
        if kind.is_source() {
            let lines = text.lines().count();
            if lines > LINES_MAX {
                report("length", None, format!("{lines} lines; split it, {LINES_MAX} is the most"));
            }
            for (number, line) in text.lines().enumerate() {
                for word in UNFINISHED.iter().filter(|word| kind == Kind::Rust && has_word(line, word)) {
                    report(
                        "unfinished",
                        Some(number + 1),
                        format!("`{word}` has no place in committed code"),
                    );
                }
                if kind == Kind::Rust
                    && !may_be_unsafe(path)
                    && UNSAFE.iter().any(|word| has_word(line, word))
                {
                    let message =
                        "`unsafe` stands in foundation/runtime and in the kernels of engine/raid only";
                    report("unsafe", Some(number + 1), message.into());
                }
                for word in UNFINISHED_WORDS.iter().filter(|word| has_word(line, word)) {
                    report("unfinished", Some(number + 1), format!("`{word}`: do it, or open an issue"));
                }
            }
        }
        for (number, line) in text.lines().enumerate() {
            for path in DEVELOPER_PATHS.iter().filter(|path| has_path(line, path)) {
                let message = format!("`{path}` is a place on one developer's machine");
                report("developer-path", Some(number + 1), message);
            }
        }
        if kind == Kind::Rust && !text.starts_with("//!") {
            report(
                "theory",
                None,
                "open the file with `//!`: what it owns, its invariants, why this shape".into(),
            );
        }
        if kind == Kind::Markdown {
            for (line, target) in links(&text) {
                if let Some(message) = broken(root, path, &target) {
                    report("link", Some(line), message);
                }
            }
        }
    }
    breaches
}

/// The files of a kind below a directory of the tree, in order; none where there is no such directory.
pub fn files(root: &Path, below: &str, kind: Kind) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if root.join(below).exists() {
        walk(root, Path::new(below), &mut files);
    }
    files.retain(|path| Kind::of(path) == kind);
    files.sort();
    files
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Rust,
    /// Scripts and the browser's code.
    Script,
    /// Manifests, configuration, Makefile.
    Configuration,
    Markdown,
    Other,
}

impl Kind {
    fn of(path: &Path) -> Kind {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        match path.extension().and_then(|e| e.to_str()) {
            Some("rs") => Kind::Rust,
            Some("sh" | "py" | "ts" | "js" | "svelte") => Kind::Script,
            Some("md") => Kind::Markdown,
            Some("toml" | "yml" | "yaml") => Kind::Configuration,
            None if name == "Makefile" => Kind::Configuration,
            None if path.starts_with("scripts") || path.starts_with(".ci") => Kind::Script,
            _ => Kind::Other,
        }
    }
    fn is_source(self) -> bool {
        matches!(self, Kind::Rust | Kind::Script)
    }
}

fn walk(root: &Path, directory: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(root.join(directory)).expect("the workspace's directories can be read");
    for entry in entries {
        let entry = entry.expect("the workspace's directories can be read");
        let name = entry.file_name();
        let path = directory.join(&name);
        let kind = entry.file_type().expect("an entry of a directory has a type");
        if kind.is_dir() {
            let name = name.to_string_lossy();
            let hidden = name.starts_with('.') && name != ".ci";
            // Cargo marks its build directories; the name alone is no mark, there is a crate called `target`.
            let built = root.join(&path).join("CACHEDIR.TAG").exists();
            if !hidden && !built && !SKIPPED.contains(&&*name) {
                walk(root, &path, files);
            }
        } else if kind.is_file() {
            files.push(path);
        }
    }
}

fn may_be_unsafe(path: &Path) -> bool {
    let listed = UNSAFE_PLACES.iter().any(|place| path.starts_with(place));
    listed || path.iter().any(|part| part == "tests")
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `line` has `word` without a letter, digit or underscore on either side.
fn has_word(line: &str, word: &str) -> bool {
    let (first, last) = (word.chars().next().is_some_and(is_name), word.chars().last().is_some_and(is_name));
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(is_name);
        let after = line[at + word.len()..].chars().next().is_some_and(is_name);
        (!first || !before) && (!last || !after)
    })
}

/// Whether `line` names something under the absolute path `prefix` (`testing/work/` is not under `/work/`).
fn has_path(line: &str, prefix: &str) -> bool {
    line.match_indices(prefix).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + prefix.len()..].chars().next();
        !before.is_some_and(|c| is_name(c) || "./-~}$*".contains(c)) && after.is_some_and(is_name)
    })
}

/// Targets of a page's links and images with their line numbers; code, in blocks and in line, has none.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
        let mut rest = prose.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else { break };
            found.push((number + 1, target.to_owned()));
            rest = after;
        }
    }
    found
}

/// What is wrong with a link on page `from`. Addresses elsewhere are not visited: a test asks nobody outside.
fn broken(root: &Path, from: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let page = match path {
        "" => root.join(from),
        _ => root.join(from.parent().unwrap_or(Path::new(""))).join(path),
    };
    if !page.exists() {
        return Some(format!("the link to `{target}` leads nowhere"));
    }
    if anchor.is_empty() || page.extension().is_none_or(|e| e != "md") {
        return None;
    }
    let text = fs::read_to_string(&page).ok()?;
    let known: BTreeSet<String> = headings(&text).collect();
    (!known.contains(anchor)).then(|| format!("`{path}` has no heading `#{anchor}`"))
}

/// The anchors that a page's headings get where pages are shown.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let titles =
        text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    titles.map(|title| {
        let kept = title.to_lowercase();
        kept.chars()
            .filter(|&c| is_name(c) || c == ' ' || c == '-')
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}
