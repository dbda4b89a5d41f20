//! `layer.noun[dim][dim=value][dim!=value]`: a query, checked against the catalogue.
//!
//! Several values of one dimension with `=` mean any of them; with `!=`, none of them. What [`Expression`] displays parses to the same.

use crate::catalogue::{Dimension, Kind, Layer, Noun, Statistic, find};
use std::fmt;

/// Longer than any real query, and short enough to show in an error.
pub const CHARS_MAX: usize = 1000;
/// As many brackets as there are dimensions of a layer, and some values more.
pub const BRACKETS_MAX: usize = 8;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expression {
    pub statistic: &'static Statistic,
    pub parts: Vec<Part>,
}

/// One bracket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// A line for each value.
    By(Dimension),
    /// A heat map by this spread of the layer.
    Heat(Noun),
    Is(Dimension, String),
    IsNot(Dimension, String),
}

/// What is wrong with an expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpressionError {
    /// At which character, from 0.
    pub at: usize,
    pub what: String,
    /// What there is instead.
    pub instead: String,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at character {})", self.what, self.at + 1)
    }
}

impl std::error::Error for ExpressionError {}

impl Expression {
    pub fn parse(text: &str) -> Result<Expression, ExpressionError> {
        let chars: Vec<char> = text.chars().take(CHARS_MAX + 1).collect();
        if chars.len() > CHARS_MAX {
            let what = format!("an expression has at most {CHARS_MAX} characters");
            return Err(ExpressionError { at: CHARS_MAX, what, instead: "Use a shorter expression.".into() });
        }
        let mut parser = Parser { chars: &chars, at: 0 };
        let statistic = parser.statistic()?;
        let mut parts = Vec::new();
        while parser.at < chars.len() {
            let at = parser.at;
            if parts.len() == BRACKETS_MAX {
                let what = format!("there are more than {BRACKETS_MAX} brackets");
                return Err(parser.error(at, what, "Leave some out."));
            }
            let part = parser.bracket(statistic)?;
            check(statistic, &parts, &part)
                .map_err(|(what, instead)| parser.error(at, what.into(), instead))?;
            parts.push(part);
        }
        Ok(Expression { statistic, parts })
    }

    /// Dimensions that make lines, in the order of brackets.
    pub fn by(&self) -> impl Iterator<Item = Dimension> {
        self.parts.iter().filter_map(|part| match part {
            Part::By(dimension) => Some(*dimension),
            _ => None,
        })
    }

    /// The spread by which a heat map is wanted.
    pub fn heat(&self) -> Option<&'static Statistic> {
        self.parts.iter().find_map(|part| match part {
            Part::Heat(noun) => find(self.statistic.layer, *noun),
            _ => None,
        })
    }

    /// Whether a row with this value of a dimension is wanted. `None`: it has none.
    pub fn admits(&self, dimension: Dimension, value: &str) -> bool {
        let (mut any_of, mut found) = (false, false);
        for part in &self.parts {
            match part {
                Part::IsNot(of, not) if *of == dimension && not == value => return false,
                Part::Is(of, is) if *of == dimension => (any_of, found) = (true, found || is == value),
                _ => {}
            }
        }
        !any_of || found
    }

    /// Dimensions that rows are chosen by, each once.
    pub fn filtered(&self) -> Vec<Dimension> {
        let mut all: Vec<Dimension> = Vec::new();
        for part in &self.parts {
            if let Part::Is(dimension, _) | Part::IsNot(dimension, _) = part
                && !all.contains(dimension)
            {
                all.push(*dimension);
            }
        }
        all
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.statistic)?;
        for part in &self.parts {
            match part {
                Part::By(dimension) => write!(f, "[{dimension}]")?,
                Part::Heat(noun) => write!(f, "[{noun}]")?,
                Part::Is(dimension, value) => write!(f, "[{dimension}={}]", Value(value))?,
                Part::IsNot(dimension, value) => write!(f, "[{dimension}!={}]", Value(value))?,
            }
        }
        Ok(())
    }
}

/// A value as it stands in a bracket.
struct Value<'a>(&'a str);

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "._:/@-".contains(c)
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() && self.0.chars().all(is_plain) {
            return f.write_str(self.0);
        }
        write!(f, "\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

/// Whether a part may stand behind others; otherwise what is wrong, and what to do.
fn check(statistic: &Statistic, parts: &[Part], part: &Part) -> Result<(), (&'static str, &'static str)> {
    let has_heat = parts.iter().any(|part| matches!(part, Part::Heat(_)));
    let has_lines = parts.iter().any(|part| matches!(part, Part::By(_)));
    match part {
        Part::Heat(_) if has_heat => Err(("a second heat map", "Leave one of the two brackets out.")),
        Part::By(_) if parts.contains(part) => {
            Err(("the same dimension twice", "Leave one of the two brackets out."))
        }
        Part::Heat(_) if has_lines => {
            Err(("a heat map with lines", "Give the other bracket a value, or leave it out."))
        }
        Part::By(_) if has_heat => {
            Err(("lines in a heat map", "Give this bracket a value, or leave it out."))
        }
        Part::Heat(_) if statistic.kind != Kind::Counter => {
            Err(("a heat map of a statistic that is not counted", "Use `ops` with this bracket."))
        }
        _ => Ok(()),
    }
}

struct Parser<'a> {
    chars: &'a [char],
    at: usize,
}

impl Parser<'_> {
    fn error(&self, at: usize, what: String, instead: impl Into<String>) -> ExpressionError {
        ExpressionError { at, what, instead: instead.into() }
    }

    fn word(&mut self) -> String {
        let rest = &self.chars[self.at..];
        let word: String = rest.iter().take_while(|c| c.is_ascii_alphanumeric() || **c == '_').collect();
        // ASCII: as many characters as bytes.
        self.at += word.len();
        word
    }

    fn accept(&mut self, c: char) -> bool {
        let found = self.chars.get(self.at) == Some(&c);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, c: char, instead: &str) -> Result<(), ExpressionError> {
        if self.accept(c) {
            return Ok(());
        }
        let what = match self.chars.get(self.at) {
            Some(found) => format!("`{}` where `{c}` is expected", found.escape_debug()),
            None => format!("it ends where `{c}` is expected"),
        };
        Err(self.error(self.at, what, instead))
    }

    fn statistic(&mut self) -> Result<&'static Statistic, ExpressionError> {
        let name = self.word();
        let layers = || format!("There are: {}.", list(Layer::ALL.iter().map(|layer| layer.name())));
        let layer = Layer::find(&name)
            .ok_or_else(|| self.error(0, format!("there is no layer `{name}`"), layers()))?;
        let nouns = format!("{layer} has: {}.", list(layer.statistics().map(|one| one.noun.name())));
        self.expect('.', &nouns)?;
        let at = self.at;
        let name = self.word();
        Noun::find(&name)
            .and_then(|noun| find(layer, noun))
            .ok_or_else(|| self.error(at, format!("{layer} has no `{name}`"), nouns))
    }

    fn bracket(&mut self, statistic: &'static Statistic) -> Result<Part, ExpressionError> {
        let form = "Brackets look like this: [client], [op=read], [volume!=tank/db].";
        self.expect('[', form)?;
        let at = self.at;
        let name = self.word();
        if let Some(spread) = statistic.spreads().find(|spread| spread.noun.name() == name) {
            self.expect(']', "A heat map's bracket has no value: [latency].")?;
            return Ok(Part::Heat(spread.noun));
        }
        let dimension = Dimension::find(&name).filter(|one| statistic.dimensions.contains(one));
        let dimension = dimension.ok_or_else(|| {
            let dimensions = statistic.dimensions.iter().map(|dimension| dimension.name());
            let all: Vec<&str> =
                dimensions.chain(statistic.spreads().map(|spread| spread.noun.name())).collect();
            let instead = match &all[..] {
                [] => format!("{statistic} has no brackets."),
                all => format!("{statistic} has: {}.", list(all.iter().copied())),
            };
            self.error(at, format!("{statistic} does not break down by `{name}`"), instead)
        })?;
        if self.accept(']') {
            return Ok(Part::By(dimension));
        }
        let is_not = self.accept('!');
        self.expect('=', form)?;
        let value = self.value()?;
        self.expect(
            ']',
            "A value with other characters than letters, digits and ._:/@- stands in double quotes.",
        )?;
        Ok(if is_not { Part::IsNot(dimension, value) } else { Part::Is(dimension, value) })
    }

    fn value(&mut self) -> Result<String, ExpressionError> {
        let start = self.at;
        if !self.accept('"') {
            let value: String = self.chars[start..].iter().take_while(|c| is_plain(**c)).collect();
            self.at += value.chars().count();
            return match value.is_empty() {
                true => Err(self.error(start, "there is no value".into(), "An empty value is written \"\".")),
                false => Ok(value),
            };
        }
        let mut value = String::new();
        loop {
            let at = self.at;
            self.at += 1;
            match self.chars.get(at) {
                Some('"') => return Ok(value),
                Some('\\') => match self.chars.get(self.at) {
                    Some(c @ ('"' | '\\')) => {
                        value.push(*c);
                        self.at += 1;
                    }
                    _ => {
                        let instead = "Within quotes, \\\" is a quote and \\\\ a backslash.";
                        return Err(self.error(at, "a backslash before something else".into(), instead));
                    }
                },
                Some(c) => value.push(*c),
                None => {
                    self.at = self.chars.len();
                    return Err(self.error(start, "the quotes are not closed".into(), "Close them with \"."));
                }
            }
        }
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::STATISTICS;
    use forebay_base::Random;

    #[test]
    fn what_the_page_shows_is_understood() {
        let parsed = Expression::parse("iscsi.ops[op=read][client]").unwrap();
        assert_eq!(parsed.parts, [Part::Is(Dimension::Op, "read".into()), Part::By(Dimension::Client)]);
        assert_eq!(parsed.statistic, find(Layer::Iscsi, Noun::Ops).unwrap());
        for text in [
            "nbd.ops",
            "iscsi.bytes[client=esx1][volume]",
            "iscsi.latency",
            "iscsi.ops[latency][op=read]",
            "disk.ops[device][op]",
            "volume.time[stage][volume!=tank/db@x:1_2]",
        ] {
            assert_eq!(Expression::parse(text).map(|e| e.to_string()).as_deref(), Ok(text));
        }
        let odd = "nbd.ops[client=\"a \\\"b\\\\]\"]";
        let parsed = Expression::parse(odd).unwrap();
        assert_eq!(parsed.parts, [Part::Is(Dimension::Client, "a \"b\\]".into())]);
        assert_eq!(parsed.to_string(), odd);
    }

    #[test]
    fn errors_say_what_where_and_what_there_is() {
        let too_many = format!("nbd.ops{}", "[op=read]".repeat(BRACKETS_MAX + 1));
        let too_long = format!("nbd.ops[client={}]", "x".repeat(CHARS_MAX));
        for (text, at, what, instead) in [
            ("", 0, "no layer", "nbd, iscsi"),
            ("nfs.ops", 0, "no layer `nfs`", "observer"),
            ("nbd", 3, "it ends where `.`", "ops, bytes, failed, latency"),
            ("nbd.x", 4, "nbd has no `x`", "latency"),
            ("nbd.ops[stage]", 8, "`stage`", "client, volume, project, level, latency, size, offset"),
            ("nbd.ops(op)", 7, "`(`", "[client]"),
            ("nbd.ops[op", 10, "it ends", ""),
            ("nbd.ops[op=]", 11, "no value", "\"\""),
            ("nbd.ops[op=a b]", 12, "` `", "double quotes"),
            ("nbd.ops[op=\"a]", 11, "not closed", ""),
            ("nbd.ops[op=\"\\n\"]", 12, "backslash", ""),
            ("nbd.ops[op!read]", 11, "`r`", ""),
            ("nbd.ops[latency=3]", 15, "`=`", "no value"),
            ("nbd.ops[latency][size]", 16, "second heat map", ""),
            ("nbd.ops[latency][op]", 16, "lines in a heat map", "value"),
            ("nbd.ops[op][latency]", 11, "heat map with lines", ""),
            ("nbd.ops[op][op]", 11, "same dimension twice", ""),
            ("nbd.latency[latency]", 12, "does not break down", ""),
            ("observer.rows[op]", 14, "`op`", "no brackets"),
            (&too_many, 7 + 9 * BRACKETS_MAX, "more than 8", ""),
            (&too_long, CHARS_MAX, "at most 1000", ""),
        ] {
            let error = Expression::parse(text).expect_err(text);
            assert_eq!(error.at, at, "{text}: {error}");
            assert!(error.what.contains(what) && error.instead.contains(instead), "{text}: {error:?}");
        }
    }

    #[test]
    fn values_of_one_dimension_are_alternatives() {
        let parsed = Expression::parse("nbd.ops[client=a][client=b][op!=read][op!=write]").unwrap();
        let admitted = |dimension, value| parsed.admits(dimension, value);
        assert!(admitted(Dimension::Client, "a") && admitted(Dimension::Client, "b"));
        assert!(!admitted(Dimension::Client, "c") && !admitted(Dimension::Op, "read"));
        assert!(!admitted(Dimension::Op, "write") && admitted(Dimension::Op, "flush"));
        assert!(admitted(Dimension::Volume, "x"));
        assert_eq!(parsed.filtered(), [Dimension::Client, Dimension::Op]);
    }

    /// Goal: no input panics, and whatever is understood is displayed as something that means the same. Method: texts that are put together from
    /// pieces that matter to the parser, and from bytes that do not.
    #[test]
    fn random_texts_are_refused_or_come_back_the_same() {
        let pieces = [
            "nbd",
            ".",
            "ops",
            "[",
            "]",
            "client",
            "op",
            "=",
            "!=",
            "\"",
            "\\",
            "read",
            "latency",
            "ä",
            "\u{0}",
            "🦀",
            "[op=read]",
            "nbd.ops[client=",
            "]]",
            "x/y",
            " ",
        ];
        let mut random = Random::new(7);
        let mut understood = 0;
        for _ in 0..40_000 {
            let mut text = String::new();
            if random.below(2) == 0 {
                text.push_str(&STATISTICS[random.below(STATISTICS.len() as u64) as usize].to_string());
            }
            for _ in 0..random.below(12) {
                match random.below(8) {
                    0 => text.push(char::from(random.below(256) as u8)),
                    _ => text.push_str(pieces[random.below(pieces.len() as u64) as usize]),
                }
            }
            if let Ok(parsed) = Expression::parse(&text) {
                understood += 1;
                assert_eq!(Expression::parse(&parsed.to_string()).as_ref(), Ok(&parsed), "{text}");
            }
        }
        assert!(understood > 1000, "only {understood} were understood: the test asks too little");
    }
}
