//! The contract: what the daemon promises to programs, apart from how it keeps the promise.
//!
//! Three things live here. The *objects* ([`Pool`], [`Volume`], …): `spec` is what was asked for, `status` what
//! is, `conditions` what a person should know; integers are in base units and the unit ends the name. The
//! *operations* ([`Operation`]): method, path, role, input and reply of each call, in one table from which the
//! server builds its routes, the client its requests and [`document`] the OpenAPI description, so that the three
//! cannot disagree. The *problems* ([`Problem`], [`Code`]): every error as RFC 9457 has it, with a stable code.
//!
//! No I/O, and nothing of the engine: a client in another language sees exactly this.

mod document;
mod operation;
mod problem;
mod types;

pub use document::document;
pub use operation::{Method, Operation, Parameter, ReplyBody};
pub use problem::{Code, Problem};
pub use types::*;

/// Percent-encodes one path segment or query value: everything but RFC 3986's unreserved characters. A volume's name
/// holds slashes and is one segment of the path: `demo/web` is written `demo%2Fweb`.
pub fn encode_segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_slashes_is_one_segment() {
        assert_eq!(encode_segment("demo/a b"), "demo%2Fa%20b");
        assert_eq!(encode_segment("A-z_0.9~"), "A-z_0.9~");
    }
}
