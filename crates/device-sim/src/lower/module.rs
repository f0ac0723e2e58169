//! Lowers a module: variables, shared memory layout, frames, then each function.

use super::body::{Finished, Lowerer, Trouble};
use super::code::{Code, Op};
use super::program::{CompileError, Kernel, Parameter, Program, Refusal, Relocation, RelocationTarget, Variable};
use super::{control, instruction};
use cumux_ptx::ast::{
    AddressBase, Body, Call, CallTarget, CallVia, FuncId, Function, FunctionKind, InitValue, Instruction, Linkage, Modifier, Module, Opcode, Operand, Param,
    Pos, StateSpace, SymbolRef,
};
use std::collections::{HashMap, HashSet};

/// What is known of all functions before any is lowered.
pub(super) struct ModulePlan<'a> {
    pub module: &'a Module,
    /// Module-level variables that lie in memory: index into the program's variables.
    pub variable_of: Vec<Option<u32>>,
    pub functions: Vec<FunctionPlan>,
    aliases: HashMap<FuncId, FuncId>,
}

impl ModulePlan<'_> {
    /// The function behind a name.
    pub fn target(&self, function: FuncId) -> FuncId {
        self.aliases.get(&function).copied().unwrap_or(function)
    }
}

/// The layout of one function's frame and shared memory.
#[derive(Debug, Default, Clone)]
pub(super) struct FunctionPlan {
    /// Offsets in the frame.
    pub params: Vec<u32>,
    pub returns: Vec<u32>,
    pub locals: HashMap<u32, u32>,
    /// Shared memory: offsets of module-level and own variables; `None` is dynamic shared memory.
    shared_globals: HashMap<u32, Option<u32>>,
    shared_locals: HashMap<u32, Option<u32>>,
    pub static_shared: u32,
    pub frame: u32,
    is_kernel: bool,
    /// Directly called functions, and whether it calls through pointers.
    calls: Vec<FuncId>,
    indirect: bool,
    uses_shared: HashSet<u32>,
}

impl FunctionPlan {
    /// `Some(None)`: dynamic shared memory.
    pub fn shared_offset(&self, plan: &ModulePlan<'_>, symbol: SymbolRef) -> Option<Option<u32>> {
        match symbol {
            SymbolRef::Global(id) if plan.module.global(id).space.is_shared() => Some(self.shared_globals.get(&id.0).copied().unwrap_or(None)),
            SymbolRef::Local(id) => self.shared_locals.get(&id.0).copied(),
            _ => None,
        }
    }

    pub fn frame_offset(&self, symbol: SymbolRef) -> Option<u32> {
        match symbol {
            SymbolRef::Local(id) => self.locals.get(&id.0).copied(),
            SymbolRef::Param(n) if !self.is_kernel => self.params.get(n as usize).copied(),
            SymbolRef::ReturnParam(n) => self.returns.get(n as usize).copied(),
            _ => None,
        }
    }
}

fn error(pos: Pos, text: impl Into<String>) -> CompileError {
    CompileError { line: pos.line, column: pos.col, text: text.into() }
}

/// All symbols that an operand mentions.
fn symbols(operand: &Operand, found: &mut impl FnMut(SymbolRef)) {
    match operand {
        Operand::Symbol { symbol, .. } | Operand::Address { base: AddressBase::Symbol(symbol), .. } => found(*symbol),
        Operand::Vector(parts) | Operand::Bracket(parts) => parts.iter().for_each(|part| symbols(part, found)),
        Operand::Pair(pair) => {
            symbols(&pair.0, found);
            symbols(&pair.1, found);
        }
        _ => {}
    }
}

/// Frame layout of parameters: those given, then those returned.
fn parameter_offsets(params: &[Param], returns: &[Param]) -> (Vec<u32>, Vec<u32>, u32) {
    let mut at = 0u32;
    let mut place = |bytes: u64, align: u32| {
        at = at.next_multiple_of(align.max(1));
        let offset = at;
        at += bytes as u32;
        offset
    };
    let params = params.iter().map(|p| place(p.size, p.align)).collect();
    let returns = returns.iter().map(|p| place(p.size, p.align)).collect();
    (params, returns, at)
}

fn plan_function(module: &Module, function: &Function) -> Result<FunctionPlan, CompileError> {
    let (params, returns, mut at) = parameter_offsets(&function.params, &function.returns);
    let is_kernel = function.kind == FunctionKind::Entry;
    if is_kernel {
        at = 0;
    }
    let mut plan = FunctionPlan { params, returns, is_kernel, ..FunctionPlan::default() };
    let Some(body) = &function.body else {
        plan.frame = at.next_multiple_of(16);
        return Ok(plan);
    };
    let mut shared = 0u32;
    for (n, variable) in body.variables.iter().enumerate() {
        let n = n as u32;
        match variable.space {
            StateSpace::Local => {
                at = at.next_multiple_of(variable.align.max(1));
                plan.locals.insert(n, at);
                let end = u64::from(at) + variable.size;
                at = u32::try_from(end).ok().filter(|end| *end < 1 << 28).ok_or_else(|| error(variable.pos, "too much local memory"))?;
            }
            space if space.is_shared() && variable.unsized_array => {
                plan.shared_locals.insert(n, None);
            }
            space if space.is_shared() => {
                shared = shared.next_multiple_of(variable.align.max(1));
                plan.shared_locals.insert(n, Some(shared));
                let end = u64::from(shared) + variable.size;
                shared = u32::try_from(end).ok().filter(|end| *end < 1 << 24).ok_or_else(|| error(variable.pos, "too much shared memory"))?;
            }
            _ => {}
        }
    }
    plan.frame = at.next_multiple_of(16);
    plan.static_shared = shared;
    for instruction in &body.instructions {
        if let [Operand::Call(call)] = instruction.operands.as_slice() {
            match call.target {
                CallTarget::Function(id) => plan.calls.push(id),
                CallTarget::Register(_) => plan.indirect = true,
            }
        }
        for operand in &instruction.operands {
            if let Operand::Call(call) = operand {
                place_arguments(module, body, call, &mut plan).map_err(|text| error(instruction.pos, text))?;
            }
            symbols(operand, &mut |symbol| {
                if let SymbolRef::Global(id) = symbol
                    && module.global(id).space.is_shared()
                {
                    plan.uses_shared.insert(id.0);
                }
            });
        }
    }
    Ok(plan)
}

/// Parameters and results of what a call calls, as offsets behind the caller's frame.
pub(super) fn callee_offsets(module: &Module, body: &Body, call: &Call) -> (Vec<u32>, Vec<u32>, u32) {
    match (&call.target, &call.via) {
        (CallTarget::Function(id), _) => parameter_offsets(&module.function(*id).params, &module.function(*id).returns),
        (_, Some(CallVia::Prototype(id))) => {
            let prototype = &body.call_prototypes[id.index()];
            parameter_offsets(&prototype.params, &prototype.returns)
        }
        (_, Some(CallVia::Targets(id))) => match body.call_tables[id.index()].targets.first() {
            Some(first) => parameter_offsets(&module.function(*first).params, &module.function(*first).returns),
            None => (Vec::new(), Vec::new(), 0),
        },
        (_, None) => (Vec::new(), Vec::new(), 0),
    }
}

/// The blocks around a call lie where the callee's frame will be: arguments are written in place.
fn place_arguments(module: &Module, body: &Body, call: &Call, plan: &mut FunctionPlan) -> Result<(), String> {
    let (params, returns, _) = callee_offsets(module, body, call);
    for (operand, at) in call.args.iter().zip(&params).chain(call.returns.iter().zip(&returns)) {
        if let Operand::Symbol { symbol: SymbolRef::Local(id), .. } = operand {
            let place = plan.frame + at;
            if plan.locals.insert(id.0, place).is_some_and(|other| other != place) {
                return Err(format!("{} is used in two calls at different places", body.variable(*id).name));
            }
        }
    }
    Ok(())
}

/// Functions that a kernel may run, itself included.
fn reach(plan: &ModulePlan<'_>, from: FuncId) -> HashSet<FuncId> {
    let mut seen = HashSet::new();
    let mut todo = vec![from];
    while let Some(next) = todo.pop() {
        let next = plan.target(next);
        if !seen.insert(next) {
            continue;
        }
        let function = &plan.functions[next.index()];
        todo.extend(&function.calls);
        if function.indirect {
            let all = (0..plan.module.functions.len() as u32).map(FuncId);
            todo.extend(all.filter(|id| plan.module.function(*id).kind == FunctionKind::Func));
        }
    }
    seen
}

/// Module-level shared variables: those that functions use have one place for all kernels, at the beginning.
fn lay_out_shared(plan: &mut ModulePlan<'_>) -> Result<(), CompileError> {
    let module = plan.module;
    let ids: Vec<FuncId> = (0..module.functions.len() as u32).map(FuncId).collect();
    let mut common = HashMap::new();
    let mut end = 0u32;
    for (n, variable) in module.globals.iter().enumerate() {
        let n = n as u32;
        let used = ids.iter().any(|id| !plan.functions[id.index()].is_kernel && plan.functions[id.index()].uses_shared.contains(&n));
        if !variable.space.is_shared() || !used {
            continue;
        }
        let at = if variable.unsized_array {
            None
        } else {
            let at = end.next_multiple_of(variable.align.max(1));
            end = u32::try_from(u64::from(at) + variable.size).map_err(|_| error(variable.pos, "too much shared memory"))?;
            Some(at)
        };
        common.insert(n, at);
    }
    for id in ids {
        let reached = reach(plan, id);
        let reaches_common = reached.iter().any(|f| !plan.functions[f.index()].is_kernel && !plan.functions[f.index()].uses_shared.is_empty());
        let function = &mut plan.functions[id.index()];
        function.shared_globals.clone_from(&common);
        if !function.is_kernel {
            continue;
        }
        let mut at = if reaches_common || function.uses_shared.iter().any(|n| common.contains_key(n)) { end } else { 0 };
        let mut own: Vec<u32> = function.uses_shared.iter().copied().filter(|n| !common.contains_key(n)).collect();
        own.sort_unstable();
        for n in own {
            let variable = &module.globals[n as usize];
            if variable.unsized_array {
                function.shared_globals.insert(n, None);
                continue;
            }
            at = at.next_multiple_of(variable.align.max(1));
            function.shared_globals.insert(n, Some(at));
            at = u32::try_from(u64::from(at) + variable.size).map_err(|_| error(variable.pos, "too much shared memory"))?;
        }
        // The function's own variables come behind.
        if at > 0 && function.static_shared > 0 {
            at = at.next_multiple_of(128);
            for offset in function.shared_locals.values_mut().flatten() {
                *offset += at;
            }
        }
        function.static_shared += at;
    }
    Ok(())
}

fn variables(module: &Module) -> (Vec<Variable>, Vec<Option<u32>>, Option<CompileError>) {
    let mut out = Vec::new();
    let mut of = Vec::new();
    let mut trouble = None;
    for variable in &module.globals {
        let in_memory = variable.space == StateSpace::Global || variable.space.is_const();
        if !in_memory || variable.unsized_array {
            of.push(None);
            continue;
        }
        if variable.linkage == Linkage::Extern {
            trouble = trouble.or(Some(error(variable.pos, format!("{} is defined in another module; separate modules are not linked", variable.name))));
        }
        of.push(Some(out.len() as u32));
        out.push(Variable {
            name: variable.name.to_string(),
            bytes: variable.size,
            align: variable.align.max(1).into(),
            constant: variable.space.is_const(),
            managed: variable.managed,
            visible: variable.linkage != Linkage::Internal,
            initial: Vec::new(),
            relocations: Vec::new(),
        });
    }
    (out, of, trouble)
}

fn initial_values(module: &Module, of: &[Option<u32>], out: &mut [Variable]) {
    for (n, variable) in module.globals.iter().enumerate() {
        let Some(at) = of[n] else { continue };
        let into = &mut out[at as usize];
        for entry in &variable.init {
            match &entry.value {
                InitValue::Bits(bits) => {
                    let end = (entry.offset + u64::from(entry.size)).min(variable.size) as usize;
                    if into.initial.len() < end {
                        into.initial.resize(end, 0);
                    }
                    let from = entry.offset as usize;
                    let count = end.saturating_sub(from).min(8);
                    into.initial[from..from + count].copy_from_slice(&bits.to_le_bytes()[..count]);
                }
                InitValue::Address { symbol, offset, mask, .. } => {
                    let target = match symbol {
                        SymbolRef::Global(id) => of[id.index()].map(|v| RelocationTarget::Variable(v as usize)),
                        SymbolRef::Function(id) => Some(RelocationTarget::Function(id.index())),
                        _ => None,
                    };
                    if let Some(target) = target {
                        into.relocations.push(Relocation { offset: entry.offset, bytes: entry.size, target, addend: *offset, mask: *mask });
                    }
                }
            }
        }
    }
}

/// Whether an instruction can be seen by others before the block ends, or cannot be done twice.
fn repeatable(instruction: &Instruction) -> bool {
    use cumux_ptx::ast::MemoryOrder;
    let space = instruction.space();
    let near = space.is_some_and(|space| space.is_shared() || matches!(space, StateSpace::Local) || space.is_param());
    match instruction.opcode {
        Opcode::Atom | Opcode::Red => near,
        Opcode::Ld | Opcode::St => near || matches!(instruction.order(), None | Some(MemoryOrder::Weak)),
        Opcode::Fence | Opcode::Membar => !matches!(instruction.modifiers.first(), Some(Modifier::Scope(cumux_ptx::ast::Scope::Sys))),
        _ => true,
    }
}

/// 32-bit registers that a block may have.
const REGISTERS_OF_A_BLOCK: u32 = 65536;

struct Built {
    code: Code,
    refused: Option<Refusal>,
    repeatable: bool,
    registers: u32,
}

/// Text to program.
pub(super) fn lower(text: &str) -> Result<Program, CompileError> {
    let module = cumux_ptx::parse(text).map_err(|errors| {
        let first = errors.diagnostics.first();
        let pos = first.map(|d| d.pos).unwrap_or_default();
        error(pos, first.map_or_else(|| "not a PTX module".to_owned(), |d| d.render(text).trim_end().to_owned()))
    })?;
    lower_module(&module)
}

fn lower_module(module: &Module) -> Result<Program, CompileError> {
    let (mut variables, variable_of, trouble) = variables(module);
    if let Some(trouble) = trouble {
        return Err(trouble);
    }
    initial_values(module, &variable_of, &mut variables);
    let functions = module.functions.iter().map(|f| plan_function(module, f)).collect::<Result<Vec<_>, _>>()?;
    let mut plan = ModulePlan { module, variable_of, functions, aliases: module.aliases.iter().copied().collect() };
    lay_out_shared(&mut plan)?;

    let mut program = Program {
        kernels: Vec::new(),
        variables,
        ptx_version: module.version.0 * 10 + module.version.1,
        target: module.target.arch,
        functions: Vec::new(),
        code: Vec::new(),
        origins: Vec::new(),
        mnemonics: Vec::new(),
        tables: Vec::new(),
    };
    let mut mnemonics = HashMap::new();
    let mut built = Vec::new();
    for (n, function) in module.functions.iter().enumerate() {
        built.push(lower_function(&plan, FuncId(n as u32), function, &mut program, &mut mnemonics)?);
    }
    let constant_bytes: u64 = program.variables.iter().filter(|v| v.constant).map(|v| v.bytes).sum();
    for (n, function) in module.functions.iter().enumerate() {
        if function.kind == FunctionKind::Entry && function.body.is_some() {
            program.kernels.push(kernel(&plan, FuncId(n as u32), function, &built, constant_bytes as u32));
        }
    }
    program.functions = built.into_iter().map(|b| b.code).collect();
    Ok(program)
}

fn lower_function(
    plan: &ModulePlan<'_>,
    id: FuncId,
    function: &Function,
    program: &mut Program,
    mnemonics: &mut HashMap<String, u32>,
) -> Result<Built, CompileError> {
    let own = &plan.functions[id.index()];
    let Some(body) = &function.body else {
        let code = Code { name: function.name.to_string(), entry: u32::MAX, frame: own.frame, ..Code::default() };
        return Ok(Built { code, refused: None, repeatable: true, registers: 0 });
    };
    let entry = program.code.len() as u32;
    let mut refused: Option<Refusal> = None;
    let mut lowerer = Lowerer::new(plan, id, body, &mut program.code, &mut program.origins);
    let mut places = Vec::with_capacity(body.instructions.len() + 1);
    control::prologue(&mut lowerer, function).map_err(|trouble| explain(trouble, function.pos))?;
    for tree in &body.instructions {
        places.push(lowerer.insts.len() as u32);
        let text = tree.mnemonic();
        let known = mnemonics.len() as u32;
        let mnemonic = *mnemonics.entry(text).or_insert_with_key(|text| {
            program.mnemonics.push(text.clone());
            known
        });
        let before = lowerer.insts.len();
        let done = lowerer.begin(tree, mnemonic).and_then(|()| instruction::lower(&mut lowerer, tree));
        match done {
            Ok(()) => {}
            Err(trouble @ (Trouble::Refused | Trouble::Named(_))) => {
                let instruction = if let Trouble::Named(name) = trouble { name } else { tree.mnemonic() };
                lowerer.insts.truncate(before);
                lowerer.origins.truncate(before);
                lowerer.fixups.retain(|(at, _)| *at < before);
                lowerer.table_fixups.retain(|(at, _)| *at < before);
                lowerer.emit(Op::Refused);
                refused = refused.or(Some(Refusal { line: tree.pos.line, instruction }));
            }
            Err(trouble) => return Err(explain(trouble, tree.pos)),
        }
    }
    places.push(lowerer.insts.len() as u32);
    // Falling off the end is a return.
    let end = Instruction { pos: body.end, guard: None, opcode: Opcode::Ret, modifiers: Vec::new(), operands: Vec::new() };
    let done = lowerer.begin(&end, 0).and_then(|()| instruction::lower(&mut lowerer, &end));
    done.map_err(|trouble| explain(trouble, body.end))?;
    let Finished { mut code, branches, tables } = lowerer.finish(&function.name).map_err(|trouble| explain(trouble, function.pos))?;
    for (at, label) in branches {
        let target = places[body.label(label).target as usize];
        if let Op::Branch(to) = &mut program.code[at].op {
            *to = target;
        }
    }
    for (at, labels) in tables {
        if let Op::BranchTable { table, .. } = &mut program.code[at].op {
            *table = program.tables.len() as u32;
        }
        program.tables.push(labels.iter().map(|label| places[body.label(*label).target as usize]).collect());
    }
    code.entry = entry;
    code.end = program.code.len() as u32;
    code.frame = own.frame;
    let registers = code.slots32 + 2 * code.slots64;
    Ok(Built { code, refused, repeatable: body.instructions.iter().all(repeatable), registers })
}

fn explain(trouble: Trouble, pos: Pos) -> CompileError {
    match trouble {
        Trouble::Refused | Trouble::Named(_) => error(pos, "not executed by the software GPU"),
        Trouble::Wrong(text) => error(pos, text),
    }
}

/// Most bytes of frames from here down, if there is no recursion and no indirect call.
fn depth(plan: &ModulePlan<'_>, function: FuncId, path: &mut Vec<FuncId>) -> Option<u32> {
    let function = plan.target(function);
    if path.contains(&function) || path.len() > 64 || plan.functions[function.index()].indirect {
        return None;
    }
    path.push(function);
    let own = &plan.functions[function.index()];
    let mut calls = own.calls.clone();
    calls.sort_unstable();
    calls.dedup();
    let deepest = calls.into_iter().map(|callee| depth(plan, callee, path)).try_fold(0, |most, one| Some(one?.max(most)));
    path.pop();
    Some(own.frame + deepest?)
}

fn kernel(plan: &ModulePlan<'_>, id: FuncId, function: &Function, built: &[Built], constant_bytes: u32) -> Kernel {
    let own = &plan.functions[id.index()];
    let reached = reach(plan, id);
    let each = |f: &FuncId| &built[f.index()];
    let refused = reached.iter().filter_map(|f| each(f).refused.clone()).min_by_key(|r| r.line);
    // printf, malloc and the like cannot be done twice.
    let intrinsics = reached.iter().any(|f| plan.module.function(*f).body.is_none());
    let known = depth(plan, id, &mut Vec::new());
    let registers = reached.iter().map(|f| each(f).registers).max().unwrap_or(0);
    let directives = &function.directives;
    let product = |n: [u32; 3]| n.iter().fold(1u32, |all, n| all.saturating_mul((*n).max(1)));
    let max_threads = directives.reqntid.or(directives.maxntid).map_or(1024, product).clamp(1, 1024);
    // As a compiler would: the largest block must fit into the registers of an SM.
    let most = (REGISTERS_OF_A_BLOCK / max_threads / 8 * 8).clamp(16, 255);
    Kernel {
        name: function.name.to_string(),
        parameters: function.params.iter().map(|p| Parameter { offset: p.offset as u32, bytes: p.size as u32 }).collect(),
        parameter_bytes: function.params_size as u32,
        static_shared: own.static_shared,
        constant_bytes,
        // Without a known depth the launch adds its stack limit.
        local_bytes: known.unwrap_or(own.frame),
        registers: registers.next_multiple_of(8).clamp(16, most),
        max_threads,
        required_block: directives.reqntid.unwrap_or_default(),
        cluster: directives.reqnctapercluster.unwrap_or_default(),
        repeatable: !intrinsics && reached.iter().all(|f| each(f).repeatable),
        refused,
        function: id.0,
        calls: known.is_none(),
    }
}
