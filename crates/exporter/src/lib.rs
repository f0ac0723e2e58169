//! Metrics and health of a node over HTTP: what the status says as families of metrics, the text
//! formats of Prometheus, the pods behind processes, and a small server for all of it.
//!
//! Nothing here talks to the daemon: [`http::serve`] is given what answers, and [`families::of`] is
//! a pure function of a status. Everything that a scraper or another process sends is bounded.
//!
//! # Modules
//!
//! Each module uses only those below it.
//!
//! ```text
//! families  the metrics of a status
//! history   what has happened since the exporter started
//! http      the server: bounded connections, times and lengths
//! request   one request, read and checked
//! pods      which container, pod or job a process belongs to
//! users     names of users
//! text      families of metrics as text
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))]
#![warn(missing_docs, missing_debug_implementations)]

pub mod families;
pub mod history;
pub mod http;
pub mod pods;
pub mod request;
pub mod text;
pub mod users;
