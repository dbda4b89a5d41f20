//! What volumes are filled with, and what clients write.
//!
//! *Zeros* are for volumes without compression: what is stored is as large as anything else, and modelled disks keep zeros without memory. *Records* are the
//! tables of an analyst: fixed columns, names padded with blanks, few different values, numbers that grow. How far they shrink is what comes of it, not what was wanted.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contents {
    #[default]
    Zeros,
    Records,
}

const REGIONS: [&str; 5] = ["NORTH", "SOUTH", "EAST", "WEST", "OVERSEAS"];
const PRODUCTS: [&str; 6] = ["CHAIR", "DESK", "LAMP", "SHELF", "SOFA", "TABLE"];

/// So many bytes of them.
pub fn contents(kind: Contents, bytes: usize) -> Vec<u8> {
    if kind == Contents::Zeros {
        return vec![0; bytes];
    }
    let mut text = String::with_capacity(bytes + 256);
    let mut number = 0usize;
    while text.len() < bytes {
        // A step that repeats only after all combinations have come.
        let mixed = number * 7919 % 1_000_003;
        let (region, product) = (REGIONS[mixed % REGIONS.len()], PRODUCTS[mixed / 7 % PRODUCTS.len()]);
        let (day, amount) = (number / 40 % 365, mixed % 9973);
        text += &format!(
            "{number:010}2014{day:03} {region:<24}{product:<48}{amount:>12}.00{:>12}.00\0\0\0\0\0\0\0\0",
            amount % 100
        );
        number += 1;
    }
    let mut bytes_of = text.into_bytes();
    bytes_of.truncate(bytes);
    bytes_of
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_have_the_size_that_was_asked_for_and_are_always_the_same() {
        for bytes in [0, 1, 4096, 100_000] {
            assert_eq!(contents(Contents::Records, bytes).len(), bytes);
            assert_eq!(contents(Contents::Records, bytes), contents(Contents::Records, bytes));
        }
        assert_eq!(contents(Contents::Zeros, 3), [0; 3]);
    }
}
