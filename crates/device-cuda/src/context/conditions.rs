//! Kernels that say how a graph goes on. Pure.
//!
//! `cudaGraphSetConditional` is a function of NVIDIA's driver, which machine code leaves undefined,
//! and what it does with a handle is known to that driver alone. Here the handle of a condition is
//! the address of its value in the client's own memory, and the function is one of ours, which
//! stores to it. It takes the other one's place in PTX, before that is compiled. In machine code it
//! cannot: kernels that call the driver's function are refused.

/// The driver's function.
pub(super) const SETS_CONDITION: &str = "cudaGraphSetConditional";

/// Why a kernel is refused whose machine code calls that.
pub(super) const REFUSED: &str = "its machine code says to NVIDIA's driver alone how a graph goes on (cudaGraphSetConditional), and the program has no PTX of it: build it with -gencode arch=compute_75,code=compute_75, too";

/// Ours, as PTX.
const OWN: &str = ".func cumux_set_condition(.param .b64 condition, .param .b32 value)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [condition];
    ld.param.u32 %r1, [value];
    st.global.u32 [%rd1], %r1;
    ret;
}
";
const OWN_NAME: &str = "cumux_set_condition";

/// PTX that calls our function in place of the driver's; `None` if it calls neither, or does not
/// declare it as compilers do.
pub(super) fn replace_in(ptx: &str) -> Option<String> {
    let (begin, end) = find_declaration(ptx)?;
    let own = |text: &str| text.replace(SETS_CONDITION, OWN_NAME);
    Some([own(&ptx[..begin]), OWN.to_owned(), own(&ptx[end..])].concat())
}

/// Where the driver's function is declared: `.extern .func cudaGraphSetConditional(…);`.
fn find_declaration(ptx: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    loop {
        let name = from + ptx.get(from..)?.find(SETS_CONDITION)?;
        from = name + SETS_CONDITION.len();
        let before = ptx[..name].trim_end();
        let Some(begin) = before.strip_suffix(".func").and_then(|before| before.trim_end().strip_suffix(".extern")).map(str::len) else { continue };
        let rest = &ptx[from..];
        let end = rest.find(';')?;
        // Behind a name that only begins like this one, or in front of a body, there is another
        // function.
        if rest.trim_start().starts_with('(') && !rest[..end].contains('{') {
            return Some((begin, from + end + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 9.0\n.target sm_75\n.address_size 64\n.extern .func cudaGraphSetConditional\n(\n\t.param .b64 cudaGraphSetConditional_param_0,\n\
                       \t.param .b32 cudaGraphSetConditional_param_1\n)\n;\n.visible .entry decide(.param .u64 h)\n{\ncall.uni cudaGraphSetConditional, (p, q);\nret;\n}\n";

    #[test]
    fn the_declaration_becomes_a_function_and_calls_name_it() {
        let own = replace_in(PTX).expect("it declares the function");
        assert!(!own.contains(SETS_CONDITION) && !own.contains(".extern"), "{own}");
        assert!(own.contains("call.uni cumux_set_condition, (p, q);") && own.contains(OWN), "{own}");
        assert!(own.starts_with(".version 9.0\n.target sm_75\n.address_size 64\n.func cumux_set_condition("), "{own}");
        assert_eq!(replace_in(&own), None);
    }

    #[test]
    fn what_is_not_declared_as_compilers_do_stays() {
        for text in [
            "",
            "// cudaGraphSetConditional",
            ".extern .func cudaGraphSetConditional",
            ".extern .func cudaGraphSetConditionally(.param .b64 a);",
            ".func cudaGraphSetConditional(.param .b64 a, .param .b32 b)\n{\nret;\n}\n",
        ] {
            assert_eq!(replace_in(text), None, "{text}");
        }
        for length in 0..PTX.len() {
            let _ = replace_in(&PTX[..length]);
        }
    }
}
