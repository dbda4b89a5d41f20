//! Little-endian encoding into and decoding out of byte slices.
//!
//! [`Writer`] panics when it runs over its buffer (our bug: formats have fixed sizes); [`Reader`] returns
//! [`Truncated`] (the disk's or the peer's lie).

/// The input ended before the structure did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncated;

/// Writes integers and byte strings one after the other into a fixed buffer.
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Writer { buffer, at: 0 }
    }
    /// Bytes written so far.
    pub fn position(&self) -> usize {
        self.at
    }
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }
    /// Writes `len` zero bytes: reserved fields and padding.
    pub fn zeros(&mut self, len: usize) -> &mut Self {
        self.buffer[self.at..self.at + len].fill(0);
        self.at += len;
        self
    }
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    pub fn u128(&mut self, value: u128) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    /// A string in a field of `field` bytes, zero-padded. Panics when it does not fit.
    pub fn text(&mut self, text: &str, field: usize) -> &mut Self {
        assert!(text.len() <= field, "text of {} bytes in a field of {field}", text.len());
        self.bytes(text.as_bytes()).zeros(field - text.len())
    }
}

/// Reads what [`Writer`] wrote.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Truncated> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Truncated)?;
        self.rest = rest;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Truncated)?;
        self.rest = rest;
        Ok(*head)
    }
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        Ok(self.array::<1>()?[0])
    }
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    pub fn u128(&mut self) -> Result<u128, Truncated> {
        Ok(u128::from_le_bytes(self.array()?))
    }
    /// A zero-padded string of a fixed field; what is not UTF-8 becomes question marks, so that the string still fits the
    /// field that it came from.
    pub fn text(&mut self, field: usize) -> Result<String, Truncated> {
        let bytes = self.bytes(field)?;
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(field);
        Ok(String::from_utf8_lossy(&bytes[..end]).replace(char::REPLACEMENT_CHARACTER, "?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_was_written_and_refuses_the_rest() {
        let mut buffer = [0; 32];
        let mut writer = Writer::new(&mut buffer);
        writer.u8(1).u16(2).u32(3).u64(4).text("abc", 8);
        assert_eq!(writer.position(), 23);
        let mut reader = Reader::new(&buffer[..23]);
        assert_eq!((reader.u8(), reader.u16(), reader.u32(), reader.u64()), (Ok(1), Ok(2), Ok(3), Ok(4)));
        assert_eq!(reader.text(8).as_deref(), Ok("abc"));
        assert_eq!(reader.u8(), Err(Truncated));
    }

    #[test]
    fn a_text_that_was_read_can_be_written() {
        let text = Reader::new(b"a\xff\xfe\xc3b\xc3").text(6).expect("six bytes are there");
        assert_eq!(text, "a???b?");
        Writer::new(&mut [0; 6]).text(&text, 6);
    }
}
