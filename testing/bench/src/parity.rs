//! `forebay-bench --parity`: how fast parity is computed, and lost cells from it, beside ISA-L.
//!
//! Every kernel that this processor has and Intel's library (Debian's `libisal2`, loaded when the chapter starts) do the same work
//! on the same buffers, in turns of a few milliseconds; medians are compared. A turn goes over one line that stays in
//! the processor's cache (*cached*), as when data has just been checksummed, or over more lines than the cache holds (*memory*).
//! Figures are GB of data per second of the thread's processor time. Both sides' results are compared, too.

use crate::measure::{Median, thread_seconds};
use forebay_base::{MIB, Random};
use forebay_e2e::host::{Context, Outcome};
use forebay_raid::{Code, Kernel, Subset};
use forebay_runtime::{Arena, BufMut};
use libloading::Library;
use std::ffi::{c_int, c_uchar, c_void};
use std::fmt;

const CELL: usize = 64 << 10;
const SHAPES: [(usize, usize); 3] = [(4, 1), (8, 2), (8, 3)];
/// More than the last-level cache of common servers.
const MEMORY: usize = 512 * MIB as usize;
/// Data of one turn.
const TURN: usize = 48 * MIB as usize;
const TURN_QUICK: usize = MIB as usize;
const ROUNDS: usize = 41;

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Encode,
    /// So many data cells are lost.
    Decode(usize),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Encode => f.write_str("encode"),
            Work::Decode(lost) => write!(f, "decode {lost}"),
        }
    }
}

/// Who computes it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Ours(Kernel),
    /// `ec_encode_data`, for any factors.
    IsaTables,
    /// `xor_gen` or `pq_gen`, for the first one or two parity cells.
    IsaSpecial,
}

/// The functions of ISA-L that are compared, and the library that they are in.
struct Isa {
    init_tables: unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar),
    encode:
        unsafe extern "C" fn(c_int, c_int, c_int, *const c_uchar, *const *const c_uchar, *const *mut c_uchar),
    invert: unsafe extern "C" fn(*mut c_uchar, *mut c_uchar, c_int) -> c_int,
    xor: unsafe extern "C" fn(c_int, c_int, *const *mut c_void) -> c_int,
    pq: unsafe extern "C" fn(c_int, c_int, *const *mut c_void) -> c_int,
    _library: Library,
}

impl Isa {
    fn load() -> Outcome<Isa> {
        // SAFETY: the library's initialisers do nothing but ask for the processor; the types are those of its headers
        // erasure_code.h and raid.h; the functions are gone with the library, which lives as long as they do.
        unsafe {
            let library = Library::new("libisal.so.2").context("ISA-L (Debian package libisal2)")?;
            Ok(Isa {
                init_tables: *library.get(b"ec_init_tables\0").context("ISA-L")?,
                encode: *library.get(b"ec_encode_data\0").context("ISA-L")?,
                invert: *library.get(b"gf_invert_matrix\0").context("ISA-L")?,
                xor: *library.get(b"xor_gen\0").context("ISA-L")?,
                pq: *library.get(b"pq_gen\0").context("ISA-L")?,
                _library: library,
            })
        }
    }

    /// Tables for rows of factors of `data` inputs each.
    fn tables(&self, data: usize, rows: &[u8]) -> Vec<u8> {
        let mut tables = vec![0; 32 * rows.len()];
        // SAFETY: 32 bytes for each factor, as its documentation asks.
        unsafe {
            (self.init_tables)(
                data as c_int,
                (rows.len() / data) as c_int,
                rows.as_ptr(),
                tables.as_mut_ptr(),
            );
        }
        tables
    }

    /// The rows that make data cells 0..`lost` from the others and the first parity cells.
    fn decoder(&self, data: usize, lost: usize) -> Vec<u8> {
        let mut square = vec![0; data * data];
        for (place, row) in square.chunks_mut(data).enumerate() {
            match place + lost {
                role if role < data => row[role] = 1,
                role => row.copy_from_slice(&factors(data, role - data + 1)[(role - data) * data..]),
            }
        }
        let mut inverse = vec![0; data * data];
        // SAFETY: both are squares of `data` rows.
        let singular = unsafe { (self.invert)(square.as_mut_ptr(), inverse.as_mut_ptr(), data as c_int) };
        assert_eq!(singular, 0, "every square part of the code has an inverse");
        inverse.truncate(lost * data);
        inverse
    }
}

/// The factors of the first parity cells, row by row, as the code defines them.
fn factors(data: usize, parity: usize) -> Vec<u8> {
    let code = Code::with_kernel(data, parity, Kernel::Scalar);
    let mut rows = vec![0; data * parity];
    for role in 0..data {
        let cells: Vec<[u8; 1]> = (0..data).map(|other| [u8::from(other == role)]).collect();
        let mut out = vec![[0; 1]; parity];
        let ins: Vec<&[u8]> = cells.iter().map(|cell| &cell[..]).collect();
        let mut outs: Vec<&mut [u8]> = out.iter_mut().map(|cell| &mut cell[..]).collect();
        code.encode(&ins, &mut outs);
        out.iter().enumerate().for_each(|(j, factor)| rows[j * data + role] = factor[0]);
    }
    rows
}

/// Cells of a line: data, parity, and what is computed.
struct Line {
    cells: Vec<BufMut>,
    out: Vec<BufMut>,
}

struct Bench<'a> {
    isa: &'a Isa,
    data: usize,
    parity: usize,
    work: Work,
    tables: Vec<u8>,
}

impl Bench<'_> {
    fn outputs(&self) -> usize {
        match self.work {
            Work::Encode => self.parity,
            Work::Decode(lost) => lost,
        }
    }

    fn systems(&self) -> Vec<By> {
        let special = self.work == Work::Encode && self.parity < 3;
        let isa = [By::IsaTables].into_iter().chain(special.then_some(By::IsaSpecial));
        Kernel::available().map(By::Ours).chain(isa).collect()
    }

    fn name(&self, by: By) -> &'static str {
        match by {
            By::Ours(kernel) => kernel.name(),
            By::IsaTables => "ISA-L ec_encode_data",
            By::IsaSpecial if self.parity == 1 => "ISA-L xor_gen",
            By::IsaSpecial => "ISA-L pq_gen",
        }
    }

    /// The cells that are computed from.
    fn sources(&self) -> std::ops::Range<usize> {
        match self.work {
            Work::Encode => 0..self.data,
            Work::Decode(lost) => lost..lost + self.data,
        }
    }

    fn compute(&self, by: By, line: &mut Line) {
        let sources = &line.cells[self.sources()];
        match by {
            By::Ours(kernel) => {
                let code = Code::with_kernel(self.data, self.parity, kernel);
                let ins: Vec<&[u8]> = sources.iter().map(|cell| &cell[..]).collect();
                let mut outs: Vec<&mut [u8]> = line.out.iter_mut().map(|cell| &mut cell[..]).collect();
                match self.work {
                    Work::Encode => code.encode(&ins, &mut outs),
                    Work::Decode(lost) => {
                        let have = self.sources().collect();
                        code.recipe(have, Subset::first(lost))
                            .expect("enough is left")
                            .apply(&ins, &mut outs);
                    }
                }
            }
            By::IsaTables => {
                let ins: Vec<*const u8> = sources.iter().map(|cell| cell.as_ptr()).collect();
                let outs: Vec<*mut u8> = line.out.iter_mut().map(|cell| cell.as_mut_ptr()).collect();
                let (data, rows) = (self.data as c_int, outs.len() as c_int);
                // SAFETY: as many cells of CELL bytes as are said, and tables for them.
                unsafe {
                    (self.isa.encode)(
                        CELL as c_int,
                        data,
                        rows,
                        self.tables.as_ptr(),
                        ins.as_ptr(),
                        outs.as_ptr(),
                    )
                }
            }
            By::IsaSpecial => {
                let ins = line.cells[..self.data].iter_mut().map(|cell| cell.as_mut_ptr().cast());
                let cells: Vec<*mut c_void> =
                    ins.chain(line.out.iter_mut().map(|cell| cell.as_mut_ptr().cast())).collect();
                let function = if self.parity == 1 { self.isa.xor } else { self.isa.pq };
                // SAFETY: as many cells of CELL bytes, aligned to 4096, as are said, the last of them for the results.
                let failed = unsafe { function(cells.len() as c_int, CELL as c_int, cells.as_ptr()) };
                assert_eq!(failed, 0, "the cells are aligned");
            }
        }
    }

    /// GB of data per second over `lines`, once for each of `times`.
    fn turn(&self, by: By, lines: &mut [Line], times: usize) -> f64 {
        let start = thread_seconds();
        for n in 0..times {
            let at = n % lines.len();
            self.compute(by, &mut lines[at]);
        }
        (times * self.data * CELL) as f64 / (thread_seconds() - start) / 1e9
    }

    fn verify(&self, lines: &mut [Line]) -> Outcome {
        for by in self.systems() {
            lines[0].out.iter_mut().for_each(|cell| cell.fill(0xee));
            self.compute(by, &mut lines[0]);
            let Line { cells, out } = &lines[0];
            let right = match self.work {
                Work::Encode => &cells[self.data..],
                Work::Decode(lost) => &cells[..lost],
            };
            if right.iter().zip(out).any(|(right, out)| right[..] != out[..]) {
                return Err(format!(
                    "{} computes something else: {}+{} {}",
                    self.name(by),
                    self.data,
                    self.parity,
                    self.work
                ));
            }
        }
        Ok(())
    }
}

/// Lines with parity, and room for results.
fn lines(arena: &Arena, count: usize, data: usize, parity: usize) -> Vec<Line> {
    let mut random = Random::new(1);
    let code = Code::new(data, parity);
    let line = |_| {
        let mut cells: Vec<BufMut> = (0..data + parity).map(|_| arena.take(CELL)).collect();
        let (ins, outs) = cells.split_at_mut(data);
        ins.iter_mut().for_each(|cell| random.fill(cell));
        let ins: Vec<&[u8]> = ins.iter().map(|cell| &cell[..]).collect();
        let mut outs: Vec<&mut [u8]> = outs.iter_mut().map(|cell| &mut cell[..]).collect();
        code.encode(&ins, &mut outs);
        Line { cells, out: (0..parity).map(|_| arena.take_zeroed(CELL)).collect() }
    };
    (0..count).map(line).collect()
}

/// Prints the figures; with `quick`, shows that everything runs and agrees.
pub fn run(quick: bool) -> Outcome {
    let isa = Isa::load()?;
    let (turn, rounds) = if quick { (TURN_QUICK, 1) } else { (TURN, ROUNDS) };
    let mut goals = Vec::new();
    println!(
        "parity, cells of {} KiB, GB of data per second of processor time: {rounds} rounds in turns",
        CELL >> 10
    );
    println!("\n{:<16}{:<24}{:>10}{:>6}{:>12}{:>6}", "", "", "cached", "±%", "memory", "±%");
    for (data, parity) in SHAPES {
        let arena = Arena::huge();
        let in_memory = if quick { 2 } else { MEMORY / ((data + parity) * CELL) };
        let mut memory = lines(&arena, in_memory, data, parity);
        for work in [Work::Encode].into_iter().chain((1..=parity).map(Work::Decode)) {
            let rows = match work {
                Work::Encode => factors(data, parity),
                Work::Decode(lost) => isa.decoder(data, lost),
            };
            let bench = Bench { isa: &isa, data, parity, work, tables: isa.tables(data, &rows) };
            memory.iter_mut().for_each(|line| line.out.truncate(bench.outputs()));
            memory.iter_mut().for_each(|line| {
                let missing = bench.outputs() - line.out.len();
                line.out.extend((0..missing).map(|_| arena.take_zeroed(CELL)));
            });
            bench.verify(&mut memory)?;
            let systems = bench.systems();
            let mut samples = vec![[Vec::new(), Vec::new()]; systems.len()];
            for round in 0..rounds {
                for nth in 0..systems.len() {
                    let nth = (nth + round) % systems.len();
                    let by = systems[nth];
                    // The scalar kernel is an oracle, not a competitor.
                    let turn = if by == By::Ours(Kernel::Scalar) { turn / 32 } else { turn };
                    let times = (turn / (data * CELL)).max(1);
                    bench.turn(by, &mut memory[..1], 1);
                    samples[nth][0].push(bench.turn(by, &mut memory[..1], times));
                    samples[nth][1].push(bench.turn(by, &mut memory, times));
                }
            }
            let mut best = [[0f64; 2]; 2];
            for (&by, samples) in systems.iter().zip(&samples) {
                let [cached, memory] = [0, 1].map(|n| Median::of(samples[n].iter().copied()));
                let label = format!("{data}+{parity} {work}");
                println!(
                    "{label:<16}{:<24}{:>10.1}{:>6.1}{:>12.1}{:>6.1}",
                    bench.name(by),
                    cached.value,
                    cached.spread_percent(),
                    memory.value,
                    memory.spread_percent()
                );
                let side = usize::from(!matches!(by, By::Ours(_)));
                for (best, median) in best[side].iter_mut().zip([cached, memory]) {
                    *best = best.max(median.value);
                }
            }
            goals.push((format!("{data}+{parity} {work} ÷ ISA-L"), [0, 1].map(|n| best[0][n] / best[1][n])));
        }
    }
    println!();
    for (what, ratios) in goals {
        // From memory everybody is as fast as memory is: the goal there leaves room for the spread.
        for (ratio, place, goal) in [(ratios[0], "cached", 1.0), (ratios[1], "memory", 0.95)] {
            let verdict = match ratio >= goal {
                _ if quick => "not measured",
                true => "met",
                false => "MISSED",
            };
            println!("{:<40} {ratio:>6.2}   goal {goal:.2}: {verdict}", format!("{what}, {place}"));
        }
    }
    Ok(())
}
