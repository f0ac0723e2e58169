//! Choices out of the fuzzer's bytes. When they are used up, every choice is the first one.

/// What is left of the fuzzer's bytes.
#[derive(Debug)]
pub struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    #[must_use]
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// So many bytes, or as many as there are.
    pub fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn number(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    pub fn byte(&mut self) -> u8 {
        self.number(1) as u8
    }

    pub fn short(&mut self) -> u16 {
        self.number(2) as u16
    }

    pub fn word(&mut self) -> u32 {
        self.number(4) as u32
    }

    pub fn long(&mut self) -> u64 {
        self.number(8)
    }

    /// A number below `bound`, which is at most 256.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == bound - 1
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Mostly one of these, sometimes any number.
    pub fn mostly(&mut self, usual: &[u32]) -> u32 {
        if self.one_in(16) { self.word() } else { self.pick(usual) }
    }

    /// A short text: one of these, or the fuzzer's.
    pub fn text(&mut self, usual: &[&str]) -> String {
        if self.one_in(8) {
            let length = self.below(64);
            String::from_utf8_lossy(self.take(length)).into_owned()
        } else {
            self.pick(usual).to_owned()
        }
    }
}
