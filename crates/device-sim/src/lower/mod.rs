//! Lowers the PTX tree to executable form.

mod arithmetic;
mod body;
mod by_type;
mod compare;
mod contract;
mod control;
mod convert;
mod error;
mod floating;
mod instruction;
mod memory;
mod module;
mod plan;
mod registers;
mod video;
mod warp;

use crate::program::Program;
pub use error::CompileError;
use std::sync::Arc;

/// Lowers a PTX text. The caller caches programs by their text.
///
/// # Errors
/// The position and the reason if the text is not PTX, or uses a name that it does not declare.
pub fn compile(text: &str) -> Result<Arc<Program>, CompileError> {
    module::lower(text).map(Arc::new)
}
