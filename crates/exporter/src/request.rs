//! One HTTP request: read within a time and a length, checked, and reduced to what counts here.

use std::io::{self, Read};
use std::time::{Duration, Instant};

/// Longest head of a request.
const LONGEST_HEAD: usize = 8 << 10;
/// Most headers of a request.
const MOST_HEADERS: usize = 64;

/// A request that can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The path without the query.
    pub path: String,
    /// The `Accept` header, empty if there is none.
    pub accept: String,
    /// `HEAD`: the answer has no body.
    pub head: bool,
}

/// Why a request cannot be answered, each with its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not HTTP, or of a version that we do not speak.
    #[error("this is no HTTP/1 request")]
    Malformed,
    /// Another method than GET and HEAD.
    #[error("only GET and HEAD are answered here")]
    Method,
    /// It did not come in time.
    #[error("the request did not come in time")]
    Late,
    /// Its head is too long.
    #[error("the head of a request has at most 8192 bytes and 64 headers")]
    TooLong,
}

impl Refusal {
    /// The status line's number and words.
    #[must_use]
    pub fn status(self) -> (u16, &'static str) {
        match self {
            Self::Malformed => (400, "Bad Request"),
            Self::Method => (405, "Method Not Allowed"),
            Self::Late => (408, "Request Timeout"),
            Self::TooLong => (431, "Request Header Fields Too Large"),
        }
    }
}

/// What came of reading.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A request.
    Request(Request),
    /// Something to be refused.
    Refused(Refusal),
    /// The visitor has gone without a request.
    Gone,
}

/// Reads a request. `wait` sets how long the next read may take; all reads together take no longer
/// than `limit`.
pub fn read<S: Read>(stream: &mut S, limit: Duration, wait: impl Fn(&S, Duration) -> io::Result<()>) -> Outcome {
    let begun = Instant::now();
    let mut head = Vec::new();
    let mut piece = [0; 2048];
    loop {
        let Some(rest) = limit.checked_sub(begun.elapsed()).filter(|rest| !rest.is_zero()) else { return Outcome::Refused(Refusal::Late) };
        if wait(stream, rest).is_err() {
            return Outcome::Gone;
        }
        let count = match stream.read(&mut piece) {
            Ok(0) if head.is_empty() => return Outcome::Gone,
            Ok(0) => return Outcome::Refused(Refusal::Malformed),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted) => continue,
            Err(_) => return Outcome::Gone,
        };
        head.extend_from_slice(&piece[..count]);
        match parse(&head) {
            Ok(Some(request)) => return Outcome::Request(request),
            Ok(None) if head.len() >= LONGEST_HEAD => return Outcome::Refused(Refusal::TooLong),
            Ok(None) => {}
            Err(refusal) => return Outcome::Refused(refusal),
        }
    }
}

/// The request at the beginning of these bytes; none while its head is not complete.
///
/// # Errors
/// It will never become one that we answer.
pub fn parse(bytes: &[u8]) -> Result<Option<Request>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLong),
        Err(_) => return Err(Refusal::Malformed),
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Refusal::Method),
    };
    let target = request.path.unwrap_or_default();
    // Proxies write the whole address.
    let path = target.strip_prefix("http://").map_or(target, |rest| rest.find('/').map_or("/", |slash| &rest[slash..]));
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if !path.starts_with('/') {
        return Err(Refusal::Malformed);
    }
    let accepts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let accept = accepts.map(|header| String::from_utf8_lossy(header.value)).collect::<Vec<_>>().join(",");
    Ok(Some(Request { path: path.to_owned(), accept, head }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Gives its pieces one by one, and after them what a silent peer gives.
    struct Pieces(VecDeque<Vec<u8>>, bool);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.pop_front() {
                Some(piece) => {
                    into[..piece.len()].copy_from_slice(&piece);
                    Ok(piece.len())
                }
                None if self.1 => Err(io::ErrorKind::WouldBlock.into()),
                None => Ok(0),
            }
        }
    }

    fn outcome(pieces: &[&[u8]], silent: bool) -> Outcome {
        let pieces = pieces.iter().flat_map(|piece| piece.chunks(2048)).map(<[u8]>::to_vec).collect();
        read(&mut Pieces(pieces, silent), Duration::from_millis(20), |_, _| Ok(()))
    }

    fn request(path: &str, accept: &str, head: bool) -> Outcome {
        Outcome::Request(Request { path: path.into(), accept: accept.into(), head })
    }

    #[test]
    fn requests_in_one_piece_and_in_many() {
        assert_eq!(outcome(&[b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT: text/plain\r\n\r\n"], false), request("/metrics", "text/plain", false));
        assert_eq!(outcome(&[b"HE", b"AD / HTTP/1.0\r\n", b"\r", b"\n"], false), request("/", "", true));
        assert_eq!(outcome(&[b"GET http://h:1/healthz HTTP/1.1\r\n\r\n"], false), request("/healthz", "", false));
    }

    #[test]
    fn what_is_none_is_refused() {
        let many: Vec<u8> = [b"GET / HTTP/1.1\r\n".to_vec(), b"A: b\r\n".repeat(100), b"\r\n".to_vec()].concat();
        let long: Vec<u8> = [b"GET / HTTP/1.1\r\nA: ".to_vec(), vec![b'x'; 20_000]].concat();
        for (bytes, refusal) in [
            (b"POST / HTTP/1.1\r\n\r\n".as_slice(), Refusal::Method),
            (b"GET / HTTP/2.0\r\n\r\n", Refusal::Malformed),
            (b"GET metrics HTTP/1.1\r\n\r\n", Refusal::Malformed),
            (b"\x16\x03\x01\x02\x00\x01", Refusal::Malformed),
            (b"GET / HT", Refusal::Malformed),
            (&many, Refusal::TooLong),
            (&long, Refusal::TooLong),
        ] {
            assert_eq!(outcome(&[bytes], false), Outcome::Refused(refusal), "{}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(outcome(&[], false), Outcome::Gone);
        assert_eq!(outcome(&[b"GET / HTTP/1.1\r\n"], true), Outcome::Refused(Refusal::Late));
    }

    /// Damaged requests are refused or answered; nothing else happens.
    #[test]
    fn mutations() {
        let sound = b"GET /metrics HTTP/1.1\r\nHost: localhost:1\r\nAccept: text/plain\r\nUser-Agent: x\r\n\r\n".to_vec();
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..20_000 {
            let mut bytes = sound.clone();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..bytes.len());
                match random.u8(..3) {
                    0 => bytes[at] = random.u8(..),
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, random.u8(..)),
                }
            }
            let _ = parse(&bytes);
        }
    }
}
