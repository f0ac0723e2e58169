//! Functions of the device runtime that are PTX themselves (`library.ptx`): a module that declares
//! one, and has no body for it, gets the library's.

use cumux_ptx::ast::{Function, Linkage, Module, Param};
use std::sync::OnceLock;

const TEXT: &str = include_str!("library.ptx");

fn library() -> &'static [Function] {
    static LIBRARY: OnceLock<Vec<Function>> = OnceLock::new();
    LIBRARY.get_or_init(|| cumux_ptx::parse(TEXT).map(|module| module.functions).unwrap_or_default())
}

/// The name of the library's function for one that a module declares.
fn own_name(name: &str) -> Option<&str> {
    if !name.starts_with("cudaCG") {
        return None;
    }
    Some(if name == "cudaCGSynchronizeGrid" { "cudaCGSynchronize" } else { name })
}

/// Gives a module the bodies of what it takes from the device runtime. Bodies name nothing outside
/// themselves, so they go into any module.
pub(super) fn provide(module: &mut Module) {
    for function in module.functions.iter_mut().filter(|function| function.body.is_none()) {
        let Some(name) = own_name(&function.name) else { continue };
        let Some(own) = library().iter().find(|own| &*own.name == name) else { continue };
        if has_sizes_of(&function.params, &own.params) && has_sizes_of(&function.returns, &own.returns) {
            let name = std::mem::take(&mut function.name);
            *function = Function { name, linkage: Linkage::Internal, ..own.clone() };
        }
    }
}

fn has_sizes_of(declared: &[Param], own: &[Param]) -> bool {
    declared.len() == own.len() && declared.iter().zip(own).all(|(a, b)| a.size == b.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_ptx() {
        let names: Vec<&str> = library().iter().map(|function| &*function.name).collect();
        assert_eq!(names, ["cudaCGGetIntrinsicHandle", "cudaCGSynchronize", "cudaCGGetSize", "cudaCGGetRank"]);
        assert!(library().iter().all(|function| function.body.is_some()));
    }

    #[test]
    fn a_declaration_with_other_parameters_stays_without_a_body() {
        let text = |handle: &str| {
            format!(
                ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func (.param .b32 out) cudaCGSynchronize(.param {handle} h, .param .b32 f);
                 .extern .func (.param .b64 out) other(.param .b32 s);"
            )
        };
        for (handle, given) in [(".b64", true), (".b32", false)] {
            let mut module = cumux_ptx::parse(&text(handle)).expect("is PTX");
            provide(&mut module);
            assert_eq!(module.functions.iter().map(|function| function.body.is_some()).collect::<Vec<_>>(), [given, false]);
        }
    }
}
