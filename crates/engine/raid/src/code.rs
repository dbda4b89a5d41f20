//! The code of a parity line: D data cells and P parity cells, of which any P can be lost.
//!
//! Parity cell j is the sum over the data cells i of (2ʲ)ⁱ · dᵢ in GF(2⁸): the plain exclusive or for j = 0, then factors
//! 2ⁱ and 4ⁱ, the P and Q of H. P. Anvin's *The mathematics of RAID-6* and the R that RAID-Z3 adds. Any square part of the
//! matrix of up to three rows and columns has an inverse for D ≤ 255, because 2 and 4 generate the field: two columns
//! differ in every ratio of rows, three rows make a Vandermonde matrix.
//!
//! A cell's *role* is its place in the line: data cells 0..D, then parity D..D + P. Which slot holds which role is
//! [`crate::lines`]' business.

use crate::field::{inverse, multiply, power};
use crate::kernels::{Kernel, Row};
use crate::subset::Subset;

/// Data cells of a line, at most.
pub const DATA_MAX: usize = 16;
/// Parity cells of a line, at most.
pub const PARITY_MAX: usize = 3;

/// The factors of data in parity, for the widest code: narrower ones use a corner of it.
static FACTORS: [Row; PARITY_MAX] = {
    let mut rows = [[0; DATA_MAX]; PARITY_MAX];
    let mut parity = 0;
    while parity < PARITY_MAX {
        let mut data = 0;
        while data < DATA_MAX {
            rows[parity][data] = power(power(2, parity as u32), data as u32);
            data += 1;
        }
        parity += 1;
    }
    rows
};

/// A code of D data and P parity cells, and the kernel that computes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    data: usize,
    parity: usize,
    kernel: Kernel,
}

/// How to compute some cells of a line from D others.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    kernel: Kernel,
    sources: Subset,
    targets: Subset,
    /// By target, the factors of the sources, both in the order of their roles.
    rows: [Row; PARITY_MAX],
}

impl Code {
    /// # Panics
    /// When `data` is not in 2..=16 or `parity` not in 1..=3.
    pub fn new(data: usize, parity: usize) -> Code {
        Code::with_kernel(data, parity, Kernel::best())
    }

    /// The same with a kernel of one's own choice.
    pub fn with_kernel(data: usize, parity: usize, kernel: Kernel) -> Code {
        assert!(
            (2..=DATA_MAX).contains(&data) && (1..=PARITY_MAX).contains(&parity),
            "no code {data}+{parity}"
        );
        Code { data, parity, kernel }
    }

    pub fn data(&self) -> usize {
        self.data
    }

    pub fn parity(&self) -> usize {
        self.parity
    }

    /// Cells of a line.
    pub fn width(&self) -> usize {
        self.data + self.parity
    }

    /// The roles of parity.
    pub fn parity_roles(&self) -> Subset {
        Subset::first(self.width()).without(Subset::first(self.data))
    }

    /// Computes every parity cell from all data cells, in the order of their roles; all of one length.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert!(data.len() == self.data && parity.len() == self.parity);
        self.kernel.combine(&FACTORS[..self.parity], data, parity);
    }

    /// Computes by how much every parity cell changes when the data cells `roles` change by `changes` (old plus new).
    pub fn encode_changes(&self, roles: Subset, changes: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert!(changes.len() == roles.len() && parity.len() == self.parity);
        assert!(roles.without(Subset::first(self.data)).is_empty(), "only data changes by itself");
        let mut rows = [[0; DATA_MAX]; PARITY_MAX];
        for (row, factors) in rows.iter_mut().zip(FACTORS) {
            row.iter_mut().zip(roles.iter()).for_each(|(factor, role)| *factor = factors[role]);
        }
        self.kernel.combine(&rows[..self.parity], changes, parity);
    }

    /// How to compute the cells `wanted` from D of those in `have`, data before parity: nothing when there are fewer. What is
    /// wanted must not be among the first D that are there.
    pub fn recipe(&self, have: Subset, wanted: Subset) -> Option<Recipe> {
        if have.len() < self.data {
            return None;
        }
        let sources: Subset = have.iter().take(self.data).collect();
        assert!(wanted.intersection(sources).is_empty(), "what is there need not be computed");
        let all_data = Subset::first(self.data);
        let missing: Vec<usize> = all_data.without(sources).iter().collect();
        let helpers: Vec<usize> = sources.without(all_data).iter().map(|role| role - self.data).collect();
        // Each helper says: the sum over the missing cells, each times its factor, is the helper plus the sum over the
        // data that is there. Solved for the missing cells by the inverse of their factors.
        let inverse = inverted(&helpers, &missing);
        let mut solved = [[0; DATA_MAX]; PARITY_MAX];
        for (row, inverse) in solved.iter_mut().zip(&inverse) {
            for (place, source) in sources.iter().enumerate() {
                row[place] = helpers.iter().zip(inverse).fold(0, |sum, (&helper, &times)| {
                    let own = if source < self.data {
                        FACTORS[helper][source]
                    } else {
                        u8::from(source - self.data == helper)
                    };
                    sum ^ multiply(times, own)
                });
            }
        }
        let mut rows = [[0; DATA_MAX]; PARITY_MAX];
        for (row, target) in rows.iter_mut().zip(wanted.iter()) {
            if let Some(nth) = missing.iter().position(|role| *role == target) {
                *row = solved[nth];
                continue;
            }
            // A parity cell: its data, with what is missing put in as computed.
            let factors = &FACTORS[target - self.data];
            for (place, source) in sources.iter().enumerate() {
                let own = if source < self.data { factors[source] } else { 0 };
                row[place] = missing
                    .iter()
                    .zip(&solved)
                    .fold(own, |sum, (&role, solved)| sum ^ multiply(factors[role], solved[place]));
            }
        }
        Some(Recipe { kernel: self.kernel, sources, targets: wanted, rows })
    }
}

impl Recipe {
    /// The roles to compute from, D of them.
    pub fn sources(&self) -> Subset {
        self.sources
    }

    /// Computes the targets from the sources, both in the order of their roles; all of one length.
    pub fn apply(&self, sources: &[&[u8]], targets: &mut [&mut [u8]]) {
        assert!(sources.len() == self.sources.len() && targets.len() == self.targets.len());
        self.kernel.combine(&self.rows[..targets.len()], sources, targets);
    }
}

/// The inverse of the square of factors with these rows (parities) and columns (data), by Gauss and Jordan.
fn inverted(parities: &[usize], data: &[usize]) -> [[u8; PARITY_MAX]; PARITY_MAX] {
    let n = data.len();
    let mut square = [[0; PARITY_MAX]; PARITY_MAX];
    let mut inverse_square = [[0; PARITY_MAX]; PARITY_MAX];
    for (row, &parity) in parities.iter().enumerate() {
        data.iter().enumerate().for_each(|(column, &role)| square[row][column] = FACTORS[parity][role]);
        inverse_square[row][row] = 1;
    }
    for column in 0..n {
        let pivot =
            (column..n).find(|&row| square[row][column] != 0).expect("every square part has an inverse");
        square.swap(column, pivot);
        inverse_square.swap(column, pivot);
        let scale = inverse(square[column][column]);
        for entry in square[column].iter_mut().chain(&mut inverse_square[column]) {
            *entry = multiply(*entry, scale);
        }
        for row in (0..n).filter(|row| *row != column) {
            let times = square[row][column];
            for entry in 0..n {
                square[row][entry] ^= multiply(times, square[column][entry]);
                inverse_square[row][entry] ^= multiply(times, inverse_square[column][entry]);
            }
        }
    }
    inverse_square
}

/// Adds `other` to `sum`: in this field, the exclusive or.
pub fn add(sum: &mut [u8], other: &[u8]) {
    assert_eq!(sum.len(), other.len());
    sum.iter_mut().zip(other).for_each(|(sum, byte)| *sum ^= byte);
}
