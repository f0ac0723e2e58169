//! The server: one request a connection, a bounded number of connections at the same time, and
//! bounds on how long one may take and how much it may send.
//!
//! A scraper that does nothing costs a worker for [`READ_LIMIT`] and no more. Whoever comes while
//! all workers are busy waits in the kernel's queue.

use crate::request::{self, Outcome, Refusal, Request};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Connections that are served at the same time.
const WORKERS: usize = 8;
/// How long a request may take to come.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// How long a scraper may take to read an answer.
const WRITE_LIMIT: Duration = Duration::from_secs(15);
/// How long, and for how much, a visitor that still sends is listened to after its answer. A
/// connection that is closed with unread bytes would take the answer with it.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
const DRAIN_BYTES: u64 = 64 << 10;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The number and the words of the status line.
    pub status: (u16, &'static str),
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Response {
    /// A plain sentence.
    #[must_use]
    pub fn text(status: (u16, &'static str), sentence: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: format!("{sentence}\n") }
    }
}

/// What answers the requests, from several threads at the same time.
pub trait Handler: Send + Sync + 'static {
    /// The answer to a request.
    fn answer(&self, request: &Request) -> Response;
}

/// Serves for ever.
///
/// # Errors
/// The system has no threads for it, or the listener cannot be shared.
pub fn serve(listener: &TcpListener, handler: &Arc<impl Handler>) -> io::Result<()> {
    serve_within(READ_LIMIT, listener, handler)
}

fn serve_within(limit: Duration, listener: &TcpListener, handler: &Arc<impl Handler>) -> io::Result<()> {
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let (listener, handler) = (listener.try_clone()?, Arc::clone(handler));
        workers.push(thread::Builder::new().name(format!("http-{number}")).spawn(move || accept(limit, &listener, handler.as_ref()))?);
    }
    for worker in workers {
        let _ = worker.join();
    }
    Ok(())
}

fn accept(limit: Duration, listener: &TcpListener, handler: &impl Handler) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => converse(limit, stream, handler),
            // Out of descriptors, or a visitor that has gone already.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Serves one connection. Errors are the visitor's.
fn converse(limit: Duration, mut stream: TcpStream, handler: &impl Handler) {
    let outcome = request::read(&mut stream, limit, |stream, rest| stream.set_read_timeout(Some(rest)));
    let (response, head) = match outcome {
        Outcome::Request(request) => (handler.answer(&request), request.head),
        Outcome::Refused(refusal) => (Response::text(refusal.status(), &refusal.to_string()), false),
        Outcome::Gone => return,
    };
    let Response { status: (number, words), content_type, body } = response;
    let allow = if number == Refusal::Method.status().0 { "Allow: GET, HEAD\r\n" } else { "" };
    let mut text = format!(
        "HTTP/1.1 {number} {words}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if !head {
        text.push_str(&body);
    }
    if write_in_time(&stream, text.as_bytes()).is_ok() && stream.shutdown(Shutdown::Write).is_ok() {
        let _ = stream.set_read_timeout(Some(DRAIN_LIMIT));
        let (begun, mut piece, mut read) = (Instant::now(), [0; 4096], 0);
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            read += count as u64;
            if read > DRAIN_BYTES || begun.elapsed() > DRAIN_LIMIT {
                break;
            }
        }
    }
}

fn write_in_time(mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let begun = Instant::now();
    while !bytes.is_empty() {
        let rest = WRITE_LIMIT.checked_sub(begun.elapsed()).filter(|rest| !rest.is_zero()).ok_or(io::ErrorKind::TimedOut)?;
        stream.set_write_timeout(Some(rest))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo;

    impl Handler for Echo {
        fn answer(&self, request: &Request) -> Response {
            Response::text((200, "OK"), &format!("you asked for {}", request.path))
        }
    }

    fn start(limit: Duration) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || serve_within(limit, &listener, &Arc::new(Echo)));
        address
    }

    fn ask(address: std::net::SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(bytes);
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }

    #[test]
    fn answers_and_refusals() {
        let address = start(READ_LIMIT);
        let text = ask(address, b"GET /a HTTP/1.1\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nyou asked for /a\n") && text.contains("Content-Length: 17\r\n"), "{text}");
        assert!(ask(address, b"HEAD /a HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
        let text = ask(address, b"DELETE / HTTP/1.1\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 405 ") && text.contains("Allow: GET, HEAD\r\n"), "{text}");
        // A header that is too long: the answer arrives although most of it is never read.
        let text = ask(address, &[b"GET / HTTP/1.1\r\nA: ".to_vec(), vec![b'a'; 30_000]].concat());
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    }

    /// Visitors that say nothing, or half a request, keep others waiting for the limit at most.
    #[test]
    fn silent_visitors_are_left() {
        let address = start(Duration::from_millis(100));
        let mut silent: Vec<TcpStream> = (0..2 * WORKERS).map(|_| TcpStream::connect(address).unwrap()).collect();
        for stream in silent.iter_mut().skip(1) {
            stream.write_all(b"GET / HTTP/1.1\r\nA: ").unwrap();
        }
        assert!(ask(address, b"GET /b HTTP/1.1\r\n\r\n").contains("you asked for /b"));
    }
}
