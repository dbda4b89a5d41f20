//! Pages keep what they say: a command, an option, an event, a statistic, a metric or a limit that was documented once is on a page below `docs/`.
//!
//! `documented.txt` is the list, in sections; it is written by hand, so that a page that is shortened cannot shorten the list. How an entry is found depends on
//! its section: a command in any text, an option in a section of a page that has its command, an event or metric as code, a statistic as `layer.noun` or in a
//! unit that has both as code. A limit is some words in one unit: a row (with its table's head), an item, a paragraph, a line of code or of the API's reference.

use crate::Breach;
use crate::text::Kind;
use std::fs;
use std::path::Path;

const LIST: &str = "testing/tidy/documented.txt";
const API: &str = "docs/reference/openapi.json";
/// Words, each with what it counts as.
const SAME: &str = "second s seconds s minute min minutes min hour h hours h day d days d one 1 two 2 three 3 four 4 five 5 six 6 \
    eight 8 ten 10 fifteen 15 twenty 20 thirty 30 ninety 90 hundred 100";

pub fn check(root: &Path) -> Vec<Breach> {
    let list = fs::read_to_string(root.join(LIST)).unwrap_or_default();
    let mut pages = Pages::default();
    for page in crate::text::files(root, "docs", Kind::Markdown) {
        pages.add(&fs::read_to_string(root.join(page)).unwrap_or_default());
    }
    // What it says of a field need not be on another page.
    let api = fs::read_to_string(root.join(API)).unwrap_or_default();
    pages.units.extend(api.lines().map(|line| (String::new(), words(line))));
    let (mut section, mut breaches) = ("", Vec::new());
    for (number, line) in list.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
        } else if !line.is_empty() {
            breaches.extend(pages.missing(section, line).into_iter().map(|what| Breach {
                rule: "documented",
                place: format!("{LIST}:{}", number + 1),
                message: format!("no page says `{what}` ({section}): put it back on its page"),
            }));
        }
    }
    breaches
}

/// The pages, cut up in the ways in which entries are looked for.
#[derive(Default)]
struct Pages {
    /// What stands under one heading.
    sections: Vec<String>,
    /// As they are written, and as words.
    units: Vec<(String, Vec<String>)>,
}

impl Pages {
    fn add(&mut self, page: &str) {
        let (mut is_code, mut head, mut unit) = (false, "", String::new());
        self.sections.push(String::new());
        // A line more ends the last unit.
        for line in page.lines().chain([""]) {
            let text = line.trim();
            let is_fence = text.starts_with("```");
            is_code ^= is_fence;
            let [is_row, is_heading] = ["|", "#"].map(|mark| !is_code && text.starts_with(mark));
            let item = text.trim_start_matches(|c: char| c.is_ascii_digit());
            let is_item = text.starts_with("- ") || item.starts_with(". ");
            if is_code || is_fence || is_row || is_heading || is_item || text.is_empty() {
                let whole = std::mem::take(&mut unit);
                self.units.push((whole.clone(), words(&whole)));
            }
            if is_heading {
                self.sections.push(String::new());
            }
            head = if !is_row || head.is_empty() { if is_row { text } else { "" } } else { head };
            unit = if is_row { format!("{head} {text}") } else { format!("{unit} {text}") };
            *self.sections.last_mut().expect("a page begins with one") += &format!("{line}\n");
        }
    }

    /// What of an entry no page has.
    fn missing(&self, section: &str, entry: &str) -> Vec<String> {
        let is_there = match section {
            "commands" => self.sections.iter().any(|text| has(text, entry)),
            "options" => {
                let (command, options) = entry.split_once(": ").unwrap_or((entry, ""));
                let texts: Vec<&String> = self.sections.iter().filter(|text| has(text, command)).collect();
                let missing = options.split(' ').filter(|name| !texts.iter().any(|text| has(text, name)));
                return missing.map(|option| format!("{command} {option}")).collect();
            }
            "statistics" => {
                let codes: Vec<String> = entry.split('.').map(|name| format!("`{name}`")).collect();
                let has_both = |unit: &str| has(unit, entry) || codes.iter().all(|code| unit.contains(code));
                self.units.iter().any(|(unit, _)| has_both(unit))
            }
            "limits" => {
                let part = |part: &str| part.split('|').map(words).collect::<Vec<_>>();
                let parts: Vec<Vec<Vec<String>>> = entry.split('+').map(part).collect();
                let has_part = |unit: &[_], part: &[Vec<_>]| part.iter().any(|one| is_in(one, unit));
                self.units.iter().any(|(_, unit)| parts.iter().all(|part| has_part(unit, part)))
            }
            _ => self.sections.iter().any(|text| text.contains(&format!("`{entry}`"))),
        };
        if is_there { Vec::new() } else { vec![entry.into()] }
    }
}

/// Whether `text` has `words`, and not only as a part of longer ones.
fn has(text: &str, words: &str) -> bool {
    let goes_on = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
    text.match_indices(words).any(|(at, _)| {
        !goes_on(text[..at].chars().next_back()) && !goes_on(text[at + words.len()..].chars().next())
    })
}

/// Whether the words stand in `unit` one after the other; the last one may go on there, unless it is a number or short.
fn is_in(part: &[String], unit: &[String]) -> bool {
    let Some((last, first)) = part.split_last() else { return false };
    let may_go_on = last.len() > 2 && !is_number(last);
    unit.windows(part.len()).any(|window| {
        let end = &window[first.len()];
        window.starts_with(first) && (end == last || may_go_on && end.starts_with(last.as_str()))
    })
}

fn is_number(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_digit())
}

/// Words in lower case: numbers as digits, also those with gaps between thousands, and one name for each unit of time.
fn words(text: &str) -> Vec<String> {
    let (mut found, mut word, mut gap) = (Vec::<String>::new(), String::new(), String::new());
    for c in text.to_lowercase().chars().chain([' ']) {
        if c.is_alphanumeric() || c == '_' || (c == '.' && word.ends_with(|c: char| c.is_ascii_digit())) {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            let new = word.trim_end_matches('.');
            let is_rest = matches!(gap.as_str(), " " | "," | "\u{202f}") && new.len() == 3 && is_number(new);
            let mut same = SAME.split(' ').step_by(2).zip(SAME.split(' ').skip(1).step_by(2));
            match found.last_mut().filter(|last| is_rest && is_number(last)) {
                Some(number) => *number += new,
                None => found.push(same.find(|(name, _)| *name == new).map_or(new, |(_, same)| same).into()),
            }
            (word, gap) = (String::new(), String::new());
        }
        if c == '%' {
            found.push("%".into());
        }
        gap.push(c);
    }
    found
}
