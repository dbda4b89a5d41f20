//! What a pool uses beyond the format itself: features that came with later versions, by name, in its label. So an older version can say what it lacks.
//!
//! A feature becomes part of a pool with its first use or by an upgrade, never by an import. This version has none: all that it does is in format 2.
//!
//! ```text
//! feature of 64 bytes: 0 compatibility 1 (0 compatible, 1 read-only compatible, 2 incompatible)   1 bytes of the name 1   2 name 62
//! ```

use crate::label::LabelError;
use forebay_base::codec::{Reader, Writer};

/// Features of one pool, at most.
pub const FEATURES_MAX: usize = 64;
const NAME_BYTES: usize = 62;

/// What a version that does not know a feature may do with the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compatibility {
    /// Everything.
    Compatible,
    /// Read it.
    ReadOnly,
    /// Nothing.
    Incompatible,
}

/// A feature that a pool uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feature {
    compatibility: Compatibility,
    name: [u8; NAME_BYTES],
}

impl Feature {
    /// Panics when the name is longer than 62 bytes.
    pub fn new(compatibility: Compatibility, name: &str) -> Feature {
        let mut bytes = [0; NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Feature { compatibility, name: bytes }
    }

    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.name).trim_end_matches('\0').to_string()
    }

    /// Whether this version may read a pool that uses it.
    pub fn may_be_read(&self) -> bool {
        self.compatibility != Compatibility::Incompatible
    }

    /// Whether this version may write to one.
    pub fn may_be_written(&self) -> bool {
        self.compatibility == Compatibility::Compatible
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        let bytes = self.name.iter().take_while(|byte| **byte != 0).count();
        w.u8(self.compatibility as u8).u8(bytes as u8).bytes(&self.name);
    }

    /// Nothing when it is impossible.
    pub(crate) fn decode(r: &mut Reader) -> Result<Option<Feature>, LabelError> {
        let (compatibility, bytes, name) = (r.u8()?, usize::from(r.u8()?), r.bytes(NAME_BYTES)?);
        let compatibility = match compatibility {
            0 => Compatibility::Compatible,
            1 => Compatibility::ReadOnly,
            _ => Compatibility::Incompatible,
        };
        let is_name = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
        let is_possible = (1..=NAME_BYTES).contains(&bytes)
            && name[..bytes].iter().all(is_name)
            && name[bytes..].iter().all(|byte| *byte == 0);
        let name = name.try_into().expect("as many bytes as asked for");
        Ok(is_possible.then_some(Feature { compatibility, name }))
    }
}
