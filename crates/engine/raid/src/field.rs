//! Arithmetic in GF(2⁸), the field of the parity code, and the tables that the kernels multiply with.
//!
//! Bytes are polynomials over GF(2) modulo x⁸ + x⁴ + x³ + x² + 1 (0x11d), in which 2 (the polynomial x) generates every
//! byte but zero: H. P. Anvin, *The mathematics of RAID-6*. [`multiply`] is the definition; everything else is
//! computed from it when the program is built, so that no table can be wrong by itself.

const POLYNOMIAL: u16 = 0x11d;

/// The product, by the definition: shift and add.
pub const fn multiply(a: u8, b: u8) -> u8 {
    let (mut product, mut a, mut b) = (0, a as u16, b);
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a <<= 1;
        if a & 0x100 != 0 {
            a ^= POLYNOMIAL;
        }
        b >>= 1;
    }
    product as u8
}

/// The power: a²⁵⁵ is 1 for every byte but zero.
pub const fn power(a: u8, exponent: u32) -> u8 {
    let (mut power, mut n) = (1, 0);
    while n < exponent % 255 {
        power = multiply(power, a);
        n += 1;
    }
    power
}

/// The inverse of a byte that is not zero.
pub fn inverse(a: u8) -> u8 {
    assert_ne!(a, 0, "zero has no inverse");
    power(a, 254)
}

/// For each factor, its products with the 16 low nibbles, then with the 16 high ones: c·b = low[b & 15] + high[b >> 4].
pub static NIBBLES: [[u8; 32]; 256] = {
    let mut tables = [[0; 32]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            tables[factor][nibble] = multiply(factor as u8, nibble as u8);
            tables[factor][16 + nibble] = multiply(factor as u8, (nibble << 4) as u8);
            nibble += 1;
        }
        factor += 1;
    }
    tables
};

/// For each factor, multiplication by it as a matrix over GF(2), in the form of `GF2P8AFFINEQB`: byte 7 − i says which bits
/// of the operand add up to bit i of the product.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only x86-64 has the instruction"))]
pub static MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut from = 0;
        while from < 8 {
            let column = multiply(factor as u8, 1 << from);
            let mut to = 0;
            while to < 8 {
                matrices[factor] |= ((column >> to & 1) as u64) << ((7 - to) * 8 + from);
                to += 1;
            }
            from += 1;
        }
        factor += 1;
    }
    matrices
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_generates_the_field_and_the_tables_multiply() {
        let mut seen = std::collections::BTreeSet::new();
        for exponent in 0..255 {
            let a = power(2, exponent);
            assert!(seen.insert(a));
            assert_eq!(multiply(a, inverse(a)), 1);
        }
        assert!(!seen.contains(&0));
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let table = &NIBBLES[usize::from(a)];
                let product = table[usize::from(b & 15)] ^ table[16 + usize::from(b >> 4)];
                assert_eq!(product, multiply(a, b));
                assert_eq!(product, multiply(b, a));
            }
        }
    }
}
