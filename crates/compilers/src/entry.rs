//! `dlsym` itself, and the real one; and the names by which programs are linked.
#![expect(clippy::disallowed_types, reason = "the address of a function, found once, and read by machine code")]

use core::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// [`choose`](crate::choose) has no answer: the real `dlsym` is to give one.
pub(crate) const PASS: *mut c_void = core::ptr::null_mut();
/// There is no such name, though the real `dlsym` would find ours.
pub(crate) const NOT_FOUND: *mut c_void = core::ptr::without_provenance_mut(1);

/// The real `dlsym`; null until the first call.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// `dlsym` for every object of the process.
///
/// Names that begin with `nv` or `__nv` are looked at. All others go on by a jump with everything
/// as it was, return address included: to the real function it is called by its caller.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "test rsi, rsi",
        "jz 2f",
        "cmp byte ptr [rsi], 0x6e",
        "je 3f",
        "cmp byte ptr [rsi], 0x5f",
        "jne 2f",
        "cmp byte ptr [rsi + 1], 0x5f",
        "jne 2f",
        "cmp byte ptr [rsi + 2], 0x6e",
        "jne 2f",
        "3:",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "cmp rax, 1",
        "jne 5f",
        "xor eax, eax",
        "5:",
        "ret",
        "2:",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz 4f",
        "jmp rax",
        "4:",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        choose = sym crate::choose,
        real = sym REAL,
        find = sym find_real,
    )
}

/// Finds the real function. glibc's `dlvsym` finds it by version, so that our own definition is not
/// in the way.
extern "C" fn find_real() -> *mut c_void {
    for version in [c"GLIBC_2.2.5", c"GLIBC_2.34"] {
        // SAFETY: names and versions are strings.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            REAL.store(found, Ordering::Release);
            return found;
        }
    }
    nothing as *const () as *mut c_void
}

/// Without a real function there is nothing that could be found.
extern "C" fn nothing(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    core::ptr::null_mut()
}

/// Looks a name up as the real `dlsym` does.
pub(crate) fn look_up(handle: *mut c_void, name: &str) -> *mut c_void {
    let Ok(name) = std::ffi::CString::new(name) else { return core::ptr::null_mut() };
    let known = REAL.load(Ordering::Acquire);
    let real = if known.is_null() { find_real() } else { known };
    // SAFETY: `dlsym`, or `nothing`, which has its signature.
    let real = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void>(real) };
    // SAFETY: a handle of the caller's, or `RTLD_NEXT`, and a string.
    unsafe { real(handle, name.as_ptr()) }
}

/// Functions by the names with which programs are linked. Each goes on by a jump, with its
/// arguments as they were, to where [`resolve`](crate::resolve) says for its caller.
macro_rules! entrances {
    ($($name:ident)*) => {$(
        const _: () = {
            extern "C" fn resolve(caller: *const core::ffi::c_void) -> *mut core::ffi::c_void {
                $crate::resolve(stringify!($name), caller)
            }

            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "sub rsp, 8",
                    // The return address.
                    "mov rdi, qword ptr [rsp + 56]",
                    "call {resolve}",
                    "add rsp, 8",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "jmp rax",
                    resolve = sym resolve,
                )
            }
        };
    )*};
}
pub(crate) use entrances;
