//! What the fuzz target `packets` drives: a keeper behind a connection, without a process of its
//! own.

use crate::serve::serve;
use crate::store::Store;
use cumux_link::Connection;
use std::sync::Arc;

/// Serves a connection, with nothing kept at first, until it ends.
pub fn serve_connection(connection: &Connection) {
    serve(&Arc::new(Store::default()), connection);
}
