//! Questions that walkers of the tree ask often.

use super::*;

impl Module {
    /// A module-level variable.
    pub fn global(&self, id: GlobalId) -> &Variable {
        &self.globals[id.index()]
    }

    /// A kernel or function.
    pub fn function(&self, id: FuncId) -> &Function {
        &self.functions[id.index()]
    }

    /// A function or kernel by its name.
    pub fn find_function(&self, name: &str) -> Option<FuncId> {
        let at = self.functions.iter().position(|f| &*f.name == name)?;
        Some(FuncId(at as u32))
    }

    /// A module-level variable by its name.
    pub fn find_global(&self, name: &str) -> Option<GlobalId> {
        let at = self.globals.iter().position(|v| &*v.name == name)?;
        Some(GlobalId(at as u32))
    }

    /// Kernels that have a body.
    pub fn kernels(&self) -> impl Iterator<Item = (FuncId, &Function)> {
        self.functions.iter().enumerate().filter(|(_, f)| f.kind == FunctionKind::Entry && f.body.is_some()).map(|(at, f)| (FuncId(at as u32), f))
    }

    /// Functions that are declared but have no body here: vprintf, malloc, free, …
    pub fn prototypes(&self) -> impl Iterator<Item = (FuncId, &Function)> {
        self.functions.iter().enumerate().filter(|(_, f)| f.body.is_none()).map(|(at, f)| (FuncId(at as u32), f))
    }
}

impl Variable {
    /// Bytes of one element (of the whole vector for a vector type).
    pub fn element_size(&self) -> u64 {
        u64::from(self.ty.bytes()) * u64::from(self.vector)
    }
}

impl Body {
    /// A register of the body.
    pub fn register(&self, id: RegId) -> &Register {
        &self.registers[id.index()]
    }

    /// A variable of the body.
    pub fn variable(&self, id: VarId) -> &Variable {
        &self.variables[id.index()]
    }

    /// A label of the body.
    pub fn label(&self, id: LabelId) -> &Label {
        &self.labels[id.index()]
    }

    /// The source line of an instruction, if the module has line information.
    pub fn line_of(&self, instruction: u32) -> Option<&LineMark> {
        let after = self.lines.partition_point(|mark| mark.instruction <= instruction);
        self.lines[..after].last()
    }
}

impl Instruction {
    /// Whether a modifier is written.
    pub fn has(&self, word: Word) -> bool {
        self.modifiers.iter().any(|m| matches!(m, Modifier::Word(w) if *w == word))
    }

    /// The types written, in order.
    pub fn types(&self) -> impl Iterator<Item = ScalarType> + '_ {
        self.modifiers.iter().filter_map(|m| match m {
            Modifier::Type(ty) => Some(*ty),
            _ => None,
        })
    }

    /// The `n`-th type written, from 0.
    pub fn ty(&self, n: usize) -> Option<ScalarType> {
        self.types().nth(n)
    }

    /// 1 without `.v2` and the like.
    pub fn vector(&self) -> u8 {
        self.modifiers
            .iter()
            .find_map(|m| match m {
                Modifier::Vector(n) => Some(*n),
                _ => None,
            })
            .unwrap_or(1)
    }

    /// The state space written.
    pub fn space(&self) -> Option<StateSpace> {
        self.modifiers.iter().find_map(|m| match m {
            Modifier::Space(space) => Some(*space),
            _ => None,
        })
    }

    /// The rounding written.
    pub fn rounding(&self) -> Option<Rounding> {
        self.modifiers.iter().find_map(|m| match m {
            Modifier::Round(rounding) => Some(*rounding),
            _ => None,
        })
    }

    /// The comparison written.
    pub fn cmp(&self) -> Option<CmpOp> {
        self.modifiers.iter().find_map(|m| match m {
            Modifier::Cmp(op) => Some(*op),
            _ => None,
        })
    }

    /// How the result is joined with a predicate.
    pub fn bool_op(&self) -> Option<BoolOp> {
        self.modifiers.iter().find_map(|m| match m {
            Modifier::Bool(op) => Some(*op),
            _ => None,
        })
    }

    /// The operation of an atomic, a reduction or a video instruction.
    pub fn reduce(&self) -> Option<ReduceOp> {
        self.modifiers.iter().find_map(|m| match m {
            Modifier::Reduce(op) => Some(*op),
            _ => None,
        })
    }

    /// The memory ordering written.
    pub fn order(&self) -> Option<MemoryOrder> {
        self.modifiers.iter().find_map(|m| match m {
            Modifier::Order(order) => Some(*order),
            _ => None,
        })
    }

    /// The scope of the memory ordering.
    pub fn scope(&self) -> Option<Scope> {
        self.modifiers.iter().find_map(|m| match m {
            Modifier::Scope(scope) => Some(*scope),
            _ => None,
        })
    }

    /// The cache operator written.
    pub fn cache(&self) -> Option<CacheOp> {
        self.modifiers.iter().find_map(|m| match m {
            Modifier::Cache(op) => Some(*op),
            _ => None,
        })
    }

    /// The mnemonic with its modifiers, as written: `cp.async.ca.shared.global`.
    pub fn mnemonic(&self) -> String {
        let mut text = String::from(self.opcode.name());
        for modifier in &self.modifiers {
            text.push('.');
            match modifier {
                Modifier::Type(ty) => text.push_str(ty.name()),
                Modifier::Vector(n) => text.push_str(&format!("v{n}")),
                Modifier::Space(space) => text.push_str(space.name()),
                Modifier::Round(rounding) => text.push_str(rounding.name()),
                Modifier::Cmp(op) => text.push_str(op.name()),
                Modifier::Bool(op) => text.push_str(op.name()),
                Modifier::Reduce(op) => text.push_str(op.name()),
                Modifier::Order(order) => text.push_str(order.name()),
                Modifier::Scope(Scope::Gpu) if self.opcode == Opcode::Membar => text.push_str("gl"),
                Modifier::Scope(scope) => text.push_str(scope.name()),
                Modifier::Cache(op) => text.push_str(op.name()),
                Modifier::Word(word) => text.push_str(word.name()),
                Modifier::Hint(hint) => text.push_str(hint),
                Modifier::Other(other) => text.push_str(other),
            }
        }
        text
    }
}

impl Imm {
    /// The bits of this literal as a value of `ty`: floating-point literals are rounded to the
    /// width of a floating type, integers are cut to the width of the type. An integer literal
    /// where a float is wanted is its value for `.f32` and `.f64`; for the 16-bit floats it is
    /// the bit pattern.
    pub fn bits(self, ty: ScalarType) -> u64 {
        let wide = match (self, ty) {
            (Self::Int(n), ScalarType::F32) => u64::from((n as f32).to_bits()),
            (Self::Int(n), ScalarType::F64) => (n as f64).to_bits(),
            (Self::Int(n), _) => n as u64,
            (Self::F32(bits), ScalarType::F64) => f64::from(f32::from_bits(bits)).to_bits(),
            (Self::F32(bits), _) => u64::from(bits),
            (Self::F64(bits), ScalarType::F32) => u64::from((f64::from_bits(bits) as f32).to_bits()),
            (Self::F64(bits), _) => bits,
        };
        match ty.bits() {
            64.. => wide,
            1 => u64::from(wide != 0),
            width => wide & ((1 << width) - 1),
        }
    }
}
