//! A complaint that ends a statement, not the parse.

use crate::ast::Pos;
use crate::diagnostic::Diagnostic;

/// A complaint on its way up to the statement that it ends. Boxed: results stay small.
#[derive(Debug)]
pub(crate) struct Fail(Box<Diagnostic>);

pub(crate) type Result<T> = std::result::Result<T, Fail>;

impl Fail {
    pub(crate) fn new(pos: Pos, message: impl Into<String>) -> Self {
        Self(Box::new(Diagnostic { pos, message: message.into(), help: None }))
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.0.help = Some(help.into());
        self
    }

    pub(crate) fn into_diagnostic(self) -> Diagnostic {
        *self.0
    }
}
