//! Calls against the signature of what they call.

use super::Check;
use crate::ast::{CallTarget, CallVia, Operand, Param, SymbolRef};
use crate::fail::Result;

impl Check<'_> {
    pub(super) fn check_call(&self) -> Result<()> {
        let Some(Operand::Call(call)) = self.instruction.operands.first() else {
            return Ok(());
        };
        let (name, returns, params) = match (call.target, call.via) {
            (CallTarget::Function(id), _) => {
                let callee = &self.context.functions[id.index()];
                (&callee.name, &callee.returns, &callee.params)
            }
            (CallTarget::Register(_), Some(CallVia::Prototype(id))) => {
                let prototype = &self.context.body.call_prototypes[id.index()];
                (&prototype.name, &prototype.returns, &prototype.params)
            }
            // The targets of a list were declared one by one; the first speaks for all.
            (CallTarget::Register(_), Some(CallVia::Targets(id))) => {
                let table = &self.context.body.call_tables[id.index()];
                let Some(first) = table.targets.first() else {
                    return Ok(());
                };
                let callee = &self.context.functions[first.index()];
                (&callee.name, &callee.returns, &callee.params)
            }
            (CallTarget::Register(_), None) => return Ok(()),
        };
        if let CallTarget::Register(id) = call.target {
            let register = self.register(id);
            if !register.ty.is_integer() || register.ty.bits() < 32 {
                let problem = format!("{} is a {} register and cannot hold an address", register.name, register.ty);
                return Err(self.fail(problem));
            }
        }
        self.check_arguments(name, "return value", returns, &call.returns)?;
        self.check_arguments(name, "argument", params, &call.args)
    }

    fn check_arguments(&self, callee: &str, what: &str, wanted: &[Param], given: &[Operand]) -> Result<()> {
        let variadic = wanted.last().is_some_and(|last| last.array == Some(0));
        let least = wanted.len() - usize::from(variadic);
        if given.len() < least || given.len() > wanted.len() {
            return Err(self.fail(format!("'{callee}' has {} {what}(s), this call gives {}", wanted.len(), given.len())));
        }
        for (at, (param, operand)) in wanted.iter().zip(given).enumerate() {
            let size = match operand {
                Operand::Reg(id) => u64::from(self.register(*id).ty.bytes()),
                Operand::Vector(parts) => parts.iter().map(|part| if let Operand::Reg(id) = part { u64::from(self.register(*id).ty.bytes()) } else { 0 }).sum(),
                Operand::Symbol { symbol: SymbolRef::Local(id), .. } => self.context.body.variables[id.index()].size,
                Operand::Symbol { symbol: SymbolRef::Param(at), .. } => self.context.function.params[*at as usize].size,
                Operand::Symbol { symbol: SymbolRef::ReturnParam(at), .. } => self.context.function.returns[*at as usize].size,
                // Literals take the type of the parameter; '_' takes anything.
                _ => continue,
            };
            let open = param.array == Some(0);
            if size != param.size && !open {
                return Err(self.fail(format!("{what} {} of '{callee}' has {} bytes, this call gives {size}", at + 1, param.size)));
            }
        }
        Ok(())
    }
}
