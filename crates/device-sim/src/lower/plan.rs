//! Plans a module before any function is lowered: frames, shared memory, and which function calls
//! which.

use super::error::{CompileError, compile_error};
use cumux_ptx::ast::{
    AddressBase, Body, Call, CallTarget, CallVia, FuncId, Function, FunctionKind, GlobalId, InitValue, Module, Operand, Param, StateSpace, SymbolRef, Variable,
};
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
    /// Where module-level and own variables lie in shared memory.
    shared_globals: HashMap<u32, SharedPlace>,
    shared_locals: HashMap<u32, SharedPlace>,
    /// Of a kernel: bytes of its static shared memory.
    pub static_shared: u32,
    /// Of a kernel: where each variable of [`SharedPlace::OfKernel`] lies.
    pub shared_table: Vec<u32>,
    pub frame: u32,
    is_kernel: bool,
    /// The functions that it calls by name.
    calls: Vec<FuncId>,
    pub indirect: bool,
    /// The functions and module-level variables that it names, calls included.
    names: HashSet<SymbolRef>,
}

/// Where a variable lies in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SharedPlace {
    /// At this offset, in bytes, in every kernel that can reach it.
    At(u32),
    /// Where dynamic shared memory begins.
    Dynamic,
    /// Where the running kernel's [`shared_table`](FunctionPlan::shared_table) says: the index in
    /// it.
    OfKernel(u32),
}

/// In a kernel's [`shared_table`](FunctionPlan::shared_table): the kernel cannot reach the
/// variable. An access there faults.
const UNREACHED: u32 = 0xff00_0000;

impl FunctionPlan {
    /// Where a name lies in shared memory; `None` if it lies elsewhere.
    pub fn shared_place(&self, plan: &ModulePlan<'_>, symbol: SymbolRef) -> Option<SharedPlace> {
        match symbol {
            SymbolRef::Global(id) if plan.module.global(id).space.is_shared() => Some(self.shared_globals.get(&id.0).copied().unwrap_or(SharedPlace::Dynamic)),
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
    for (n, variable) in body.variables.iter().enumerate() {
        let n = n as u32;
        if variable.space == StateSpace::Local {
            at = at.next_multiple_of(variable.align.max(1));
            plan.locals.insert(n, at);
            let end = u64::from(at) + variable.size;
            at = u32::try_from(end).ok().filter(|end| *end < 1 << 28).ok_or_else(|| compile_error(variable.pos, "too much local memory"))?;
        }
    }
    plan.frame = at.next_multiple_of(16);
    for instruction in &body.instructions {
        if let [Operand::Call(call)] = instruction.operands.as_slice() {
            match call.target {
                CallTarget::Function(id) => {
                    plan.calls.push(id);
                    plan.names.insert(SymbolRef::Function(id));
                }
                CallTarget::Register(_) => plan.indirect = true,
            }
        }
        for operand in &instruction.operands {
            if let Operand::Call(call) = operand {
                place_arguments(module, body, call, &mut plan).map_err(|text| compile_error(instruction.pos, text))?;
            }
            visit_symbols(operand, &mut |symbol| {
                if matches!(symbol, SymbolRef::Global(_) | SymbolRef::Function(_)) {
                    plan.names.insert(symbol);
                }
            });
        }
    }
    Ok(plan)
}

/// The parameters and results of what is called. The first of a list of targets speaks for all.
pub(super) fn callee_signature<'a>(module: &'a Module, body: &'a Body, call: &Call) -> (&'a [Param], &'a [Param]) {
    let of_function = |id: FuncId| {
        let function = module.function(id);
        (&*function.params, &*function.returns)
    };
    match (&call.target, &call.via) {
        (CallTarget::Function(id), _) => of_function(*id),
        (_, Some(CallVia::Prototype(id))) => {
            let prototype = &body.call_prototypes[id.index()];
            (&prototype.params, &prototype.returns)
        }
        (_, Some(CallVia::Targets(id))) => body.call_tables[id.index()].targets.first().map_or((&[], &[]), |first| of_function(*first)),
        (_, None) => (&[], &[]),
    }
}

/// Offsets of a call's arguments and results behind the caller's frame, and their bytes.
pub(super) fn callee_offsets(module: &Module, body: &Body, call: &Call) -> (Vec<u32>, Vec<u32>, u32) {
    let (params, returns) = callee_signature(module, body, call);
    parameter_offsets(params, returns)
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

/// The functions whose address a module takes: in instructions other than calls, in lists of call
/// targets, and in initial values. An indirect call reaches no other function.
fn addressed_functions(module: &Module) -> HashSet<FuncId> {
    let mut found = HashSet::new();
    let mut note = |symbol: SymbolRef| {
        if let SymbolRef::Function(id) = symbol {
            found.insert(id);
        }
    };
    for variable in &module.globals {
        initial_symbols(variable).for_each(&mut note);
    }
    for body in module.functions.iter().filter_map(|function| function.body.as_ref()) {
        body.variables.iter().flat_map(initial_symbols).for_each(&mut note);
        body.call_tables.iter().flat_map(|table| &table.targets).for_each(|id| note(SymbolRef::Function(*id)));
        for operand in body.instructions.iter().flat_map(|instruction| &instruction.operands) {
            visit_symbols(operand, &mut note);
        }
    }
    found
}

/// The names in a variable's initial value.
fn initial_symbols(variable: &Variable) -> impl Iterator<Item = SymbolRef> + '_ {
    variable.init.iter().filter_map(|entry| match entry.value {
        InitValue::Address { symbol, .. } => Some(symbol),
        InitValue::Bits(_) => None,
    })
}

/// The functions and shared variables that a kernel may reach: what it and they call or name,
/// directly or in the initial values of variables, and with an indirect call every function whose
/// address is taken. ptxas counts the same.
fn reachable_names(plan: &ModulePlan<'_>, addressed: &HashSet<FuncId>, kernel: FuncId) -> HashSet<SymbolRef> {
    let mut seen = HashSet::new();
    let mut todo = vec![SymbolRef::Function(kernel)];
    while let Some(next) = todo.pop() {
        let next = if let SymbolRef::Function(id) = next { SymbolRef::Function(plan.target(id)) } else { next };
        if !seen.insert(next) {
            continue;
        }
        match next {
            SymbolRef::Function(id) => {
                let function = &plan.functions[id.index()];
                todo.extend(&function.names);
                if function.indirect {
                    todo.extend(addressed.iter().map(|id| SymbolRef::Function(*id)));
                }
            }
            SymbolRef::Global(id) => todo.extend(initial_symbols(plan.module.global(id))),
            _ => {}
        }
    }
    seen
}

/// A variable in shared memory: of the module, or of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SharedVariable {
    Global(u32),
    Local(FuncId, u32),
}

/// Lays out the shared memory of each kernel as ptxas does: the module's variables that the kernel
/// can reach, those of the functions that it can reach, and its own, in the order of the text.
///
/// A function's code is the same for all kernels. If a variable has other places in other kernels,
/// the function looks its place up in the running kernel's table.
pub(super) fn lay_out_shared(plan: &mut ModulePlan<'_>) -> Result<(), CompileError> {
    let module = plan.module;
    let ids: Vec<FuncId> = (0..module.functions.len() as u32).map(FuncId).collect();
    let globals: Vec<u32> = (0..module.globals.len() as u32).filter(|n| module.globals[*n as usize].space.is_shared()).collect();
    let locals = |id: FuncId| {
        let variables = module.function(id).body.iter().flat_map(|body| &body.variables).enumerate();
        variables.filter(|(_, variable)| variable.space.is_shared()).map(move |(n, _)| SharedVariable::Local(id, n as u32))
    };
    if globals.is_empty() && ids.iter().all(|id| locals(*id).next().is_none()) {
        return Ok(());
    }
    let declaration = |variable: SharedVariable| match variable {
        SharedVariable::Global(n) => &module.globals[n as usize],
        SharedVariable::Local(id, n) => &module.function(id).body.as_ref().expect("it has variables").variables[n as usize],
    };
    // Dynamic shared memory begins behind the static one. If the module declares any, each kernel
    // rounds up.
    let all = || globals.iter().map(|n| SharedVariable::Global(*n)).chain(ids.iter().flat_map(|id| locals(*id)));
    let dynamic_align = all().map(declaration).filter(|variable| variable.unsized_array).map(|variable| variable.align.max(16)).max().unwrap_or(1);
    let addressed = addressed_functions(module);
    // The kernels in which a variable has a place, and that place.
    let mut places: HashMap<SharedVariable, Vec<(FuncId, u32)>> = HashMap::new();
    let kernels: Vec<FuncId> = ids.iter().copied().filter(|id| plan.functions[id.index()].is_kernel).collect();
    for kernel in kernels.iter().copied() {
        let reached = reachable_names(plan, &addressed, kernel);
        let mut order: Vec<SharedVariable> =
            globals.iter().filter(|n| reached.contains(&SymbolRef::Global(GlobalId(**n)))).map(|n| SharedVariable::Global(*n)).collect();
        order.extend(ids.iter().filter(|id| **id != kernel && reached.contains(&SymbolRef::Function(**id))).flat_map(|id| locals(*id)));
        order.extend(locals(kernel));
        let mut end = 0u32;
        for variable in order.into_iter().filter(|variable| !declaration(*variable).unsized_array) {
            let declared = declaration(variable);
            let at = u64::from(end).next_multiple_of(declared.align.max(1).into());
            let after = u32::try_from(at + declared.size).ok().filter(|end| *end < 1 << 24);
            end = after.ok_or_else(|| compile_error(declared.pos, "too much shared memory"))?;
            places.entry(variable).or_default().push((kernel, at as u32));
        }
        plan.functions[kernel.index()].static_shared = end.next_multiple_of(dynamic_align);
    }
    for variable in all() {
        let found = places.get(&variable).map(Vec::as_slice).unwrap_or_default();
        place_shared(plan, &kernels, variable, declaration(variable).unsized_array, found);
    }
    Ok(())
}

/// Tells the functions where a shared variable is. `found` are the kernels in which it has a place,
/// and that place.
fn place_shared(plan: &mut ModulePlan<'_>, kernels: &[FuncId], variable: SharedVariable, is_dynamic: bool, found: &[(FuncId, u32)]) {
    let place = match found {
        _ if is_dynamic => SharedPlace::Dynamic,
        [] => SharedPlace::At(UNREACHED),
        [(_, at), rest @ ..] if rest.iter().all(|(_, other)| other == at) => SharedPlace::At(*at),
        _ => {
            let mut row = 0;
            for kernel in kernels {
                let table = &mut plan.functions[kernel.index()].shared_table;
                row = table.len() as u32;
                table.push(found.iter().find(|(id, _)| id == kernel).map_or(UNREACHED, |(_, at)| *at));
            }
            SharedPlace::OfKernel(row)
        }
    };
    match variable {
        SharedVariable::Global(n) => {
            for function in &mut plan.functions {
                function.shared_globals.insert(n, place);
            }
            // A kernel's own code needs no table.
            for (kernel, at) in found {
                plan.functions[kernel.index()].shared_globals.insert(n, SharedPlace::At(*at));
            }
        }
        SharedVariable::Local(id, n) => {
            plan.functions[id.index()].shared_locals.insert(n, place);
        }
    }
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
