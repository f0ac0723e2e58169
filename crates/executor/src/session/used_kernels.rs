//! Which kernels a client has launched, of modules whose kernels are loaded one by one.
//!
//! The journal says it, so that a standby loads the code of those and of no others
//! ([`ModuleInfo::on_demand`]).

use cumux_device::ModuleInfo;
use cumux_wire::record::Op;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// The kernels of a session that were launched, of such modules.
#[derive(Debug, Default)]
pub struct UsedKernels {
    /// For each of these modules and each of its functions: whether it was launched.
    modules: FxHashMap<u32, Vec<bool>>,
}

impl UsedKernels {
    /// Notes a module. `used`: the functions that were launched before, by their indices.
    pub fn add_module(&mut self, module: u32, info: &ModuleInfo, used: &BTreeSet<u32>) {
        self.remove_module(module);
        if info.on_demand {
            let functions = (0..).zip(&info.functions).map(|(index, _)| used.contains(&index)).collect();
            self.modules.insert(module, functions);
        }
    }

    /// Forgets a module.
    pub fn remove_module(&mut self, module: u32) {
        self.modules.remove(&module);
    }

    /// The module and the function that an operation launches, if it is the first launch.
    #[inline]
    pub fn note(&mut self, op: &Op) -> Option<(u32, u32)> {
        if self.modules.is_empty() {
            return None;
        }
        let Op::Launch(launch) = op else { return None };
        let used = self.modules.get_mut(&launch.module)?.get_mut(launch.function as usize)?;
        let is_first = !std::mem::replace(used, true);
        is_first.then_some((launch.module, launch.function))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_wire::module::FunctionInfo;
    use cumux_wire::record::Launch;

    fn launch(module: u32, function: u32) -> Op {
        Op::Launch(Launch { module, function, ..Launch::default() })
    }

    #[test]
    fn a_kernel_is_noted_once_and_only_of_modules_that_are_loaded_on_demand() {
        let info = |on_demand| ModuleInfo { functions: vec![FunctionInfo::default(); 3], on_demand, ..ModuleInfo::default() };
        let mut used = UsedKernels::default();
        assert_eq!(used.note(&launch(1, 0)), None);
        used.add_module(1, &info(true), &BTreeSet::from([2]));
        used.add_module(2, &info(false), &BTreeSet::new());
        assert_eq!((used.note(&launch(1, 0)), used.note(&launch(1, 0)), used.note(&launch(1, 1))), (Some((1, 0)), None, Some((1, 1))));
        assert_eq!((used.note(&launch(1, 2)), used.note(&launch(2, 0)), used.note(&launch(1, 3))), (None, None, None), "known before, loaded whole, none");
        assert_eq!(used.note(&Op::MemInfo { device: 0 }), None);
        used.remove_module(1);
        assert_eq!(used.note(&launch(1, 1)), None);
        used.add_module(1, &info(true), &BTreeSet::new());
        assert_eq!(used.note(&launch(1, 1)), Some((1, 1)), "a new module with an old number");
    }
}
