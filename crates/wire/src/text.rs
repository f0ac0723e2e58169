//! The text of a client's kernels.

/// Where the text of a client's kernels goes in the client's process. Each channel is passed on as
/// it is, byte by byte, so a piece need not be a whole line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// The program's standard output: device printf.
    Output,
    /// The program's standard error: failed assertions.
    Error,
}

impl Channel {
    /// All channels, in the order of their index.
    pub const ALL: [Channel; 2] = [Channel::Output, Channel::Error];

    /// As an index into arrays with one entry for each channel.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}
