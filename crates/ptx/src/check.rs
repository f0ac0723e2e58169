//! (stub)
use crate::ast::*;
use crate::parser::Result;
pub(crate) struct Context<'a> {
    pub(crate) registers: &'a [Register],
    pub(crate) body: &'a Body,
    pub(crate) functions: &'a [Function],
    pub(crate) function: &'a Function,
}
pub(crate) fn instruction(_i: &Instruction, _c: &Context<'_>) -> Result<()> {
    Ok(())
}
