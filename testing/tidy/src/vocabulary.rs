//! The terms that no text for people uses: help, errors, events, alerts, descriptions, screens and pages for users.
//!
//! The table of `docs/development/words.md` behind `<!-- table: vocabulary -->` is the only list. In Rust, string literals are looked at, but for those of tests and of what a
//! panic says, and doc comments where they are help or descriptions of the API; in the browser's code, texts in quotes and between tags; in pages, prose.
//! Names of things in code are another matter: nobody outside reads them.

use crate::Breach;
use crate::text::Kind;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/development/words.md";
const TABLE: &str = "<!-- table: vocabulary -->";

/// Where doc comments are texts for people: clap and the OpenAPI document show them.
const SHOWN_COMMENTS: &[&str] = &["crates/management/api/src", "crates/management/cli/src"];
/// What these are given is said when the program ends for a bug of its own.
const PANICS: &[&str] = &[
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "panic",
    "unreachable",
    "expect",
];
/// Pages for users: these and all below the folders, but for the one that is generated from the program.
const SINGLE: &[&str] = &["README.md", "docs/index.md"];
const FOLDERS: &[&str] = &["docs/tutorials", "docs/how-to", "docs/reference", "docs/explanation"];
const GENERATED: &str = "docs/reference/cli.md";

/// A term that is not used, and what to say instead.
struct Term {
    /// In lower case, with one space between words.
    words: String,
    is_prefix: bool,
    instead: String,
}

impl Term {
    fn is_in(&self, text: &str) -> bool {
        text.match_indices(&self.words).any(|(at, found)| {
            let is_letter = |c: char| c.is_alphanumeric() || c == '_';
            let before = text[..at].chars().next_back().is_some_and(is_letter);
            let after = text[at + found.len()..].chars().next().is_some_and(is_letter);
            !before && (self.is_prefix || !after)
        })
    }
}

pub fn check(root: &Path) -> Vec<Breach> {
    let page = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    let terms = terms(&page);
    let mut breaches = Vec::new();
    let mut look = |path: &Path, texts: Vec<String>| {
        for text in texts {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let lower = text.to_lowercase();
            for term in terms.iter().filter(|term| term.is_in(&lower)) {
                let shown: String = text.chars().take(120).collect();
                breaches.push(Breach {
                    rule: "vocabulary",
                    place: path.display().to_string(),
                    message: format!("not `{}` but {}: \"{shown}\"", term.words, term.instead),
                });
            }
        }
    };
    for path in crate::text::files(root, "crates", Kind::Rust) {
        let is_test = path.iter().any(|part| part == "tests" || part == "examples")
            || path.file_stem().is_some_and(|name| name.to_string_lossy().ends_with("tests"));
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        let Ok(tokens) = text.parse::<TokenStream>() else { continue };
        if !is_test {
            let mut texts = Vec::new();
            let with_comments = SHOWN_COMMENTS.iter().any(|place| path.starts_with(place));
            literals(tokens, with_comments, &mut texts);
            look(&path, texts);
        }
    }
    for path in crate::text::files(root, "web/src", Kind::Script) {
        let text = fs::read_to_string(root.join(&path)).unwrap_or_default();
        look(&path, screen_texts(&text));
    }
    let pages = FOLDERS.iter().flat_map(|folder| crate::text::files(root, folder, Kind::Markdown));
    for page in SINGLE.iter().map(PathBuf::from).chain(pages) {
        let text = fs::read_to_string(root.join(&page)).unwrap_or_default();
        if page != Path::new(GENERATED) {
            look(&page, prose(&text));
        }
    }
    breaches
}

fn terms(page: &str) -> Vec<Term> {
    let table = page.split_once(TABLE).map_or("", |(_, rest)| rest).trim_start();
    let rows = table.lines().take_while(|line| line.starts_with('|')).skip(2);
    let cells = rows.filter_map(|row| row.trim_matches('|').split_once('|'));
    cells
        .map(|(not, say)| {
            let not = not.trim().to_lowercase();
            Term {
                words: not.trim_end_matches('*').into(),
                is_prefix: not.ends_with('*'),
                instead: say.trim().into(),
            }
        })
        .collect()
}

/// String literals, and doc comments on request, of code that is no test.
fn literals(tokens: TokenStream, with_comments: bool, found: &mut Vec<String>) {
    let mut last = String::new();
    // Behind `cfg(test)`: what it is on ends with a block or a semicolon.
    let mut is_test = false;
    let mut after_hash = false;
    for token in tokens {
        let was_hash = std::mem::take(&mut after_hash);
        match token {
            TokenTree::Group(group) if was_hash && group.delimiter() == Delimiter::Bracket => {
                match attribute(&group).as_str() {
                    "cfg(test)" => is_test = true,
                    "doc" if !with_comments => {}
                    _ => literals(group.stream(), with_comments, found),
                }
            }
            TokenTree::Group(group) => {
                let ends_test = is_test && group.delimiter() == Delimiter::Brace;
                if !is_test && !PANICS.contains(&&*last) {
                    literals(group.stream(), with_comments, found);
                }
                is_test &= !ends_test;
                last.clear();
            }
            TokenTree::Literal(literal) if !is_test => found.extend(text_of(&literal.to_string())),
            TokenTree::Literal(_) => {}
            TokenTree::Ident(ident) => last = ident.to_string(),
            TokenTree::Punct(mark) => match mark.as_char() {
                '#' => after_hash = true,
                '!' => after_hash = was_hash,
                ';' => {
                    is_test = false;
                    last.clear();
                }
                _ => last.clear(),
            },
        }
    }
}

/// `cfg(test)`, or an attribute's name.
fn attribute(group: &Group) -> String {
    let text = group.stream().to_string().replace(' ', "");
    if text == "cfg(test)" { text } else { text.split(['(', '=']).next().unwrap_or_default().into() }
}

/// What a string literal says; nothing for other literals.
fn text_of(literal: &str) -> Option<String> {
    let raw = literal.strip_prefix('r').map(|raw| raw.trim_matches('#'));
    let text = raw.unwrap_or(literal).strip_prefix('"')?.strip_suffix('"')?;
    let mut parts = text.split("\\\n");
    let first = parts.next()?.to_string();
    let text = parts.fold(first, |text, part| text + part.trim_start());
    Some(text.replace("\\n", "\n").replace("\\\"", "\""))
}

/// What is in quotes and what stands between tags, where it is a text.
fn screen_texts(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in source.lines() {
        // The name of a type, between its arguments' brackets.
        let line = line.replace("Promise<", "<");
        let code = line.trim_start();
        if code.starts_with("//")
            || code.starts_with("/*")
            || code.starts_with('*')
            || code.starts_with("import ")
        {
            continue;
        }
        // One word alone is a text if it begins like one; others are names of things.
        let is_text =
            |text: &&str| text.contains(' ') || text.starts_with(|first: char| first.is_ascii_uppercase());
        let quoted = |mark: char| code.split(mark).skip(1).step_by(2).filter(is_text);
        found.extend(quoted('"').chain(quoted('`')).map(String::from));
        let between = code.split('>').skip(1).filter_map(|rest| rest.split_once('<').map(|(text, _)| text));
        found.extend(between.filter(is_text).map(String::from));
    }
    found
}

/// A page without code.
fn prose(page: &str) -> Vec<String> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || line.trim().is_empty() {
            lines.push(String::new());
            continue;
        }
        let plain = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
        // A term may be on two lines of a paragraph; a row of a table is one by itself.
        match lines.last_mut() {
            Some(paragraph) if !paragraph.is_empty() && !line.starts_with('|') => {
                paragraph.push(' ');
                paragraph.push_str(&plain);
            }
            _ => lines.push(plain),
        }
    }
    lines
}
