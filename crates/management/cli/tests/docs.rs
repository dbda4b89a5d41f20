//! What the pages tell a reader to type is what the program takes.
//!
//! Method: each `forebay …` in blocks of commands and in code within a line, of README.md and of all pages below `docs/`, is parsed by the program's own definition
//! of its commands; nothing is run. Words in capitals (`NAME`, `POOL/N`) are values, `…` is anything, and what is in brackets may be there. Code within a line that
//! names a command need not have the command's arguments, and may leave out `forebay`.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

static TREE: LazyLock<clap::Command> = LazyLock::new(forebay_cli::command);

/// Blocks of these kinds have commands in each line; in `console`, behind prompts only.
const SCRIPTS: &[&str] = &["", "sh", "bash"];
/// What runs the command that follows.
const BEFORE: &[&str] = &["ssh", "sudo", "podman", "if", "!", "while", "watch", "flock", "time"];

#[test]
fn every_command_of_the_pages_is_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut pages = vec![root.join("README.md")];
    pages_below(&root.join("docs"), &mut pages);
    // It has usage lines, and is compared with the program by a test of its own.
    pages.retain(|page| !page.ends_with("docs/reference/cli.md"));
    let (mut mistakes, mut count) = (Vec::new(), 0);
    for page in pages {
        for (line, words, is_inline) in commands_of(&fs::read_to_string(&page).unwrap()) {
            count += 1;
            let place = page.strip_prefix(&root).unwrap().display();
            mistakes.extend(mistake(&words, is_inline).map(|why| format!("{place}:{line}: {why}")));
        }
    }
    assert!(count > 200, "only {count} commands found");
    assert!(mistakes.is_empty(), "{} wrong commands:\n{}", mistakes.len(), mistakes.join("\n"));
}

fn pages_below(directory: &Path, pages: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            pages_below(&path, pages);
        } else if path.extension().is_some_and(|kind| kind == "md") {
            pages.push(path);
        }
    }
}

/// What is wrong with a command line.
fn mistake(words: &[String], is_inline: bool) -> Option<String> {
    let is_open = is_inline || words.iter().any(|word| word == "…");
    let given = words.iter().filter(|word| !matches!(word.as_str(), "…" | "..." | "$@"));
    let given = given.map(|word| value(word)).collect::<Vec<_>>();
    let error = TREE.clone().try_get_matches_from(&given).err()?;
    let given = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.as_str(),
        _ => "",
    };
    let (is_nothing, is_placeholder) = (given.is_empty(), given.contains('…') || is_in_capitals(given));
    let is_right = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => is_open,
        // An option at the end is only named.
        ErrorKind::InvalidValue if is_nothing => is_inline,
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => is_placeholder,
        _ => false,
    };
    let text = error.to_string();
    (!is_right).then(|| format!("`{}`: {}", words.join(" "), text.lines().next().unwrap_or_default()))
}

/// `DISK…` and `[DISK]` as one of them.
fn value(word: &str) -> &str {
    let inside = word.strip_prefix('[').map_or(word, |rest| rest.trim_end_matches(']'));
    let one = inside.trim_end_matches('…');
    if is_in_capitals(one) { one } else { inside }
}

fn is_in_capitals(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase()) && !word.contains(|c: char| c.is_ascii_lowercase())
}

/// The commands of `forebay` on a page: line, words, and whether they stand within a line.
fn commands_of(page: &str) -> Vec<(usize, Vec<String>, bool)> {
    let mut found = Vec::new();
    let mut add = |line: usize, text: &str, is_inline: bool| {
        let ours = commands(text).into_iter().filter_map(|words| ours(&words, is_inline));
        found.extend(ours.map(|words| (line, words, is_inline)));
    };
    let mut block: Option<&str> = None;
    // A paragraph with its first line, and a command that goes on in the next line.
    let (mut text, mut begin, mut half) = (String::new(), 1, String::new());
    for (line, number) in page.lines().chain([""]).zip(1..) {
        let typed = line.trim();
        let mark = typed.strip_prefix("```");
        if block.is_none() && (mark.is_some() || typed.is_empty() || typed.starts_with('|')) {
            for code in std::mem::take(&mut text).split('`').skip(1).step_by(2).flat_map(alternatives) {
                add(begin, &code, true);
            }
        }
        match (block, mark) {
            (None, Some(kind)) => block = Some(kind.split(' ').next().unwrap_or_default()),
            (Some(_), Some(_)) => block = None,
            (None, None) => {
                begin = if text.trim().is_empty() { number } else { begin };
                text = format!("{text} {typed}");
            }
            (Some(kind), None) => {
                let prompted = ["$ ", "# "].iter().find_map(|prompt| typed.strip_prefix(prompt));
                half += match kind {
                    _ if !half.is_empty() => typed,
                    "console" => prompted.unwrap_or_default(),
                    kind if SCRIPTS.contains(&kind) => typed,
                    _ => "",
                };
                if let Some(whole) = half.strip_suffix('\\') {
                    half = format!("{whole} ");
                } else {
                    add(number, &std::mem::take(&mut half), false);
                }
            }
        }
    }
    found
}

/// `a b|c d` is `a b d` and `a c d`.
fn alternatives(code: &str) -> Vec<String> {
    let code = &code.replace("\\|", "|");
    let word =
        code.split(' ').find(|word| word.len() > 1 && word.contains('|') && !word.contains(['\'', '"']));
    let Some(word) = word else { return vec![code.to_owned()] };
    word.split('|').flat_map(|one| alternatives(&code.replacen(word, one, 1))).collect()
}

/// From `forebay` on, if that is what the words run.
fn ours(words: &[String], is_inline: bool) -> Option<Vec<String>> {
    let is_setting = |word: &&String| word.split_once('=').is_some_and(|(name, _)| is_in_capitals(name));
    let words = &words[words.iter().take_while(is_setting).count()..];
    let is_command = |name: &String| TREE.find_subcommand(name).is_some();
    let first = words.first()?;
    if is_inline && is_command(first) {
        // A noun with a verb; one alone may be any word.
        let noun = TREE.find_subcommand(first)?;
        let verb = words.get(1).is_some_and(|verb| noun.find_subcommand(verb).is_some());
        return verb.then(|| [&["forebay".to_owned()], words].concat());
    }
    let runs = |at: &usize| {
        words[*at] == "forebay"
            && words
                .get(at + 1)
                .is_some_and(|next| is_command(next) || ["--json", "--data"].contains(&next.as_str()))
    };
    let at = match first.as_str() {
        "forebay" => 0,
        runner if BEFORE.contains(&runner) => (1..words.len()).find(runs)?,
        _ => return None,
    };
    (words.len() > at + 1).then(|| words[at..].to_vec())
}

/// What a shell makes of a line: commands, those within `$(…)` and `<(…)` too, as words without redirections.
fn commands(line: &str) -> Vec<Vec<String>> {
    let chars: Vec<char> = line.chars().collect();
    let (mut found, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let (mut quote, mut is_target, mut at) = (None, false, 0);
    let end = |words: &mut Vec<String>, word: &mut Option<String>, is_target: &mut bool| {
        if let Some(word) = word.take()
            && !std::mem::take(is_target)
        {
            words.push(word);
        }
    };
    while let Some(&c) = chars.get(at) {
        let next = chars.get(at + 1);
        at += 1;
        match (quote, c) {
            (Some('\''), _) if c != '\'' => word.get_or_insert_default().push(c),
            (_, '$' | '<') if next == Some(&'(') && (c == '$' || quote.is_none()) => {
                let mut depth = 0;
                let length = chars[at..].iter().take_while(|c| {
                    depth += i32::from(**c == '(') - i32::from(**c == ')');
                    depth > 0
                });
                let inside: String = length.skip(1).collect();
                at += inside.chars().count() + 2;
                found.extend(commands(&inside));
                word.get_or_insert_default().push('x');
            }
            (Some(mark), _) if c == mark => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => end(&mut words, &mut word, &mut is_target),
            (None, '|' | '&' | ';' | '(' | ')') => {
                end(&mut words, &mut word, &mut is_target);
                found.push(std::mem::take(&mut words));
            }
            (None, '<' | '>') => {
                word = word.filter(|word| !word.chars().all(|c| c.is_ascii_digit()));
                end(&mut words, &mut word, &mut is_target);
                at += chars[at..].iter().take_while(|c| "<>& ".contains(**c)).count();
                is_target = true;
            }
            (None, '#') if word.is_none() => break,
            (None, _) => word.get_or_insert_default().push(c),
        }
    }
    end(&mut words, &mut word, &mut is_target);
    found.push(words);
    found
}

#[test]
fn commands_are_found_where_pages_have_them() {
    let page = "# forebay pool x\n\nSee `forebay pool list`, `pool\nscrub tank`, `pool` and `forebay`.\n\n```console\n$ cd a; forebay pool status a >b 2>&1 && ssh h forebay pool list | cat &\n\
        forebay output\n# forebay volume map a \\\n    --host b\n$ cmp a <(forebay stat off); systemctl edit forebay\n```\n\n   ```sh\n   x=\"$(ssh -n h forebay --json \
        pool list | jq '.a | (b)')\" # forebay x\n   ```\n\n| `channel mail|snmp a` | `apt install forebay` |\n\n```text\nforebay nothing\n```\n";
    let found: Vec<(usize, String, bool)> =
        commands_of(page).into_iter().map(|(line, words, inline)| (line, words.join(" "), inline)).collect();
    let expected = [
        (3, "forebay pool list", true),
        (3, "forebay pool scrub tank", true),
        (7, "forebay pool status a", false),
        (7, "forebay pool list", false),
        (10, "forebay volume map a --host b", false),
        (11, "forebay stat off", false),
        (15, "forebay --json pool list", false),
        (18, "forebay channel mail a", true),
        (18, "forebay channel snmp a", true),
    ];
    assert_eq!(found, expected.map(|(line, words, inline)| (line, words.to_owned(), inline)));
}

#[test]
fn a_wrong_command_is_caught() {
    let wrong = |line: &str, is_inline| mistake(&commands(line)[0], is_inline).is_some();
    for line in [
        "forebay pool create tank --raid 5",
        "forebay pool make tank",
        "forebay volume create a --size ten",
        "forebay pool list a",
    ] {
        assert!(wrong(line, true) && wrong(line, false), "{line}");
    }
    for line in ["forebay pool", "forebay volume map a", "forebay config backup"] {
        assert!(!wrong(line, true) && wrong(line, false), "{line}");
    }
    for line in [
        "forebay disk replace POOL/N [NEW]",
        "forebay pool create … --cache DISK…",
        "forebay volume map A --host HOST --lun N",
    ] {
        assert!(!wrong(line, false), "{line}");
    }
}
