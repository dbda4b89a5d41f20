//! What a volume's blocks are to be compressed with.

use std::fmt;
use std::str::FromStr;

/// How new blocks of a volume are compressed. Those that are stored stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    Off,
    #[default]
    Lz4,
    Lzjb,
    /// Level 1 to 9.
    Gzip(u8),
    /// Level 1 to 19.
    Zstd(u8),
}

/// Levels that are meant when none is said.
const GZIP: u8 = 6;
const ZSTD: u8 = 3;
/// The codes of levels are added to these.
const GZIP_CODE: u8 = 16;
const ZSTD_CODE: u8 = 32;

impl Compression {
    /// Its number in a volume's record. 0 is off, as in records from before there was any.
    pub fn code(self) -> u8 {
        match self {
            Compression::Off => 0,
            Compression::Lz4 => 1,
            Compression::Lzjb => 2,
            Compression::Gzip(level) => GZIP_CODE + level,
            Compression::Zstd(level) => ZSTD_CODE + level,
        }
    }

    /// Nothing for a number that none has.
    pub fn from_code(code: u8) -> Option<Compression> {
        match code {
            0 => Some(Compression::Off),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Lzjb),
            17..=25 => Some(Compression::Gzip(code - GZIP_CODE)),
            33..=51 => Some(Compression::Zstd(code - ZSTD_CODE)),
            _ => None,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::Off => write!(f, "off"),
            Compression::Lz4 => write!(f, "lz4"),
            Compression::Lzjb => write!(f, "lzjb"),
            Compression::Gzip(level) => write!(f, "gzip-{level}"),
            Compression::Zstd(level) => write!(f, "zstd-{level}"),
        }
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Compression, String> {
        let level = |digits: &str, most: u8| digits.parse().ok().filter(|level| (1..=most).contains(level));
        let found = match (text, text.split_once('-')) {
            ("off", _) => Some(Compression::Off),
            ("lz4", _) => Some(Compression::Lz4),
            ("lzjb", _) => Some(Compression::Lzjb),
            ("gzip", _) => Some(Compression::Gzip(GZIP)),
            ("zstd", _) => Some(Compression::Zstd(ZSTD)),
            (_, Some(("gzip", digits))) => level(digits, 9).map(Compression::Gzip),
            (_, Some(("zstd", digits))) => level(digits, 19).map(Compression::Zstd),
            _ => None,
        };
        found.ok_or_else(|| {
            format!("unknown compression '{text}': use off, lz4, lzjb, gzip-1 to gzip-9 or zstd-1 to zstd-19")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_come_back() {
        let all: Vec<Compression> = (0..=255).filter_map(Compression::from_code).collect();
        assert_eq!(all.len(), 3 + 9 + 19);
        for one in all {
            assert_eq!((one.to_string().parse(), Compression::from_code(one.code())), (Ok(one), Some(one)));
        }
        assert_eq!(("gzip".parse(), "zstd".parse()), (Ok(Compression::Gzip(6)), Ok(Compression::Zstd(3))));
        for wrong in ["", "gzip-0", "gzip-10", "zstd-20", "lz4-1", "zstd-", "gzip--1", "LZ4"] {
            assert!(wrong.parse::<Compression>().is_err(), "{wrong}");
        }
    }
}
