//! The ring: log positions grow for ever; their place is the remainder, spread over equal chunks.

/// A contiguous part of a range, within one chunk of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Which chunk of the ring, in order.
    pub chunk: usize,
    /// Byte within the chunk.
    pub offset: u64,
    pub len: usize,
}

/// A ring of `chunks` chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ring {
    pub chunk_bytes: u64,
    pub chunks: usize,
}

impl Ring {
    pub fn bytes(&self) -> u64 {
        self.chunk_bytes * self.chunks as u64
    }

    /// Where the `len` bytes from `position` are. `len` is at most the ring.
    pub fn pieces(&self, position: u64, len: usize) -> Vec<Piece> {
        assert!(len as u64 <= self.bytes(), "{len} bytes in a ring of {}", self.bytes());
        let (mut at, mut left) = (position % self.bytes(), len);
        let mut pieces = Vec::new();
        while left > 0 {
            let offset = at % self.chunk_bytes;
            let here = left.min((self.chunk_bytes - offset) as usize);
            pieces.push(Piece { chunk: (at / self.chunk_bytes) as usize, offset, len: here });
            at = (at + here as u64) % self.bytes();
            left -= here;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_wrap_and_split_at_chunks() {
        let ring = Ring { chunk_bytes: 100, chunks: 3 };
        let piece = |chunk, offset, len| Piece { chunk, offset, len };
        assert_eq!(ring.pieces(10, 20), [piece(0, 10, 20)]);
        assert_eq!(ring.pieces(580, 140), [piece(2, 80, 20), piece(0, 0, 100), piece(1, 0, 20)]);
    }
}
