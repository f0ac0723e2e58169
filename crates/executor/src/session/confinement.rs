//! Where a client's unbounded kernels run.
//!
//! A kernel is unbounded if its code does not show how much stack it uses, or where it jumps
//! ([`Unbounded`]). On a device that a fault breaks for all clients, such a kernel ends the work of
//! everybody at once when it goes wrong: what others have on the device is lost. So it does not
//! begin beside others: its client goes to an executor of its own first.
//!
//! ```text
//!          launches an unbounded kernel           the server: Unconfine
//! Guarded ──────────────────────────────▶ Asked ───────────────────────▶ Free
//!    (opened in a shared executor)          │
//!                                           └ the session leaves
//! ```
//!
//! [`Unbounded`]: cumux_wire::module::Unbounded

use cumux_device::ModuleInfo;
use cumux_wire::record::Op;
use rustc_hash::FxHashMap;

/// Whether unbounded kernels of a session may begin in this executor.
#[derive(Debug)]
pub struct Confinement {
    state: State,
    /// Unbounded kernels, by module and function, with what they do.
    kernels: FxHashMap<(u32, u32), String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// They may.
    Free,
    /// None begins before the server was asked.
    Guarded,
    /// The server was asked, and has not answered.
    Asked,
}

impl Confinement {
    /// `guarded`: others share the device, and a fault breaks it for all.
    #[must_use]
    pub fn new(guarded: bool) -> Self {
        Self { state: if guarded { State::Guarded } else { State::Free }, kernels: FxHashMap::default() }
    }

    /// Notes a module's unbounded kernels.
    pub fn add_module(&mut self, module: u32, info: &ModuleInfo) {
        self.remove_module(module);
        let unbounded = (0..).zip(&info.functions).filter_map(|(index, function)| Some((index, function, function.unbounded?)));
        self.kernels.extend(unbounded.map(|(index, function, why)| ((module, index), format!("kernel {} {}", function.name, why.describe()))));
    }

    /// Forgets a module.
    pub fn remove_module(&mut self, module: u32) {
        self.kernels.retain(|(of, _), _| *of != module);
    }

    /// What an operation does for which it may not begin here; `None` if it may.
    #[must_use]
    pub fn holds_back(&self, op: &Op) -> Option<&str> {
        if self.state == State::Free || self.kernels.is_empty() {
            return None;
        }
        let Op::Launch(launch) = op else { return None };
        self.kernels.get(&(launch.module, launch.function)).map(String::as_str)
    }

    /// Whether the server is to be asked: it was not yet.
    pub fn begin_asking(&mut self) -> bool {
        let begins = self.state == State::Guarded;
        if begins {
            self.state = State::Asked;
        }
        begins
    }

    /// The server that was asked has gone: the next one is to be asked. Whether one was asked.
    pub fn ask_again(&mut self) -> bool {
        let asked = self.state == State::Asked;
        if asked {
            self.state = State::Guarded;
        }
        asked
    }

    /// All kernels may begin here. Whether one was waiting.
    pub fn end(&mut self) -> bool {
        std::mem::replace(&mut self.state, State::Free) == State::Asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_wire::module::{FunctionInfo, Unbounded};
    use cumux_wire::record::Launch;

    fn launch(module: u32, function: u32) -> Op {
        Op::Launch(Launch { module, function, ..Launch::default() })
    }

    #[test]
    fn an_unbounded_kernel_waits_until_the_server_has_said_where_it_runs() {
        let function = |name: &str, unbounded| FunctionInfo { name: name.into(), unbounded, ..FunctionInfo::default() };
        let info = ModuleInfo { functions: vec![function("plain", None), function("deep", Some(Unbounded::Recursion))], ..ModuleInfo::default() };
        let mut guarded = Confinement::new(true);
        assert_eq!(guarded.holds_back(&launch(3, 1)), None, "nothing is known of it");
        guarded.add_module(3, &info);
        assert_eq!((guarded.holds_back(&launch(3, 0)), guarded.holds_back(&launch(4, 1)), guarded.holds_back(&Op::MemInfo { device: 0 })), (None, None, None));
        assert_eq!(guarded.holds_back(&launch(3, 1)), Some("kernel deep calls a function that calls itself"));
        assert!(guarded.begin_asking() && !guarded.begin_asking());
        assert!(guarded.ask_again() && guarded.begin_asking() && guarded.holds_back(&launch(3, 1)).is_some());
        assert!(guarded.end() && !guarded.end() && guarded.holds_back(&launch(3, 1)).is_none());
        assert!(!guarded.ask_again() && !guarded.begin_asking(), "it is settled");
        let mut free = Confinement::new(false);
        free.add_module(3, &info);
        assert!(free.holds_back(&launch(3, 1)).is_none() && !free.end());
        let mut other = Confinement::new(true);
        other.add_module(3, &info);
        other.remove_module(3);
        assert!(other.holds_back(&launch(3, 1)).is_none());
    }
}
