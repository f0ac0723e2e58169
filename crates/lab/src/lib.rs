//! What the lab (`cumux lab`) has found, as a document, a page and a table. Pure: no device, no
//! clock, no files.
//!
//! - [`report`]: everything that was measured and predicted, as JSON with a version.
//! - [`predict`]: what the planner's simulation says of a workload.
//! - [`replay`]: what a report has measured, predicted once more.
//! - [`gates`]: what must hold, and why it may not.
//! - `svg`: plots.
//! - [`page`]: the report as one HTML file.
//! - [`summary`]: the report in a terminal.
//!
//! Invariants: every text of others is escaped before it is in a page. The page loads nothing.
#![forbid(unsafe_code)]
#![warn(missing_docs, missing_debug_implementations)]

pub mod gates;
pub mod page;
pub mod predict;
pub mod replay;
pub mod report;
pub mod summary;
mod svg;
