//! Instructions as text again, for messages and tests: canonical spacing, resolved names.

use super::{AddressBase, Axis, Body, Call, CallTarget, CallVia, Function, Imm, Instruction, Module, Operand, Selector, SpecialReg, SymbolRef};
use std::fmt::Write;

/// What names mean in one function.
struct Printer<'a> {
    module: &'a Module,
    function: &'a Function,
    body: &'a Body,
    out: String,
}

impl Module {
    /// An instruction of `function`'s body as PTX, without the semicolon; numbers in decimal.
    pub fn instruction_text(&self, function: &Function, instruction: &Instruction) -> String {
        let Some(body) = &function.body else {
            return instruction.mnemonic();
        };
        let mut printer = Printer { module: self, function, body, out: String::new() };
        if let Some(guard) = instruction.guard {
            let bang = if guard.negated { "!" } else { "" };
            let name = &body.register(guard.register).name;
            printer.put_text(&format!("@{bang}{name} "));
        }
        printer.put_text(&instruction.mnemonic());
        if !instruction.operands.is_empty() {
            printer.put_text(" ");
            printer.put_list(&instruction.operands);
        }
        printer.out
    }
}

impl Printer<'_> {
    fn put_text(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn put_list(&mut self, operands: &[Operand]) {
        for (at, operand) in operands.iter().enumerate() {
            if at > 0 {
                self.put_text(", ");
            }
            self.put_operand(operand);
        }
    }

    fn put_symbol(&mut self, symbol: SymbolRef) {
        let name = match symbol {
            SymbolRef::Global(id) => &self.module.global(id).name,
            SymbolRef::Function(id) => &self.module.function(id).name,
            SymbolRef::Local(id) => &self.body.variable(id).name,
            SymbolRef::Param(at) => &self.function.params[at as usize].name,
            SymbolRef::ReturnParam(at) => &self.function.returns[at as usize].name,
        };
        self.out.push_str(name);
    }

    fn put_offset(&mut self, offset: i64) {
        if offset != 0 {
            // Writing to a string cannot fail.
            let _ = write!(self.out, "+{offset}");
        }
    }

    fn put_operand(&mut self, operand: &Operand) {
        let body = self.body;
        match operand {
            Operand::Reg(id) => self.put_text(&body.register(*id).name),
            Operand::NotReg(id) => self.put_text(&format!("!{}", body.register(*id).name)),
            Operand::Sum { register, offset } => self.put_text(&format!("{}{offset:+}", body.register(*register).name)),
            Operand::Imm(imm) => self.put_text(&imm_text(*imm)),
            Operand::Special(special) => self.put_text(&special_text(*special)),
            Operand::Symbol { symbol, offset } => {
                self.put_symbol(*symbol);
                self.put_offset(*offset);
            }
            Operand::Address { base, offset } => {
                self.put_text("[");
                match base {
                    AddressBase::Reg(id) => self.put_text(&body.register(*id).name),
                    AddressBase::Symbol(symbol) => self.put_symbol(*symbol),
                    AddressBase::Absolute(address) => self.put_text(&address.to_string()),
                }
                self.put_offset(*offset);
                self.put_text("]");
            }
            Operand::Vector(elements) => {
                self.put_text("{");
                self.put_list(elements);
                self.put_text("}");
            }
            Operand::Bracket(parts) => {
                self.put_text("[");
                self.put_list(parts);
                self.put_text("]");
            }
            Operand::Label(id) => self.put_text(&body.label(*id).name),
            Operand::BranchTable(id) => self.put_text(&body.branch_tables[id.index()].name),
            Operand::Pair(pair) => {
                self.put_operand(&pair.0);
                self.put_text("|");
                self.put_operand(&pair.1);
            }
            Operand::Sink => self.put_text("_"),
            Operand::Selected { register, selector, negated } => {
                let sign = if *negated { "-" } else { "" };
                let name = &body.register(*register).name;
                self.put_text(&format!("{sign}{name}"));
                if let Some(selector) = selector {
                    self.put_text(&selector_text(*selector));
                }
            }
            Operand::Call(call) => self.put_call(call),
        }
    }

    fn put_call(&mut self, call: &Call) {
        let body = self.body;
        if !call.returns.is_empty() {
            self.put_text("(");
            self.put_list(&call.returns);
            self.put_text("), ");
        }
        match call.target {
            CallTarget::Function(id) => self.put_symbol(SymbolRef::Function(id)),
            CallTarget::Register(id) => self.put_text(&body.register(id).name),
        }
        if !call.args.is_empty() {
            self.put_text(", (");
            self.put_list(&call.args);
            self.put_text(")");
        }
        match call.via {
            Some(CallVia::Prototype(id)) => {
                self.put_text(&format!(", {}", body.call_prototypes[id.index()].name));
            }
            Some(CallVia::Targets(id)) => {
                self.put_text(&format!(", {}", body.call_tables[id.index()].name));
            }
            None => {}
        }
    }
}

fn imm_text(imm: Imm) -> String {
    match imm {
        Imm::Int(n) => n.to_string(),
        Imm::F32(bits) => format!("0f{bits:08X}"),
        Imm::F64(bits) => format!("0d{bits:016X}"),
    }
}

fn selector_text(selector: Selector) -> String {
    match selector {
        Selector::Byte(n) => format!(".b{n}"),
        Selector::Half(n) => format!(".h{n}"),
        Selector::Halves([a, b]) => format!(".h{a}{b}"),
        Selector::Bytes([a, b, c, d]) => format!(".b{a}{b}{c}{d}"),
    }
}

fn special_text(special: SpecialReg) -> String {
    use SpecialReg as S;
    let axis = |name: &str, axis: Axis| {
        let letter = match axis {
            Axis::X => "x",
            Axis::Y => "y",
            Axis::Z => "z",
            Axis::W => "w",
        };
        format!("%{name}.{letter}")
    };
    let plain = match special {
        S::Tid(a) => return axis("tid", a),
        S::Ntid(a) => return axis("ntid", a),
        S::Ctaid(a) => return axis("ctaid", a),
        S::Nctaid(a) => return axis("nctaid", a),
        S::ClusterId(a) => return axis("clusterid", a),
        S::NclusterId(a) => return axis("nclusterid", a),
        S::ClusterCtaid(a) => return axis("cluster_ctaid", a),
        S::ClusterNctaid(a) => return axis("cluster_nctaid", a),
        S::Pm(n) => return format!("%pm{n}"),
        S::Pm64(n) => return format!("%pm{n}_64"),
        S::Envreg(n) => return format!("%envreg{n}"),
        S::ReservedSmemOffset(n) => return format!("%reserved_smem_offset_{n}"),
        S::ClusterCtarank => "cluster_ctarank",
        S::ClusterNctarank => "cluster_nctarank",
        S::IsExplicitCluster => "is_explicit_cluster",
        S::Laneid => "laneid",
        S::Warpid => "warpid",
        S::Nwarpid => "nwarpid",
        S::Smid => "smid",
        S::Nsmid => "nsmid",
        S::Gridid => "gridid",
        S::LanemaskEq => "lanemask_eq",
        S::LanemaskLe => "lanemask_le",
        S::LanemaskLt => "lanemask_lt",
        S::LanemaskGe => "lanemask_ge",
        S::LanemaskGt => "lanemask_gt",
        S::Clock => "clock",
        S::ClockHi => "clock_hi",
        S::Clock64 => "clock64",
        S::Globaltimer => "globaltimer",
        S::GlobaltimerLo => "globaltimer_lo",
        S::GlobaltimerHi => "globaltimer_hi",
        S::ReservedSmemOffsetBegin => "reserved_smem_offset_begin",
        S::ReservedSmemOffsetEnd => "reserved_smem_offset_end",
        S::ReservedSmemOffsetCap => "reserved_smem_offset_cap",
        S::TotalSmemSize => "total_smem_size",
        S::AggrSmemSize => "aggr_smem_size",
        S::DynamicSmemSize => "dynamic_smem_size",
        S::CurrentGraphExec => "current_graph_exec",
    };
    format!("%{plain}")
}
