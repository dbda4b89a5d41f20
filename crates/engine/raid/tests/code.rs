//! Goal: the code is what it says, for every shape and every loss, by every kernel.
//! Method: parity by the definition, on arithmetic of this file's own; then each kernel is held to it, for every D, P and every
//! set of up to P lost cells, and for lengths and alignments that no vector divides.

use forebay_base::Random;
use forebay_raid::{Code, DATA_MAX, Kernel, PARITY_MAX, Subset};

/// A product by the definition of GF(2⁸) modulo 0x11d: multiply as polynomials, then divide.
fn product(a: u8, b: u8) -> u8 {
    let mut wide = (0..8).filter(|bit| b >> bit & 1 != 0).fold(0u32, |sum, bit| sum ^ u32::from(a) << bit);
    for bit in (8..15).rev() {
        if wide >> bit & 1 != 0 {
            wide ^= 0x11d << (bit - 8);
        }
    }
    wide as u8
}

/// Parity cell `parity` by its definition: the sum of (2ʲ)ⁱ · dᵢ.
fn plain_parity(parity: usize, data: &[Vec<u8>]) -> Vec<u8> {
    let base = [1, 2, 4][parity];
    let mut sum = vec![0; data[0].len()];
    for (i, cell) in data.iter().enumerate() {
        let factor = (0..i).fold(1, |factor, _| product(factor, base));
        sum.iter_mut().zip(cell).for_each(|(sum, byte)| *sum ^= product(factor, *byte));
    }
    sum
}

fn random_cells(random: &mut Random, count: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|_| {
            let mut cell = vec![0; len];
            random.fill(&mut cell);
            cell
        })
        .collect()
}

fn slices(cells: &[Vec<u8>]) -> Vec<&[u8]> {
    cells.iter().map(|cell| &cell[..]).collect()
}

fn targets(cells: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    cells.iter_mut().map(|cell| &mut cell[..]).collect()
}

/// A whole line, with parity by the definition.
fn line(random: &mut Random, data: usize, parity: usize, len: usize) -> Vec<Vec<u8>> {
    let mut cells = random_cells(random, data, len);
    let parity: Vec<Vec<u8>> = (0..parity).map(|j| plain_parity(j, &cells)).collect();
    cells.extend(parity);
    cells
}

fn shapes() -> impl Iterator<Item = (usize, usize)> {
    (2..=DATA_MAX).flat_map(|data| (1..=PARITY_MAX).map(move |parity| (data, parity)))
}

#[test]
fn every_kernel_encodes_every_shape_as_defined() {
    let mut random = Random::new(1);
    for (data, parity) in shapes() {
        let cells = line(&mut random, data, parity, 323);
        for kernel in Kernel::available() {
            let mut out = vec![vec![0xee; 323]; parity];
            Code::with_kernel(data, parity, kernel).encode(&slices(&cells[..data]), &mut targets(&mut out));
            assert_eq!(out, cells[data..], "{data}+{parity} by {kernel:?}");
        }
    }
}

#[test]
fn every_loss_of_every_shape_is_made_up_for() {
    let mut random = Random::new(2);
    let mut cases = 0;
    for (data, parity) in shapes() {
        let width = data + parity;
        let cells = line(&mut random, data, parity, 37);
        for lost in (1..=parity).flat_map(|size| Subset::all_of_size(width, size)) {
            let have = Subset::first(width).without(lost);
            for kernel in [Kernel::Scalar, Kernel::best()] {
                let recipe =
                    Code::with_kernel(data, parity, kernel).recipe(have, lost).expect("enough is left");
                let sources: Vec<&[u8]> = recipe.sources().iter().map(|role| &cells[role][..]).collect();
                let mut out = vec![vec![0xee; 37]; lost.len()];
                recipe.apply(&sources, &mut targets(&mut out));
                for (role, out) in lost.iter().zip(&out) {
                    assert_eq!(out, &cells[role], "{data}+{parity}, lost {lost:?}, cell {role}");
                }
            }
            cases += 1;
        }
        for lost in Subset::all_of_size(width, parity + 1).take(50) {
            assert!(Code::new(data, parity).recipe(Subset::first(width).without(lost), lost).is_none());
        }
    }
    // The sums over D in 2..=16 of C(D+1, 1), of C(D+2, 1) + C(D+2, 2), and of C(D+3, 1) + C(D+3, 2) + C(D+3, 3).
    assert_eq!(cases, 150 + (165 + 965) + (180 + 1130 + 4840));
}

/// A code with more than one parity leaves a choice of what to compute from: each must do.
#[test]
fn what_is_left_unused_does_not_matter() {
    let mut random = Random::new(3);
    for (data, parity) in [(2, 3), (4, 2), (8, 3), (16, 3)] {
        let width = data + parity;
        let cells = line(&mut random, data, parity, 64);
        let code = Code::new(data, parity);
        for unused in (0..=parity).flat_map(|size| Subset::all_of_size(width, size)) {
            let have = Subset::first(width).without(unused);
            let sources: Subset = have.iter().take(data).collect();
            for target in Subset::first(width).without(sources).iter() {
                let recipe = code.recipe(have, [target].into_iter().collect()).expect("enough is left");
                let sources: Vec<&[u8]> = recipe.sources().iter().map(|role| &cells[role][..]).collect();
                let mut out = vec![vec![0; 64]];
                recipe.apply(&sources, &mut targets(&mut out));
                assert_eq!(out[0], cells[target]);
            }
        }
    }
}

#[test]
fn changes_of_data_change_parity_as_encoding_anew_does() {
    let mut random = Random::new(4);
    for (data, parity) in shapes() {
        let cells = line(&mut random, data, parity, 130);
        let roles: Subset = (0..data).filter(|_| random.one_in(2)).chain([data - 1]).collect();
        let changes = random_cells(&mut random, roles.len(), 130);
        let mut changed = cells.clone();
        for (role, change) in roles.iter().zip(&changes) {
            changed[role].iter_mut().zip(change).for_each(|(byte, change)| *byte ^= change);
        }
        for kernel in Kernel::available() {
            let mut out = vec![vec![0xee; 130]; parity];
            let code = Code::with_kernel(data, parity, kernel);
            code.encode_changes(roles, &slices(&changes), &mut targets(&mut out));
            for (j, out) in out.iter_mut().enumerate() {
                out.iter_mut().zip(&cells[data + j]).for_each(|(byte, old)| *byte ^= old);
                assert_eq!(*out, plain_parity(j, &changed[..data]), "{data}+{parity} by {kernel:?}");
            }
        }
    }
}

#[test]
fn kernels_agree_at_every_length_and_alignment_and_write_nothing_else() {
    let mut random = Random::new(5);
    const ROOM: usize = 1200;
    for (data, parity) in [(2, 1), (3, 2), (5, 3), (16, 3)] {
        let memory = random_cells(&mut random, data, ROOM);
        for len in (0..530).chain([767, 768, 769, 1023, 1024, 1025]) {
            let starts: Vec<usize> = (0..data).map(|_| random.below(64) as usize).collect();
            let to = random.below(64) as usize;
            let ins: Vec<&[u8]> =
                memory.iter().zip(&starts).map(|(bytes, at)| &bytes[*at..at + len]).collect();
            let mut expected = vec![vec![0xee; ROOM]; parity];
            let encode = |kernel, out: &mut Vec<Vec<u8>>| {
                let mut outs: Vec<&mut [u8]> = out.iter_mut().map(|bytes| &mut bytes[to..to + len]).collect();
                Code::with_kernel(data, parity, kernel).encode(&ins, &mut outs);
            };
            encode(Kernel::Scalar, &mut expected);
            for kernel in Kernel::available() {
                let mut out = vec![vec![0xee; ROOM]; parity];
                encode(kernel, &mut out);
                assert!(out == expected, "{data}+{parity}, {len} bytes by {kernel:?}");
            }
        }
    }
}
