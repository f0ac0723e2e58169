//! Bodies: scopes, declarations, labels and statements.

use super::Parser;
use super::instruction::BodyBuilder;
use super::labels::Labels;
use super::lookup::{taken_error, undeclared_error};
use super::names::{Meaning, add_register};
use super::variable::Declared;
use crate::ast::{
    Body, BranchTable, BranchTableId, CallPrototypeId, CallTable, CallTableId, FuncId, GlobalId, LineMark, Linkage, RegId, ScalarType, StateSpace, SymbolRef,
    VarId, Variable,
};
use crate::check;
use crate::fail::{Fail, Result};
use crate::lexer::{Tok, Token};
use std::collections::HashMap;

/// `{ }` inside one another; nvcc needs two. An undefined label is carried through every level, so
/// this bounds what it can cost.
const MAX_SCOPES: usize = 16;

impl<'s> Parser<'s> {
    /// The body of function `id`; the current token is its `{`.
    pub(super) fn parse_body(&mut self, id: FuncId) -> Body {
        let function = self.module.functions[id.index()].name.clone();
        let mut builder = BodyBuilder { body: Body::default(), labels: Labels::default(), function, name_uses: HashMap::new() };
        self.bump();
        self.local_elements.clear();
        builder.labels.enter_scope();
        let mut opened = 0usize;
        loop {
            if self.has_given_up() {
                break;
            }
            let token = self.tokens.peek();
            let before = self.consumed;
            let result = match token.kind {
                Tok::End => {
                    let complaint = Fail::new(token.pos, "the text ends inside a function body").with_help("is the PTX cut off? a '}' is missing");
                    self.complain(complaint);
                    break;
                }
                Tok::CloseBrace => {
                    self.bump();
                    if opened == 0 {
                        builder.body.end = token.pos;
                        break;
                    }
                    opened -= 1;
                    builder.labels.leave_scope();
                    self.names.leave_scope();
                    Ok(())
                }
                Tok::OpenBrace if opened >= MAX_SCOPES => {
                    let complaint = Fail::new(token.pos, "scopes are nested too deeply").with_help(format!("at most {MAX_SCOPES}"));
                    self.complain(complaint);
                    self.skip_block();
                    Ok(())
                }
                Tok::OpenBrace => {
                    self.bump();
                    opened += 1;
                    builder.labels.enter_scope();
                    self.names.enter_scope();
                    Ok(())
                }
                _ => self.parse_statement(&mut builder, id),
            };
            if let Err(fail) = result {
                self.complain(fail);
                // A statement that was read to its end, and refused then, needs no skipping.
                let ended = matches!(self.last_kind, Tok::Semicolon | Tok::Colon);
                if !ended || self.consumed == before {
                    self.skip_statement();
                }
            }
        }
        for _ in 0..opened {
            builder.labels.leave_scope();
            self.names.leave_scope();
        }
        builder.labels.leave_scope();
        match builder.labels.finish() {
            Ok(labels) => builder.body.labels = labels,
            Err(missing) => {
                for (name, pos) in missing {
                    self.complain(Fail::new(pos, format!("there is no label '{name}'")));
                }
            }
        }
        builder.body.registers = std::mem::take(&mut self.registers);
        builder.body
    }

    fn parse_statement(&mut self, builder: &mut BodyBuilder<'s>, id: FuncId) -> Result<()> {
        let token = self.tokens.peek();
        match token.kind {
            Tok::Dotted => self.parse_directive(builder),
            Tok::Name if self.tokens.peek_next().kind == Tok::Colon => self.parse_labelled(builder),
            Tok::Name | Tok::At => {
                let instruction = self.parse_instruction(builder)?;
                let function = &self.module.functions[id.index()];
                check::check_instruction(
                    &instruction,
                    &check::Context { registers: &self.registers, body: &builder.body, functions: &self.module.functions, function },
                )?;
                builder.body.instructions.push(instruction);
                Ok(())
            }
            Tok::Semicolon => {
                self.bump();
                Ok(())
            }
            _ => Err(self.unexpected("an instruction, a label or a declaration")),
        }
    }

    /// `name:`, and the tables that follow such a name.
    fn parse_labelled(&mut self, builder: &mut BodyBuilder<'s>) -> Result<()> {
        let name = self.bump();
        self.bump();
        let body = &mut builder.body;
        let meaning = if self.eat_dotted(".branchtargets") {
            let id = BranchTableId(body.branch_tables.len() as u32);
            let mut targets = Vec::new();
            loop {
                let target = self.expect_name("a label")?;
                targets.push(builder.labels.mention(target.text, target.pos));
                if !self.eat(Tok::Comma) {
                    break;
                }
            }
            self.expect_semicolon()?;
            body.branch_tables.push(BranchTable { name: name.text.into(), targets });
            Meaning::BranchTable(id)
        } else if self.eat_dotted(".calltargets") {
            let id = CallTableId(body.call_tables.len() as u32);
            let mut targets = Vec::new();
            loop {
                let target = self.expect_name("a function")?;
                match self.names.find_symbol(target.text) {
                    Some(SymbolRef::Function(function)) => targets.push(function),
                    _ => return Err(undeclared_error(target)),
                }
                if !self.eat(Tok::Comma) {
                    break;
                }
            }
            self.expect_semicolon()?;
            body.call_tables.push(CallTable { name: name.text.into(), targets });
            Meaning::CallTable(id)
        } else if self.eat_dotted(".callprototype") {
            let id = CallPrototypeId(body.call_prototypes.len() as u32);
            let prototype = self.parse_call_prototype(name)?;
            body.call_prototypes.push(prototype);
            Meaning::CallPrototype(id)
        } else {
            let target = body.instructions.len() as u32;
            return builder.labels.define(name.text, name.pos, target).map_err(|first| taken_error(name, first));
        };
        self.names.declare(name.text, meaning, name.pos).map_err(|first| taken_error(name, first))
    }

    fn parse_directive(&mut self, builder: &mut BodyBuilder<'s>) -> Result<()> {
        let token = self.bump();
        match token.text {
            ".reg" => self.parse_registers(),
            ".loc" => self.parse_line_mark(&mut builder.body),
            ".pragma" => self.parse_pragma().map(drop),
            ".file" => Err(Fail::new(token.pos, "'.file' belongs outside of functions")),
            text => {
                let word = text.get(1..).unwrap_or_default();
                let Some(space) = Self::space_of_body(word) else {
                    let problem = format!("'{text}' is not a directive of a function body");
                    return Err(Fail::new(token.pos, problem));
                };
                let before = self.pending_locals.len();
                let result = self.parse_variables(space, Linkage::Internal, Declared::InBody);
                let declared: Vec<_> = self.pending_locals.drain(before..).collect();
                for (name, variable) in declared {
                    self.place_local(builder, name, variable)?;
                }
                result
            }
        }
    }

    fn place_local(&mut self, builder: &mut BodyBuilder<'s>, name: Token<'s>, mut variable: Variable) -> Result<()> {
        let uses = builder.name_uses.entry(name.text).or_insert(0);
        *uses += 1;
        if *uses > 1 {
            variable.unique_name = format!("{}${uses}", name.text).into();
        }
        // One that the whole module has, under a name that only this body knows.
        if matches!(variable.space, StateSpace::Global | StateSpace::Const | StateSpace::ConstBank(_)) {
            let id = GlobalId(self.module.globals.len() as u32);
            self.names.declare(name.text, id.into(), name.pos).map_err(|first| taken_error(name, first))?;
            variable.name = format!("{}${}", builder.function, variable.unique_name).into();
            variable.unique_name = variable.name.clone();
            self.module.globals.push(variable);
            return Ok(());
        }
        let id = VarId(builder.body.variables.len() as u32);
        let meaning = Meaning::Symbol(SymbolRef::Local(id));
        self.names.declare(name.text, meaning, name.pos).map_err(|first| taken_error(name, first))?;
        self.local_elements.push(variable.element_size());
        builder.body.variables.push(variable);
        Ok(())
    }

    /// `.reg .b32 %r<10>, %x;` behind `.reg`.
    fn parse_registers(&mut self) -> Result<()> {
        let head = self.parse_type_head()?;
        loop {
            let name = self.expect_name("the name of a register")?;
            if self.eat(Tok::Less) {
                let count = self.parse_u32("the number of registers")?;
                self.expect(Tok::Greater, "'>'")?;
                self.names.declare_range(name.text, count, (head.ty, head.vector), name.pos).map_err(|first| taken_error(name, first))?;
            } else {
                self.declare_register(name, head.ty, head.vector)?;
            }
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.expect_semicolon()
    }

    fn declare_register(&mut self, name: Token<'s>, ty: ScalarType, vector: u8) -> Result<()> {
        let meaning = Meaning::of_register(RegId(self.registers.len() as u32), vector);
        self.names.declare(name.text, meaning, name.pos).map_err(|first| taken_error(name, first))?;
        add_register(&mut self.registers, name.text, ty, vector);
        Ok(())
    }

    /// `.loc 1 20 5, function_name label, inlined_at 1 3 2`: no semicolon.
    fn parse_line_mark(&mut self, body: &mut Body) -> Result<()> {
        let file = self.parse_u32("the file number")?;
        let line = self.parse_u32("the line")?;
        let column = self.parse_u32("the column")?;
        let mut inlined_at = None;
        while self.eat(Tok::Comma) {
            let word = self.expect_name("'function_name' or 'inlined_at'")?;
            if word.text == "function_name" {
                self.expect_name("a label")?;
                self.parse_offset()?;
            } else {
                let mut place = [0; 3];
                for number in &mut place {
                    *number = self.parse_u32("a place in a file")?;
                }
                inlined_at = Some(place);
            }
        }
        body.lines.push(LineMark { instruction: body.instructions.len() as u32, file, line, column, inlined_at });
        Ok(())
    }
}
