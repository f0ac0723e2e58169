//! The machine code of the border on x86-64.
//!
//! An export is two instructions: its own index into a register that the calling convention leaves
//! free (`r11`), and a jump through its word of the jump table. The index lets one common thunk
//! serve every name that is not implemented.

/// Defines one exported function.
macro_rules! export {
    ($index:literal, $name:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "mov r11d, {index}",
                "jmp qword ptr [rip + {table} + 8 * {index}]",
                index = const $index,
                table = sym crate::decide::table::TABLE,
            )
        }
    };
}
pub(crate) use export;

/// Where every word of the table points at first: keeps all argument registers, lets the decision
/// be taken, and goes on to wherever the name leads now.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn first_call() {
    core::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "and rsp, -16",
        "sub rsp, 192",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "mov [rsp + 48], r11",
        "movaps [rsp + 64], xmm0",
        "movaps [rsp + 80], xmm1",
        "movaps [rsp + 96], xmm2",
        "movaps [rsp + 112], xmm3",
        "movaps [rsp + 128], xmm4",
        "movaps [rsp + 144], xmm5",
        "movaps [rsp + 160], xmm6",
        "movaps [rsp + 176], xmm7",
        "mov edi, r11d",
        "call {resolve}",
        "movaps xmm7, [rsp + 176]",
        "movaps xmm6, [rsp + 160]",
        "movaps xmm5, [rsp + 144]",
        "movaps xmm4, [rsp + 128]",
        "movaps xmm3, [rsp + 112]",
        "movaps xmm2, [rsp + 96]",
        "movaps xmm1, [rsp + 80]",
        "movaps xmm0, [rsp + 64]",
        "mov r11, [rsp + 48]",
        "mov r9, [rsp + 40]",
        "mov r8, [rsp + 32]",
        "mov rcx, [rsp + 24]",
        "mov rdx, [rsp + 16]",
        "mov rsi, [rsp + 8]",
        "mov rdi, [rsp]",
        "leave",
        "jmp rax",
        resolve = sym crate::decide::resolve,
    )
}

/// Answers for every name that is refused.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn refused() {
    core::arch::naked_asm!("mov edi, r11d", "jmp {refuse}", refuse = sym crate::decide::table::refuse)
}
