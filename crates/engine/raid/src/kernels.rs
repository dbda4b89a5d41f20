//! The inner loop of parity: sums of multiples of byte strings in GF(2⁸), by whichever instructions the processor has.
//!
//! [`Kernel::combine`] computes up to three outputs from up to sixteen inputs in one pass: each input is loaded once for all
//! outputs, and sums stay in registers. Encoding, reconstruction and the update of parity are all this one
//! operation with different factors. A first output that is the plain exclusive or (P, or a cell restored from P) is
//! not multiplied.
//!
//! A factor is applied to a vector of bytes with two table look-ups by nibble (AVX2, NEON), as in J. S. Plank et al.,
//! *Screaming Fast Galois Field Arithmetic Using Intel SIMD Instructions*, or with one instruction that multiplies by a
//! matrix over GF(2) (GFNI). The scalar kernel is the oracle of the others and does what is left at the end.
//!
//! This is the only `unsafe` module of the engine: vector loads and stores, and calls of functions that need what the
//! processor was asked for.

use crate::code::{DATA_MAX, PARITY_MAX};
use crate::field::NIBBLES;

/// The factors of one output, by input.
pub type Row = [u8; DATA_MAX];

/// A way to compute parity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// GFNI on registers of 512 bits.
    #[cfg(target_arch = "x86_64")]
    Gfni,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Kernel {
    /// Those that this processor has, the fastest last.
    pub fn available() -> impl Iterator<Item = Kernel> {
        let all = [
            (Kernel::Scalar, true),
            #[cfg(target_arch = "x86_64")]
            (Kernel::Avx2, is_x86_feature_detected!("avx2")),
            #[cfg(target_arch = "x86_64")]
            (Kernel::Gfni, is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("gfni")),
            #[cfg(target_arch = "aarch64")]
            (Kernel::Neon, std::arch::is_aarch64_feature_detected!("neon")),
        ];
        all.into_iter().filter(|(_, has)| *has).map(|(kernel, _)| kernel)
    }

    /// The fastest that this processor has.
    pub fn best() -> Kernel {
        Kernel::available().last().expect("the scalar kernel needs nothing")
    }

    pub fn name(self) -> &'static str {
        match self {
            Kernel::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Kernel::Gfni => "GFNI",
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => "NEON",
        }
    }

    /// Sets each of `outs` to the sum of `ins`, each times its factor in the row of the output. All have one length.
    ///
    /// # Panics
    /// Without inputs, with more than 16 inputs or 3 outputs, with different lengths, or on a processor without this kernel.
    pub(crate) fn combine(self, rows: &[Row], ins: &[&[u8]], outs: &mut [&mut [u8]]) {
        assert!((1..=DATA_MAX).contains(&ins.len()) && outs.len() <= PARITY_MAX && rows.len() == outs.len());
        let len = ins[0].len();
        assert!(ins.iter().all(|bytes| bytes.len() == len) && outs.iter().all(|bytes| bytes.len() == len));
        if outs.is_empty() {
            return;
        }
        let done = match self {
            Kernel::Scalar => 0,
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 | Kernel::Gfni => x86::combine(self, rows, ins, outs),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => neon::combine(rows, ins, outs),
        };
        scalar(rows, ins, outs, done);
    }
}

/// Whether an output is the plain exclusive or of the inputs.
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), expect(dead_code))]
fn is_plain(row: &Row, ins: usize) -> bool {
    row[..ins].iter().all(|factor| *factor == 1)
}

/// Calls `$kernel` for the number of outputs, and for whether the first is plain: both are known to the loop.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! specialised {
    ($kernel:ident, $rows:expr, $ins:expr, $outs:expr) => {
        match ($outs.len(), is_plain(&$rows[0], $ins.len())) {
            (1, true) => $kernel::<1, true>($rows, $ins, $outs),
            (1, false) => $kernel::<1, false>($rows, $ins, $outs),
            (2, true) => $kernel::<2, true>($rows, $ins, $outs),
            (2, false) => $kernel::<2, false>($rows, $ins, $outs),
            (_, true) => $kernel::<3, true>($rows, $ins, $outs),
            (_, false) => $kernel::<3, false>($rows, $ins, $outs),
        }
    };
}

/// Byte by byte, from byte `from`.
fn scalar(rows: &[Row], ins: &[&[u8]], outs: &mut [&mut [u8]], from: usize) {
    for (row, out) in rows.iter().zip(outs) {
        out[from..].fill(0);
        for (factor, bytes) in row.iter().zip(ins) {
            let table = &NIBBLES[usize::from(*factor)];
            for (sum, byte) in out[from..].iter_mut().zip(&bytes[from..]) {
                *sum ^= table[usize::from(byte & 15)] ^ table[16 + usize::from(byte >> 4)];
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Kernel, Row, is_plain};
    use crate::code::DATA_MAX;
    use crate::field::{MATRICES, NIBBLES};
    use std::arch::x86_64::*;

    /// Returns how many bytes are done.
    pub fn combine(kernel: Kernel, rows: &[Row], ins: &[&[u8]], outs: &mut [&mut [u8]]) -> usize {
        match kernel {
            Kernel::Gfni => {
                assert!(is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("gfni"));
                // SAFETY: the processor has what the function is compiled for.
                unsafe { specialised!(gfni, rows, ins, outs) }
            }
            _ => {
                assert!(is_x86_feature_detected!("avx2"));
                // SAFETY: as above.
                unsafe { specialised!(avx2, rows, ins, outs) }
            }
        }
    }

    #[target_feature(enable = "avx512f,gfni")]
    fn gfni<const OUTS: usize, const PLAIN: bool>(
        rows: &[Row],
        ins: &[&[u8]],
        outs: &mut [&mut [u8]],
    ) -> usize {
        /// Vectors of each input in one turn: 12 sums and 4 inputs of 32 registers.
        const VECTORS: usize = 4;
        const STEP: usize = VECTORS * 64;
        let mut matrices = [[0; OUTS]; DATA_MAX];
        for (input, matrices) in matrices.iter_mut().enumerate() {
            *matrices = std::array::from_fn(|out| MATRICES[usize::from(rows[out][input])] as i64);
        }
        let mut at = 0;
        while at + STEP <= ins[0].len() {
            let mut sums = [[_mm512_setzero_si512(); VECTORS]; OUTS];
            for (bytes, matrices) in ins.iter().zip(&matrices) {
                let bytes = bytes[at..at + STEP].as_ptr();
                for vector in 0..VECTORS {
                    // SAFETY: 64 bytes from `vector` × 64, within the STEP bytes of the slice.
                    let data = unsafe { _mm512_loadu_si512(bytes.add(vector * 64).cast()) };
                    for out in 0..OUTS {
                        let term = if PLAIN && out == 0 {
                            data
                        } else {
                            _mm512_gf2p8affine_epi64_epi8::<0>(data, _mm512_set1_epi64(matrices[out]))
                        };
                        sums[out][vector] = _mm512_xor_si512(sums[out][vector], term);
                    }
                }
            }
            for (sums, out) in sums.iter().zip(outs.iter_mut()) {
                let out = out[at..at + STEP].as_mut_ptr();
                for (vector, sum) in sums.iter().enumerate() {
                    // SAFETY: as for the load.
                    unsafe { _mm512_storeu_si512(out.add(vector * 64).cast(), *sum) };
                }
            }
            at += STEP;
        }
        at
    }

    #[target_feature(enable = "avx2")]
    fn avx2<const OUTS: usize, const PLAIN: bool>(
        rows: &[Row],
        ins: &[&[u8]],
        outs: &mut [&mut [u8]],
    ) -> usize {
        /// Vectors of each input in one turn: 6 sums, 2 tables and what is made of the input, of 16 registers.
        const VECTORS: usize = 2;
        const STEP: usize = VECTORS * 32;
        let mask = _mm256_set1_epi8(15);
        let mut at = 0;
        while at + STEP <= ins[0].len() {
            let mut sums = [[_mm256_setzero_si256(); VECTORS]; OUTS];
            for (input, bytes) in ins.iter().enumerate() {
                let bytes = bytes[at..at + STEP].as_ptr();
                // SAFETY: 32 bytes from `vector` × 32, within the STEP bytes of the slice.
                let data: [__m256i; VECTORS] = std::array::from_fn(|vector| unsafe {
                    _mm256_loadu_si256(bytes.add(vector * 32).cast())
                });
                for out in 0..OUTS {
                    if PLAIN && out == 0 {
                        for vector in 0..VECTORS {
                            sums[out][vector] = _mm256_xor_si256(sums[out][vector], data[vector]);
                        }
                        continue;
                    }
                    let table = NIBBLES[usize::from(rows[out][input])].as_ptr();
                    // SAFETY: the table has 32 bytes.
                    let (low, high) = unsafe {
                        (
                            _mm256_broadcastsi128_si256(_mm_loadu_si128(table.cast())),
                            _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(16).cast())),
                        )
                    };
                    for vector in 0..VECTORS {
                        let lows = _mm256_and_si256(data[vector], mask);
                        let highs = _mm256_and_si256(_mm256_srli_epi64::<4>(data[vector]), mask);
                        let term = _mm256_xor_si256(
                            _mm256_shuffle_epi8(low, lows),
                            _mm256_shuffle_epi8(high, highs),
                        );
                        sums[out][vector] = _mm256_xor_si256(sums[out][vector], term);
                    }
                }
            }
            for (sums, out) in sums.iter().zip(outs.iter_mut()) {
                let out = out[at..at + STEP].as_mut_ptr();
                for (vector, sum) in sums.iter().enumerate() {
                    // SAFETY: as for the load.
                    unsafe { _mm256_storeu_si256(out.add(vector * 32).cast(), *sum) };
                }
            }
            at += STEP;
        }
        at
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::{Row, is_plain};
    use crate::field::NIBBLES;
    use std::arch::aarch64::*;

    /// Returns how many bytes are done.
    pub fn combine(rows: &[Row], ins: &[&[u8]], outs: &mut [&mut [u8]]) -> usize {
        assert!(std::arch::is_aarch64_feature_detected!("neon"));
        // SAFETY: the processor has what the function is compiled for.
        unsafe { specialised!(neon, rows, ins, outs) }
    }

    #[target_feature(enable = "neon")]
    fn neon<const OUTS: usize, const PLAIN: bool>(
        rows: &[Row],
        ins: &[&[u8]],
        outs: &mut [&mut [u8]],
    ) -> usize {
        /// Vectors of each input in one turn: 12 sums, 2 tables and 4 inputs of 32 registers.
        const VECTORS: usize = 4;
        const STEP: usize = VECTORS * 16;
        let mask = vdupq_n_u8(15);
        let mut at = 0;
        while at + STEP <= ins[0].len() {
            let mut sums = [[vdupq_n_u8(0); VECTORS]; OUTS];
            for (input, bytes) in ins.iter().enumerate() {
                let bytes = bytes[at..at + STEP].as_ptr();
                // SAFETY: 16 bytes from `vector` × 16, within the STEP bytes of the slice.
                let data: [uint8x16_t; VECTORS] =
                    std::array::from_fn(|vector| unsafe { vld1q_u8(bytes.add(vector * 16)) });
                for out in 0..OUTS {
                    if PLAIN && out == 0 {
                        for vector in 0..VECTORS {
                            sums[out][vector] = veorq_u8(sums[out][vector], data[vector]);
                        }
                        continue;
                    }
                    let table = NIBBLES[usize::from(rows[out][input])].as_ptr();
                    // SAFETY: the table has 32 bytes.
                    let (low, high) = unsafe { (vld1q_u8(table), vld1q_u8(table.add(16))) };
                    for vector in 0..VECTORS {
                        let lows = vqtbl1q_u8(low, vandq_u8(data[vector], mask));
                        let highs = vqtbl1q_u8(high, vshrq_n_u8::<4>(data[vector]));
                        sums[out][vector] = veorq_u8(sums[out][vector], veorq_u8(lows, highs));
                    }
                }
            }
            for (sums, out) in sums.iter().zip(outs.iter_mut()) {
                let out = out[at..at + STEP].as_mut_ptr();
                for (vector, sum) in sums.iter().enumerate() {
                    // SAFETY: as for the load.
                    unsafe { vst1q_u8(out.add(vector * 16), *sum) };
                }
            }
            at += STEP;
        }
        at
    }
}
