//! Bounded reading below one root, and texts that are safe to show.
//!
//! Everything that comes from a device, a driver or a link name passes through here once: files are read up to a limit, directories are
//! listed up to a limit, and texts lose control characters, invisible and direction-changing characters and excess length
//! ([`clean`]). What is left is plain text. It may still hold `<`, `&`, quotes, `$` or `;`: no shell ever sees it, and code that shows it in a
//! page escapes it there, as with every other text.
//!
//! Absent and unreadable files are `None`: a machine without udev, with an old kernel or in a container is normal.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Characters of one text from a device. The longest real ones are NVMe qualified names, of 223 bytes.
pub(crate) const TEXT_MAX: usize = 256;
/// Bytes of one sysfs attribute: the kernel gives one page at most.
const ATTRIBUTE_MAX: u64 = 4096;
/// Entries of one directory: 4096 disks with eight links each for them and three partitions.
const ENTRIES_MAX: usize = 4096 * 8 * 4;

/// The files of one machine, below a root that is `/` but for tests.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'a> {
    root: &'a Path,
}

impl<'a> Tree<'a> {
    pub fn new(root: &'a Path) -> Tree<'a> {
        Tree { root }
    }

    /// Where a path of the machine is for this process.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The first `max` bytes of a file.
    pub fn bytes(&self, path: &str, max: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.path(path)).ok()?.take(max).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// A sysfs attribute as a cleaned text; nothing when it is absent or empty.
    pub fn text(&self, path: &str) -> Option<String> {
        let text = clean(&self.bytes(path, ATTRIBUTE_MAX)?);
        (!text.is_empty()).then_some(text)
    }

    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Whether an attribute is there and is not zero.
    pub fn flag(&self, path: &str) -> bool {
        self.number(path).is_some_and(|number| number != 0)
    }

    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Names in a directory, in order. Names that no driver gives (not UTF-8, with control characters) are left out.
    pub fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let names = entries.take(ENTRIES_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> =
            names.filter(|name| name.len() <= TEXT_MAX && !name.chars().any(char::is_control)).collect();
        names.sort_unstable();
        names
    }

    /// The last part of what a link points to.
    pub fn target_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        let name = target.file_name()?.to_str()?;
        (name.len() <= TEXT_MAX && !name.chars().any(char::is_control)).then(|| name.to_owned())
    }

    /// The directory that a path leads to once all links are followed, as a path of the machine; nothing when it leads out of the tree.
    pub fn resolve(&self, path: &str) -> Option<String> {
        let root = self.root.canonicalize().ok()?;
        let real = self.path(path).canonicalize().ok()?;
        Some(format!("/{}", real.strip_prefix(root).ok()?.to_str()?))
    }
}

/// A text without what could deceive or break its reader: invalid UTF-8 becomes `\u{fffd}`, control, invisible and direction-changing
/// characters go, runs of spaces become one, and what is beyond 256 characters is cut off.
pub(crate) fn clean(bytes: &[u8]) -> String {
    // A character has four bytes at most, and as many again may be dropped.
    let bytes = &bytes[..bytes.len().min(8 * TEXT_MAX)];
    let text = String::from_utf8_lossy(bytes);
    let mut cleaned = String::new();
    let mut length = 0;
    for word in text.split(|c: char| c.is_whitespace() || c == '\0') {
        let shown: Vec<char> = word.chars().filter(|c| !c.is_control() && !is_invisible(*c)).collect();
        if shown.is_empty() {
            continue;
        }
        if length > 0 && length < TEXT_MAX {
            cleaned.push(' ');
            length += 1;
        }
        let room = TEXT_MAX - length.min(TEXT_MAX);
        cleaned.extend(shown.iter().take(room));
        length += shown.len().min(room);
    }
    cleaned.trim_end().to_owned()
}

/// Zero-width characters, marks of direction, and the byte order mark: a serial number with one looks like another.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Whether a name may be part of a path that people copy into a shell: the characters that udev leaves in links.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c);
    !name.is_empty() && name.len() <= TEXT_MAX && !name.starts_with(['.', '-']) && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_lose_what_deceives_and_keep_the_rest() {
        let cases: [(&[u8], &str); 8] = [
            (b"  ST4000VN008-2DR166   \n", "ST4000VN008-2DR166"),
            (b"ATA     ", "ATA"),
            (b"a\x1b[31mred\x07", "a[31mred"),
            (b"ABC\xff\xfeDEF", "ABC\u{fffd}\u{fffd}DEF"),
            ("S\u{200b}N\u{202e}1".as_bytes(), "SN1"),
            (b"<script>alert(1)</script>; rm -rf $HOME", "<script>alert(1)</script>; rm -rf $HOME"),
            (b"\0\0\0", ""),
            (b"one\ntwo\tthree\0four", "one two three four"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(clean(bytes), expected);
        }
        assert_eq!(clean(&[b'x'; 1 << 20]).len(), TEXT_MAX);
        assert_eq!(clean("é ".repeat(10_000).as_bytes()).chars().count(), TEXT_MAX - 1);
    }

    #[test]
    fn names_that_a_shell_would_read_otherwise_are_not_plain() {
        assert!(is_plain_name("wwn-0x5000c500a1b2c3d4") && is_plain_name("nvme-eui.0025385c21404d5d"));
        for name in ["", "..", "-rf", "a b", "a;b", "$(x)", "a\\x20b", "a/b", "é"] {
            assert!(!is_plain_name(name), "{name}");
        }
    }
}
