//! Other people's crates: each must be usable under a licence from the list, which has no GPL, LGPL or AGPL.
//!
//! The same list as `deny.toml`, which cargo-deny reads in `make nightly`; this one needs nothing installed and takes
//! no time, so it runs everywhere. A test compares the two.

use crate::Breach;
use crate::graph::Graph;

pub const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

pub fn check(graph: &Graph) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for package in &graph.packages {
        let verdict = allowed(&package.licence);
        if verdict != Ok(true) {
            breaches.push(Breach {
                rule: "licence",
                place: format!("{} {}", package.name, package.version),
                message: match verdict {
                    Err(why) => format!("licence `{}`: {why}", package.licence),
                    Ok(_) => format!(
                        "licence `{}` is not on the list in testing/tidy/src/licences.rs and deny.toml",
                        package.licence
                    ),
                },
            });
        }
    }
    breaches
}

/// Whether one choice that the SPDX expression leaves is on the list. `/` is what `OR` was called before SPDX.
pub fn allowed(expression: &str) -> Result<bool, &'static str> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    if words.is_empty() {
        return Err("the manifest names none");
    }
    let mut parser = Parser { words: &words };
    let verdict = parser.any()?;
    if parser.words.is_empty() { Ok(verdict) } else { Err("not an SPDX expression") }
}

struct Parser<'a> {
    words: &'a [&'a str],
}

impl Parser<'_> {
    fn accept(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }
    fn any(&mut self) -> Result<bool, &'static str> {
        let mut verdict = self.all()?;
        while self.accept("OR") {
            verdict |= self.all()?;
        }
        Ok(verdict)
    }
    fn all(&mut self) -> Result<bool, &'static str> {
        let mut verdict = self.one()?;
        while self.accept("AND") {
            verdict &= self.one()?;
        }
        Ok(verdict)
    }
    fn one(&mut self) -> Result<bool, &'static str> {
        if self.accept("(") {
            let verdict = self.any()?;
            return if self.accept(")") { Ok(verdict) } else { Err("an open parenthesis") };
        }
        let (name, rest) = self.words.split_first().ok_or("ends where a licence is expected")?;
        self.words = rest;
        if self.accept("WITH") {
            let (exception, rest) = self.words.split_first().ok_or("ends where an exception is expected")?;
            self.words = rest;
            return Ok(ALLOWED.contains(&format!("{name} WITH {exception}").as_str()));
        }
        Ok(ALLOWED.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn expressions_are_judged_by_the_choice_they_leave() {
        for (expression, verdict) in [
            ("MIT", Ok(true)),
            ("MIT/Apache-2.0", Ok(true)),
            ("GPL-3.0-only", Ok(false)),
            ("GPL-2.0-or-later OR MIT", Ok(true)),
            ("MIT AND LGPL-2.1-only", Ok(false)),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", Ok(true)),
            ("(MIT OR GPL-3.0) AND AGPL-3.0", Ok(false)),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", Ok(true)),
            ("GPL-2.0 WITH Classpath-exception-2.0", Ok(false)),
        ] {
            assert_eq!(allowed(expression), verdict, "{expression}");
        }
        assert!(allowed("").is_err());
        assert!(allowed("(MIT").is_err());
        assert!(allowed("MIT MIT").is_err());
    }

    /// Two lists of the same thing drift apart unless something compares them.
    #[test]
    fn the_list_is_the_one_in_deny_toml() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deny.toml");
        let text = std::fs::read_to_string(path).expect("deny.toml is in the workspace");
        let list = text.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']'));
        let (list, _) = list.expect("deny.toml has a list `allow`");
        let listed: Vec<&str> = list
            .split(',')
            .map(|item| item.trim().trim_matches('"'))
            .filter(|item| !item.is_empty())
            .collect();
        assert_eq!(listed, super::ALLOWED);
    }
}
