use super::program::{CompileError, Program}; pub fn lower(_t:&str)->Result<Program,CompileError>{unreachable!()}
