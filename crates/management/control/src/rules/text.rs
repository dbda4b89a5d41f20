//! Texts that people choose freely: names of worksheets, reports and enclosures, titles.
//!
//! Any writing is taken, and nothing that is not seen or that changes how what stands beside it is shown: with a right-to-left override, a name reads
//! as another in a list, a log or a question whether it shall be deleted.

use super::invalid;
use forebay_api::Problem;
use std::ops::RangeInclusive;

/// What Unicode 16 has in its category Cf (format), and the separators of lines and paragraphs (Zl, Zp).
const UNSEEN: [RangeInclusive<char>; 21] = [
    '\u{ad}'..='\u{ad}',
    '\u{600}'..='\u{605}',
    '\u{61c}'..='\u{61c}',
    '\u{6dd}'..='\u{6dd}',
    '\u{70f}'..='\u{70f}',
    '\u{890}'..='\u{891}',
    '\u{8e2}'..='\u{8e2}',
    '\u{180e}'..='\u{180e}',
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{2064}',
    '\u{2066}'..='\u{206f}',
    '\u{feff}'..='\u{feff}',
    '\u{fff9}'..='\u{fffb}',
    '\u{110bd}'..='\u{110bd}',
    '\u{110cd}'..='\u{110cd}',
    '\u{13430}'..='\u{1343f}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0001}'..='\u{e0001}',
    '\u{e0020}'..='\u{e007f}',
];

/// Whether a character is shown as itself.
pub fn is_seen(c: char) -> bool {
    !c.is_control() && !UNSEEN.iter().any(|range| range.contains(&c))
}

/// Refuses a text with characters that cannot be seen.
pub fn check(field: &str, text: &str) -> Result<(), Problem> {
    match text.chars().find(|c| !is_seen(*c)) {
        None => Ok(()),
        Some(c) => {
            let detail =
                format!("the character U+{:04X} is invisible or changes how others are shown", c as u32);
            Err(invalid(
                field,
                detail,
                "Remove it. Letters, digits, marks and symbols of any language are allowed.",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_refused_and_any_writing_taken() {
        for text in ["", "The evening it was slow", "Größe – 容量 ✓", "שבת", "قاعدة", "e\u{301}", "💾"]
        {
            check("name", text).unwrap();
        }
        for c in [
            '\0',
            '\n',
            '\u{7f}',
            '\u{85}',
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{200f}',
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            let problem = check("name", &format!("a{c}b")).unwrap_err();
            assert_eq!(problem.field.as_deref(), Some("name"));
            assert!(problem.detail.contains(&format!("U+{:04X}", c as u32)), "{}", problem.detail);
        }
    }
}
