//! What a request costs: how long it keeps the whole pool busy, in nanoseconds.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Read,
    Write,
}

/// A request to the disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    pub kind: Kind,
    pub bytes: u32,
    /// In how many places they are.
    pub places: u32,
}

impl Work {
    /// Reading so many bytes in so many places; what is too much for the type costs what the most does.
    pub fn read(bytes: u64, places: usize) -> Work {
        Work::of(Kind::Read, bytes, places)
    }

    /// The same of writing.
    pub fn write(bytes: u64, places: usize) -> Work {
        Work::of(Kind::Write, bytes, places)
    }

    fn of(kind: Kind, bytes: u64, places: usize) -> Work {
        Work {
            kind,
            bytes: bytes.try_into().unwrap_or(u32::MAX),
            places: places.try_into().unwrap_or(u32::MAX),
        }
    }
}

/// A cost that grows with the number of places and with the size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Affine {
    /// Nanoseconds of each place.
    pub fixed: u64,
    /// Picoseconds of each byte: a pool with 1 GB/s has 1000.
    pub byte_ps: u64,
}

impl Affine {
    /// The line through what a pool was measured to do: `small` requests of `small_bytes` each second, and `large` of `large_bytes`.
    pub fn through((small_bytes, small): (u32, f64), (large_bytes, large): (u32, f64)) -> Affine {
        let (short, long) = (1e9 / small.max(1.0), 1e9 / large.max(1.0));
        let byte = ((long - short) / f64::from(large_bytes - small_bytes)).max(0.0);
        let fixed = (short - byte * f64::from(small_bytes)).max(1.0);
        Affine { fixed: fixed as u64, byte_ps: (byte * 1000.0) as u64 }
    }

    fn of(self, work: Work) -> u64 {
        self.fixed * u64::from(work.places) + u64::from(work.bytes) * self.byte_ps / 1000
    }
}

/// What a pool's disks make of requests, all of them together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    pub read: Affine,
    pub write: Affine,
}

impl Costs {
    /// Nanoseconds of the whole pool.
    pub fn of(&self, work: Work) -> u64 {
        match work.kind {
            Kind::Read => self.read.of(work),
            Kind::Write => self.write.of(work),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_goes_through_what_was_measured() {
        let read = Affine::through((8192, 100_000.0), (1 << 20, 1000.0));
        let costs = Costs { read, write: read };
        let of = |bytes| costs.of(Work { kind: Kind::Read, bytes, places: 1 });
        assert!(of(8192).abs_diff(10_000) <= 10, "{}", of(8192));
        assert!(of(1 << 20).abs_diff(1_000_000) <= 2000, "{}", of(1 << 20));
    }

    #[test]
    fn a_measurement_that_makes_no_sense_still_gives_a_cost() {
        // Large requests that were faster than small ones, and none at all.
        for (small, large) in [(1000.0, 2000.0), (0.0, 0.0), (1e12, 1e12)] {
            let line = Affine::through((8192, small), (1 << 20, large));
            assert!(line.of(Work { kind: Kind::Read, bytes: 8192, places: 1 }) >= 1);
        }
    }
}
