//! Plans a module before any function is lowered: frames, shared memory, and which function calls
//! which.

use super::error::{CompileError, compile_error};
use cumux_ptx::ast::{AddressBase, Body, Call, CallTarget, CallVia, FuncId, Function, FunctionKind, Module, Operand, Param, StateSpace, SymbolRef};
use std::collections::{HashMap, HashSet};

/// What is known of all functions before any is lowered.
pub(super) struct ModulePlan<'a> {
    pub module: &'a Module,
    /// For each module-level variable in memory: its index among the program's variables.
    pub variable_of: Vec<Option<u32>>,
    pub functions: Vec<FunctionPlan>,
    pub aliases: HashMap<FuncId, FuncId>,
}

impl ModulePlan<'_> {
    /// The function that a name stands for: its definition, if it is only declared here.
    pub fn target(&self, function: FuncId) -> FuncId {
        self.aliases.get(&function).copied().unwrap_or(function)
    }
}

/// The layout of one function's frame and shared memory, and its calls.
#[derive(Debug, Default, Clone)]
pub(super) struct FunctionPlan {
    /// Offsets of names in the frame, in bytes.
    pub params: Vec<u32>,
    pub returns: Vec<u32>,
    pub locals: HashMap<u32, u32>,
    /// Offsets of module-level and own variables in shared memory, in bytes; `None` is dynamic
    /// shared memory.
    shared_globals: HashMap<u32, Option<u32>>,
    shared_locals: HashMap<u32, Option<u32>>,
    pub static_shared: u32,
    pub frame: u32,
    is_kernel: bool,
    /// The functions that it calls by name.
    calls: Vec<FuncId>,
    indirect: bool,
    uses_shared: HashSet<u32>,
}

impl FunctionPlan {
    /// Where a name lies in shared memory, in bytes; `Some(None)` is dynamic shared memory.
    pub fn shared_offset(&self, plan: &ModulePlan<'_>, symbol: SymbolRef) -> Option<Option<u32>> {
        match symbol {
            SymbolRef::Global(id) if plan.module.global(id).space.is_shared() => Some(self.shared_globals.get(&id.0).copied().unwrap_or(None)),
            SymbolRef::Local(id) => self.shared_locals.get(&id.0).copied(),
            _ => None,
        }
    }

    /// Where a name lies in the frame, in bytes.
    pub fn frame_offset(&self, symbol: SymbolRef) -> Option<u32> {
        match symbol {
            SymbolRef::Local(id) => self.locals.get(&id.0).copied(),
            SymbolRef::Param(n) if !self.is_kernel => self.params.get(n as usize).copied(),
            SymbolRef::ReturnParam(n) => self.returns.get(n as usize).copied(),
            _ => None,
        }
    }
}

/// Calls `found` with each symbol of an operand.
fn visit_symbols(operand: &Operand, found: &mut impl FnMut(SymbolRef)) {
    match operand {
        Operand::Symbol { symbol, .. } | Operand::Address { base: AddressBase::Symbol(symbol), .. } => found(*symbol),
        Operand::Vector(parts) | Operand::Bracket(parts) => parts.iter().for_each(|part| visit_symbols(part, found)),
        Operand::Pair(pair) => {
            visit_symbols(&pair.0, found);
            visit_symbols(&pair.1, found);
        }
        _ => {}
    }
}

/// Offsets of parameters and then results in a frame, and their bytes.
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

/// Lays out a function's frame and shared memory, and finds its calls.
pub(super) fn plan_function(module: &Module, function: &Function) -> Result<FunctionPlan, CompileError> {
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
                at = u32::try_from(end).ok().filter(|end| *end < 1 << 28).ok_or_else(|| compile_error(variable.pos, "too much local memory"))?;
            }
            space if space.is_shared() && variable.unsized_array => {
                plan.shared_locals.insert(n, None);
            }
            space if space.is_shared() => {
                shared = shared.next_multiple_of(variable.align.max(1));
                plan.shared_locals.insert(n, Some(shared));
                let end = u64::from(shared) + variable.size;
                shared = u32::try_from(end).ok().filter(|end| *end < 1 << 24).ok_or_else(|| compile_error(variable.pos, "too much shared memory"))?;
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
                place_arguments(module, body, call, &mut plan).map_err(|text| compile_error(instruction.pos, text))?;
            }
            visit_symbols(operand, &mut |symbol| {
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

/// Offsets of a call's arguments and results behind the caller's frame, and their bytes.
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

/// Puts the variables that a call passes where the callee's frame will be, so that arguments are
/// written in place.
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

/// The functions that a kernel may run, itself included.
pub(super) fn reachable_functions(plan: &ModulePlan<'_>, from: FuncId) -> HashSet<FuncId> {
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

/// Lays out shared memory. Module-level variables that functions use lie at the beginning, at the
/// same offset for all kernels.
pub(super) fn lay_out_shared(plan: &mut ModulePlan<'_>) -> Result<(), CompileError> {
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
            end = u32::try_from(u64::from(at) + variable.size).map_err(|_| compile_error(variable.pos, "too much shared memory"))?;
            Some(at)
        };
        common.insert(n, at);
    }
    for id in ids {
        let reached = reachable_functions(plan, id);
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
            at = u32::try_from(u64::from(at) + variable.size).map_err(|_| compile_error(variable.pos, "too much shared memory"))?;
        }
        // The function's own variables follow.
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

/// The most bytes of frames from a function downward; `None` with recursion or an indirect call.
pub(super) fn frame_depth(plan: &ModulePlan<'_>, function: FuncId, path: &mut Vec<FuncId>) -> Option<u32> {
    let function = plan.target(function);
    if path.contains(&function) || path.len() > 64 || plan.functions[function.index()].indirect {
        return None;
    }
    path.push(function);
    let own = &plan.functions[function.index()];
    let mut calls = own.calls.clone();
    calls.sort_unstable();
    calls.dedup();
    let deepest = calls.into_iter().map(|callee| frame_depth(plan, callee, path)).try_fold(0, |most, one| Some(one?.max(most)));
    path.pop();
    Some(own.frame + deepest?)
}
