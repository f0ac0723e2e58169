//! Which source line each instruction comes from: `.loc` and `.file` of PTX, which
//! `nvcc -lineinfo` and `-G` write.

use cumux_fatbin::lines::{Line, Source};
use cumux_ptx::ast::Body;
use std::collections::HashMap;

/// A line of a file, by the file's number.
#[derive(Debug, Clone, Copy)]
struct SourcePosition {
    file: u32,
    line: u32,
}

/// The line of the instructions from `at` to the next mark; `None` if it is not known.
#[derive(Debug, Clone, Copy)]
struct LineMark {
    at: u32,
    place: Option<SourcePosition>,
    /// From where the line's function was called, if it was inlined: the outermost call.
    called_from: Option<SourcePosition>,
}

/// The source lines of a module's instructions.
#[derive(Debug, Default)]
pub(crate) struct SourceLines {
    files: Vec<(u32, Box<str>)>,
    /// Ordered by instruction. Of several for one, the last counts.
    marks: Vec<LineMark>,
}

impl SourceLines {
    /// No lines yet, of files with these numbers and names.
    pub fn new(files: &[(u32, Box<str>)]) -> SourceLines {
        SourceLines { files: files.to_vec(), marks: Vec::new() }
    }

    /// Adds the lines of a function's body. Its instructions became those at `places`, in order,
    /// and all of it ends before `end`. Functions are added in the order of their instructions.
    pub fn add(&mut self, body: &Body, places: &[u32], end: u32) {
        // The outermost caller of the code at a place, by file, line and column.
        let mut callers: HashMap<[u32; 3], Option<SourcePosition>> = HashMap::new();
        for mark in &body.lines {
            let Some(at) = places.get(mark.instruction as usize) else { continue };
            let called_from = mark.inlined_at.map(|call| callers.get(&call).copied().flatten().unwrap_or(SourcePosition { file: call[0], line: call[1] }));
            callers.insert([mark.file, mark.line, mark.column], called_from);
            self.marks.push(LineMark { at: *at, place: Some(SourcePosition { file: mark.file, line: mark.line }), called_from });
        }
        if !body.lines.is_empty() {
            self.marks.push(LineMark { at: end, place: None, called_from: None });
        }
    }

    /// The source line of an instruction.
    pub fn find(&self, instruction: u32) -> Option<Source> {
        let after = self.marks.partition_point(|mark| mark.at <= instruction);
        let mark = self.marks[..after].last()?;
        Some(Source { line: self.line(mark.place?)?, called_from: mark.called_from.and_then(|place| self.line(place)) })
    }

    fn line(&self, place: SourcePosition) -> Option<Line> {
        let (_, name) = self.files.iter().find(|(number, _)| *number == place.file)?;
        (place.line > 0).then(|| Line::new(name, place.line.into()))
    }
}
