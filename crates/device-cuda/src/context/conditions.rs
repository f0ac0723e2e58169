//! Kernels that say how a graph goes on. Pure.
//!
//! `cudaGraphSetConditional` is a function of NVIDIA's driver, which machine code leaves undefined,
//! and what it does with a handle is known to that driver alone. Here the handle of a condition is
//! the address of its value in the client's own memory, and the function is one of ours, which
//! stores to it. It takes the other one's place in PTX, before that is compiled. In machine code it
//! cannot: the client's library refuses to launch kernels that call the driver's function, once the
//! program has made a condition.

/// The driver's function.
pub(super) const SETS_CONDITION: &str = "cudaGraphSetConditional";

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

/// PTX that calls our function in place of the driver's; `None` if it does not declare that as
/// compilers do.
pub(super) fn replace_in(ptx: &str) -> Option<String> {
    let mut declarations = Vec::new();
    while let Some((begin, end)) = find_declaration(ptx, declarations.last().map_or(0, |(_, end)| *end)) {
        declarations.push((begin, end));
    }
    let first = declarations.first()?.0;
    let mut own = String::with_capacity(ptx.len() + OWN.len());
    let mut from = 0;
    for (begin, end) in declarations {
        add_renamed(&ptx[from..begin], &mut own);
        if begin == first {
            own.push_str(OWN);
        }
        from = end;
    }
    add_renamed(&ptx[from..], &mut own);
    Some(own)
}

/// Where the driver's function is named, and nothing whose name only contains that.
fn places(text: &str) -> impl Iterator<Item = usize> + '_ {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'));
    let bytes = text.as_bytes();
    let found = text.match_indices(SETS_CONDITION).map(|(at, _)| at);
    found.filter(move |at| !is_part(at.checked_sub(1).and_then(|before| bytes.get(before))) && !is_part(bytes.get(at + SETS_CONDITION.len())))
}

fn add_renamed(text: &str, own: &mut String) {
    let mut from = 0;
    for at in places(text) {
        own.push_str(&text[from..at]);
        own.push_str(OWN_NAME);
        from = at + SETS_CONDITION.len();
    }
    own.push_str(&text[from..]);
}

/// Where the driver's function is declared from here on: `.extern .func
/// cudaGraphSetConditional(…);`.
fn find_declaration(ptx: &str, from: usize) -> Option<(usize, usize)> {
    places(ptx).filter(|at| *at >= from).find_map(|name| {
        let before = ptx[..name].trim_end();
        let begin = before.strip_suffix(".func")?.trim_end().strip_suffix(".extern")?.len();
        let rest = &ptx[name + SETS_CONDITION.len()..];
        let end = rest.find(';')?;
        // In front of a body it is no declaration.
        let is_one = begin >= from && rest.trim_start().starts_with('(') && !rest[..end].contains('{');
        is_one.then_some((begin, name + SETS_CONDITION.len() + end + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 9.0\n.target sm_75\n.address_size 64\n.extern .func cudaGraphSetConditional\n(\n\t.param .b64 cudaGraphSetConditional_param_0,\n\
                       \t.param .b32 cudaGraphSetConditional_param_1\n)\n;\n.visible .entry decide(.param .u64 h)\n{\ncall.uni cudaGraphSetConditional, (p, q);\nret;\n}\n";

    #[test]
    fn the_declaration_becomes_a_function_and_calls_name_it() {
        let own = replace_in(PTX).expect("it declares the function");
        assert!(places(&own).count() == 0 && !own.contains(".extern"), "{own}");
        assert!(own.contains("call.uni cumux_set_condition, (p, q);") && own.contains(OWN), "{own}");
        assert!(own.starts_with(".version 9.0\n.target sm_75\n.address_size 64\n.func cumux_set_condition("), "{own}");
        assert_eq!(replace_in(&own), None);
        let twice = replace_in(&[PTX, PTX].concat()).expect("it declares the function");
        assert_eq!((twice.matches(OWN).count(), twice.matches(".extern").count()), (1, 0), "{twice}");
    }

    #[test]
    fn other_names_stay() {
        let kernel = format!("{PTX}.visible .entry _Z29cudaGraphSetConditionalKernel()\n{{\nret;\n}}\n");
        let own = replace_in(&kernel).expect("it declares the function");
        assert!(own.contains("_Z29cudaGraphSetConditionalKernel()") && own.contains("call.uni cumux_set_condition,"), "{own}");
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
