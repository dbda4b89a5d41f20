//! PDUs on their way out, gathered into batches.
//!
//! A write per PDU halves what a connection can carry; so they collect here and leave together. Headers, digests,
//! padding and short data are written one behind the other and become one buffer when the batch is taken;
//! long data are never copied. Between two batches nothing is allocated that the last one did not need.

use crate::pdu::Bhs;
use crate::wire::padding;
use forebay_runtime::{Arena, Buf};

/// PDUs that have not been sent.
pub struct Output {
    header_digest: bool,
    data_digest: bool,
    headers: Vec<u8>,
    parts: Vec<Part>,
}

enum Part {
    /// This many further bytes of `headers`.
    Headers(usize),
    Data(Buf),
}

impl Output {
    pub fn new(header_digest: bool, data_digest: bool) -> Output {
        Output { header_digest, data_digest, headers: Vec::new(), parts: Vec::new() }
    }

    /// From the next PDU on.
    pub fn set_digests(&mut self, header: bool, data: bool) {
        (self.header_digest, self.data_digest) = (header, data);
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes that wait here, those of data buffers not counted.
    pub fn header_bytes(&self) -> usize {
        self.headers.len()
    }

    /// All PDUs so far, as buffers to be sent one behind the other.
    pub fn take_batch(&mut self, arena: &Arena) -> Vec<Buf> {
        let headers = arena.copy(&self.headers).freeze();
        let mut at = 0;
        let buffers = self.parts.drain(..).map(|part| match part {
            Part::Headers(len) => {
                at += len;
                headers.slice(at - len, len)
            }
            Part::Data(data) => data,
        });
        let batch = buffers.collect();
        self.headers.clear();
        batch
    }

    /// A PDU without data.
    pub fn pdu(&mut self, bhs: Bhs) {
        self.bytes(bhs, &[]);
    }

    /// A PDU with data that are short enough to be copied.
    pub fn bytes(&mut self, bhs: Bhs, data: &[u8]) {
        self.additional(bhs, &[], data);
    }

    /// A PDU with additional headers, whole words of them.
    pub fn additional(&mut self, bhs: Bhs, ahs: &[u8], data: &[u8]) {
        self.header(bhs, ahs, data.len());
        self.push(data);
        let crc = if self.data_digest { crc32c::crc32c(data) } else { 0 };
        self.trailer(data.len(), crc);
    }

    /// A PDU with the next `len` bytes at `source` as its data.
    pub fn data(&mut self, bhs: Bhs, source: &mut Source, len: usize) {
        self.header(bhs, &[], len);
        let (mut left, mut crc) = (len, 0);
        while left > 0 {
            let part = source.take(left);
            left -= part.len();
            if self.data_digest {
                crc = crc32c::crc32c_append(crc, &part);
            }
            self.parts.push(Part::Data(part));
        }
        self.trailer(len, crc);
    }

    fn header(&mut self, mut bhs: Bhs, ahs: &[u8], data_len: usize) {
        bhs.set_data_len(data_len as u32);
        bhs.set_ahs_len(ahs.len());
        self.push(&bhs.0);
        self.push(ahs);
        if self.header_digest {
            let crc = crc32c::crc32c_append(crc32c::crc32c(&bhs.0), ahs);
            self.push(&crc.to_le_bytes());
        }
    }

    /// Padding and digest behind `len` bytes whose checksum is `crc`.
    fn trailer(&mut self, len: usize, crc: u32) {
        let pad = &[0; 3][..padding(len)];
        self.push(pad);
        if self.data_digest && len > 0 {
            self.push(&crc32c::crc32c_append(crc, pad).to_le_bytes());
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.headers.extend_from_slice(bytes);
        match self.parts.last_mut() {
            Some(Part::Headers(len)) => *len += bytes.len(),
            _ => self.parts.push(Part::Headers(bytes.len())),
        }
    }
}

/// Buffers that follow each other, and how far they have been used.
pub struct Source<'a> {
    parts: &'a [Buf],
    index: usize,
    within: usize,
}

impl Source<'_> {
    /// From byte `skip` of `parts` on.
    pub fn new(parts: &[Buf], skip: usize) -> Source<'_> {
        let (mut index, mut within) = (0, skip);
        while index < parts.len() && within >= parts[index].len() {
            within -= parts[index].len();
            index += 1;
        }
        Source { parts, index, within }
    }

    /// The next bytes: at least one, at most `most`, none of it copied. Panics when there are none left.
    fn take(&mut self, most: usize) -> Buf {
        while self.parts[self.index].len() == self.within {
            (self.index, self.within) = (self.index + 1, 0);
        }
        let part = &self.parts[self.index];
        let len = most.min(part.len() - self.within);
        let taken = part.slice(self.within, len);
        self.within += len;
        taken
    }
}
