//! Lowers a module: variables, layout of shared memory, frames, then each function.

use super::body::{Finished, Lowerer};
use super::error::{CompileError, Trouble, compile_error};
use super::plan::{ModulePlan, frame_depth, lay_out_shared, plan_function, reachable_functions};
use super::{Options, contract, control, instruction, library};
use crate::program::code::{Code, Op, RuntimeCall};
use crate::program::source::SourceLines;
use crate::program::{Kernel, Parameter, Program, Refusal, Relocation, RelocationTarget, Variable};
use cumux_ptx::ast::{FuncId, Function, FunctionKind, InitValue, Instruction, Linkage, Modifier, Module, Opcode, Pos, StateSpace, SymbolRef};
use cumux_wire::module::Unbounded;
use std::collections::HashMap;

/// The module's variables in memory, which of them each declaration is, and the first error.
fn lay_out_variables(module: &Module) -> (Vec<Variable>, Vec<Option<u32>>, Option<CompileError>) {
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
            trouble = trouble.or(Some(compile_error(variable.pos, format!("{} is defined in another module; separate modules are not linked", variable.name))));
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

/// Fills in the initial values of variables.
fn fill_initial_values(module: &Module, of: &[Option<u32>], out: &mut [Variable]) {
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

/// True if an instruction can be done twice, and others cannot see it before the block ends.
fn is_repeatable(instruction: &Instruction) -> bool {
    use cumux_ptx::ast::MemoryOrder;
    let space = instruction.space();
    let near = space.is_some_and(|space| space.is_shared() || matches!(space, StateSpace::Local) || space.is_param());
    match instruction.opcode {
        Opcode::Atom | Opcode::Red => near,
        Opcode::Sured => false,
        Opcode::Ld | Opcode::St => near || matches!(instruction.order(), None | Some(MemoryOrder::Weak)),
        Opcode::Fence | Opcode::Membar => !matches!(instruction.modifiers.first(), Some(Modifier::Scope(cumux_ptx::ast::Scope::Sys))),
        _ => true,
    }
}

/// 32-bit registers that a block may have (CUDA C++ Programming Guide, *Technical specifications
/// per compute capability*).
const REGISTERS_OF_A_BLOCK: u32 = 65536;

/// A limit of registers below this is not kept (ptxas: "adjusting per thread register count").
const LEAST_LIMIT: u32 = 24;

/// A function that has been lowered.
struct Built {
    code: Code,
    refused: Option<Refusal>,
    repeatable: bool,
    registers: u32,
}

/// Lowers a text.
pub(super) fn lower(text: &str, options: Options) -> Result<Program, CompileError> {
    let mut module = cumux_ptx::parse(text).map_err(|errors| {
        let first = errors.diagnostics.first();
        let pos = first.map(|d| d.pos).unwrap_or_default();
        // The caller writes the position before the text.
        let told = first.map(|d| d.render(text).trim_start_matches(&format!("{}: ", d.pos)).trim_end().to_owned());
        compile_error(pos, told.unwrap_or_else(|| "not a PTX module".to_owned()))
    })?;
    library::provide(&mut module);
    if options.contracts {
        contract::contract(&mut module);
    }
    lower_module(&module, options)
}

/// Lowers a parsed module.
fn lower_module(module: &Module, options: Options) -> Result<Program, CompileError> {
    let (mut variables, variable_of, trouble) = lay_out_variables(module);
    if let Some(trouble) = trouble {
        return Err(trouble);
    }
    fill_initial_values(module, &variable_of, &mut variables);
    let functions = module.functions.iter().map(|f| plan_function(module, f)).collect::<Result<Vec<_>, _>>()?;
    let mut plan = ModulePlan { module, variable_of, functions, aliases: module.aliases.iter().copied().collect() };
    lay_out_shared(&mut plan)?;

    let mut program = Program {
        kernels: Vec::new(),
        variables,
        target: module.target.arch,
        allocates: module.functions.iter().any(|function| function.body.is_none() && allocates(&function.name)),
        functions: Vec::new(),
        code: Vec::new(),
        origins: Vec::new(),
        mnemonics: Vec::new(),
        sources: SourceLines::new(&module.files),
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
            program.kernels.push(describe_kernel(&plan, FuncId(n as u32), function, &built, constant_bytes as u32, options));
        }
    }
    program.functions = built.into_iter().map(|b| b.code).collect();
    Ok(program)
}

/// Whether this is a function of the device that has to do with its heap.
fn allocates(name: &str) -> bool {
    matches!(name, "malloc" | "free") || matches!(control::runtime_call(name), Some(RuntimeCall::Malloc | RuntimeCall::Free))
}

/// Lowers one function.
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
    control::prologue(&mut lowerer, function).map_err(|trouble| locate_trouble(trouble, function.pos))?;
    for tree in &body.instructions {
        places.push(lowerer.insts.len() as u32);
        let text = tree.mnemonic();
        let known = mnemonics.len() as u32;
        let mnemonic = *mnemonics.entry(text).or_insert_with_key(|text| {
            program.mnemonics.push(text.clone());
            known
        });
        let before = lowerer.insts.len();
        let done = lowerer.begin_instruction(tree, mnemonic).and_then(|()| instruction::lower(&mut lowerer, tree));
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
            Err(trouble) => return Err(locate_trouble(trouble, tree.pos)),
        }
    }
    places.push(lowerer.insts.len() as u32);
    // A function that ends without `ret` returns.
    let end = Instruction { pos: body.end, guard: None, opcode: Opcode::Ret, modifiers: Vec::new(), operands: Vec::new() };
    let done = lowerer.begin_instruction(&end, 0).and_then(|()| instruction::lower(&mut lowerer, &end));
    done.map_err(|trouble| locate_trouble(trouble, body.end))?;
    let Finished { mut code, branches, tables } = lowerer.finish(&function.name).map_err(|trouble| locate_trouble(trouble, function.pos))?;
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
    program.sources.add(body, &places, code.end);
    code.frame = own.frame;
    let registers = code.slots32 + 2 * code.slots64;
    Ok(Built { code, refused, repeatable: body.instructions.iter().all(is_repeatable), registers })
}

/// The error of an instruction that is not PTX.
fn locate_trouble(trouble: Trouble, pos: Pos) -> CompileError {
    match trouble {
        Trouble::Refused | Trouble::Named(_) => compile_error(pos, "not executed by the software GPU"),
        Trouble::Wrong(text) => compile_error(pos, text),
    }
}

/// What a launch must know of a kernel.
fn describe_kernel(plan: &ModulePlan<'_>, id: FuncId, function: &Function, built: &[Built], constant_bytes: u32, options: Options) -> Kernel {
    let own = &plan.functions[id.index()];
    let reached = reachable_functions(plan, id);
    let each = |f: &FuncId| &built[f.index()];
    let counts_clusters = function
        .directives
        .blocks_are_clusters
        .then(|| Refusal { line: function.pos.line, instruction: "kernels whose grids count clusters (.blocksareclusters)".to_owned() });
    let refused = reached.iter().filter_map(|f| each(f).refused.clone()).chain(counts_clusters).min_by_key(|r| r.line);
    let provided = || reached.iter().map(|f| plan.module.function(*f)).filter(|function| function.body.is_none());
    // `printf`, `malloc` and the like cannot be done twice; what sets a condition is a store.
    let intrinsics = provided().any(|function| &*function.name != control::SETS_CONDITION);
    let starts_work = provided().any(|function| control::runtime_call(&function.name).is_some_and(RuntimeCall::starts_work));
    let known = frame_depth(plan, id, &mut Vec::new());
    let registers = reached.iter().map(|f| each(f).registers).max().unwrap_or(0);
    let directives = &function.directives;
    let product = |n: [u32; 3]| n.iter().fold(1u32, |all, n| all.saturating_mul((*n).max(1)));
    let max_threads = directives.reqntid.or(directives.maxntid).map_or(1024, product).clamp(1, 1024);
    // As a compiler would limit them: the largest block must fit into the registers of an SM.
    let most = (REGISTERS_OF_A_BLOCK / max_threads / 8 * 8).clamp(16, 255);
    // The option is not for kernels that say how many threads they have.
    let has_bounds = directives.maxntid.is_some() || directives.reqntid.is_some() || directives.minnctapersm.is_some();
    let told = directives.maxnreg.or(options.most_registers.filter(|_| !has_bounds));
    let most = told.map_or(most, |told| told.max(LEAST_LIMIT).min(most));
    Kernel {
        name: function.name.to_string(),
        parameters: function.params.iter().map(|p| Parameter { offset: p.offset as u32, bytes: p.size as u32 }).collect(),
        parameter_bytes: function.params_size as u32,
        static_shared: own.static_shared,
        constant_bytes,
        // If the depth is unknown, the launch adds its stack limit.
        local_bytes: known.unwrap_or(own.frame),
        registers: registers.next_multiple_of(8).max(16).min(most),
        max_threads,
        required_block: directives.reqntid.unwrap_or_default(),
        cluster: directives.reqnctapercluster.unwrap_or_default(),
        repeatable: !intrinsics && reached.iter().all(|f| each(f).repeatable),
        starts_work,
        refused,
        shared_table: own.shared_table.clone(),
        function: id.0,
        unbounded: known.is_none().then(|| if reached.iter().any(|f| plan.functions[f.index()].indirect) { Unbounded::Address } else { Unbounded::Recursion }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a kernel that calls a function of the device with two arguments can be repeated.
    fn is_repeatable_with(declared: &str, called: &str) -> bool {
        let text = format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n.extern .func {declared};\n.visible .entry calls(.param .u64 handle)\n{{\n\
             .reg .b32 %r<3>; .reg .b64 %rd<3>;\nld.param.u64 %rd1, [handle];\n{called}\nret;\n}}\n"
        );
        let program = lower(&text, Options::default()).unwrap();
        assert!(program.kernels[0].refused.is_none(), "{:?}", program.kernels[0].refused);
        program.kernels[0].repeatable
    }

    #[test]
    fn a_kernel_that_sets_a_condition_is_repeated_and_one_that_allocates_is_not() {
        let sets = "{ .param .b64 a; .param .b32 b; st.param.b64 [a], %rd1; st.param.b32 [b], 1; call.uni cudaGraphSetConditional, (a, b); }";
        assert!(is_repeatable_with("cudaGraphSetConditional(.param .b64 handle, .param .b32 value)", sets));
        let allocates = "{ .param .b64 a; .param .b64 to; st.param.b64 [a], %rd1; call.uni (to), malloc, (a); ld.param.b64 %rd2, [to]; }";
        assert!(!is_repeatable_with("(.param .b64 to) malloc(.param .b64 bytes)", allocates));
    }
}
