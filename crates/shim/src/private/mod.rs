//! The private tables behind `cuGetExportTable`, as far as the CUDA runtime and NVIDIA's libraries
//! need them.
//!
//! A table is an array of words that stays where it is for the life of the process. Most start with
//! their own size in bytes. Every slot that is not known is a function that logs its place and
//! answers NOT_SUPPORTED, because a null slot would be a jump to address 0 in somebody else's
//! program. Tables that must be refused for their users to take another way are refused by name.
#![allow(non_snake_case)]

mod cls;
mod compilers;
mod cudart;
mod integrity;
mod tools;

pub use cls::context_gone;

use core::ffi::c_void;
use cumux_abi::{CUresult, CUuuid};

/// One word of a table.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct TableWord(*const c_void);

// SAFETY: a slot is a number or the address of a function; both may be read anywhere.
unsafe impl Sync for TableWord {}
// SAFETY: a number or the address of a function may be moved to any thread.
unsafe impl Send for TableWord {}

impl TableWord {
    const NULL: TableWord = TableWord(core::ptr::null());

    /// The first word of most tables.
    const fn size(words: usize) -> TableWord {
        TableWord(core::ptr::without_provenance(words * size_of::<TableWord>()))
    }
}

/// A slot that holds a function.
macro_rules! function {
    ($function:path) => {
        $crate::private::TableWord($function as *const () as *const core::ffi::c_void)
    };
}
use function;

/// Slots of a table that answer NOT_SUPPORTED, each with its own place in the log.
macro_rules! unknown_slots {
    ($table:ident; $($slot:literal)*) => {
        [$($crate::private::function!($crate::private::unknown::<{ $crate::private::Table::$table as u32 }, $slot>)),*]
    };
}
use unknown_slots;

#[derive(Clone, Copy)]
#[repr(u32)]
enum Table {
    CudartInterface = 0x6bd5_fb6c,
    ToolsTls = 0x42d8_5a81,
    RuntimeHooks = 0xa094_798c,
    IntegrityCheck = 0xd408_2055,
    ContextChecks = 0x263e_8860,
    ToolsContext = 0x2131_8c60,
    MatrixQueries = 0x1734_dc26,
    ToolsModule = 0x6e16_3fbe,
    Profilers = 0x7cb6_3f9b,
}

extern "C" fn unknown<const TABLE: u32, const SLOT: usize>() -> CUresult {
    crate::border::call("private table", || {
        crate::log::line(format_args!("slot {SLOT} of private table {TABLE:08x} is not supported"));
        CUresult::CUDA_ERROR_NOT_SUPPORTED
    })
}

/// Calls one of our own exported functions with its public signature, so that every rule of the
/// table (refused, forked) holds here too.
macro_rules! driver {
    ($name:ident ( $($argument:expr),* $(,)? )) => {
        // SAFETY: the export has exactly this signature, and the arguments are the caller's own.
        unsafe {
            core::mem::transmute::<$crate::decide::table::Code, cumux_abi::functions::$name>($crate::exports::$name)($($argument),*)
        }
    };
}
use driver;

const fn uuid(text: &str) -> [u8; 16] {
    let text = text.as_bytes();
    let mut bytes = [0; 16];
    let (mut from, mut to) = (0, 0);
    while from < text.len() {
        if text[from] == b'-' {
            from += 1;
            continue;
        }
        bytes[to] = digit(text[from]) * 16 + digit(text[from + 1]);
        from += 2;
        to += 1;
    }
    bytes
}

const fn digit(character: u8) -> u8 {
    match character {
        b'0'..=b'9' => character - b'0',
        b'a'..=b'f' => character - b'a' + 10,
        _ => panic!("not a hexadecimal digit"),
    }
}

static TABLES: &[([u8; 16], &[TableWord])] = &[
    (uuid("6bd5fb6c-5bf4-e74a-8987-d93912fd9df9"), &cudart::INTERFACE),
    (uuid("42d85a81-23f6-cb47-8298-f6e78a3aecdc"), &tools::TLS),
    (uuid("a094798c-2e74-2e74-93f2-0800200c0a66"), &tools::RUNTIME_HOOKS),
    (uuid("c693336e-1121-df11-a8c3-68f355d89593"), &cls::TABLE),
    (uuid("d4082055-bde6-704b-8d34-ba123c66e1f2"), &integrity::TABLE),
    (uuid("263e8860-7cd2-6143-92f6-bbd5006dfa7e"), &tools::CONTEXT_CHECKS),
    (uuid("21318c60-9714-3248-8ca6-41ff7324c8f2"), &tools::CONTEXT),
    (uuid("1734dc26-800d-4745-8726-c0f1e7dd8bca"), &tools::MATRIX_QUERIES),
    (uuid("6e163fbe-b958-444d-835c-e182aff1991e"), &tools::MODULE),
    (uuid("7cb63f9b-9ca4-8e42-a484-beb66e6aed7f"), &tools::PROFILERS),
    (uuid("da9151d3-3ae6-cc41-a5c0-4f26d533e328"), &compilers::CACHE),
];

/// Tables the real driver has and we do not; their users ask, are told NOT_FOUND, and take their
/// ordinary way.
static REFUSED: &[[u8; 4]] = &[[0xf8, 0xcf, 0xf9, 0x51], [0x69, 0xa2, 0x8e, 0x9f]];

/// # Safety
/// `table` is null or writable; `id` is null or points to a UUID.
pub unsafe fn cuGetExportTable(table: *mut *const c_void, id: *const CUuuid) -> CUresult {
    if table.is_null() || id.is_null() {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: not null, and a UUID as the caller promises.
    let id = unsafe { id.read() }.bytes.map(|byte| byte as u8);
    let known = TABLES.iter().find(|(known, _)| *known == id).map(|(_, slots)| slots.as_ptr().cast());
    // SAFETY: not null, and writable as the caller promises. A miss writes null too: callers look
    // at nothing else.
    unsafe { table.write(known.unwrap_or(core::ptr::null())) };
    if known.is_some() {
        return CUresult::CUDA_SUCCESS;
    }
    crate::log::line(format_args!("private table {:032x} is not supported", u128::from_be_bytes(id)));
    if REFUSED.iter().any(|known| id.starts_with(known)) { CUresult::CUDA_ERROR_NOT_FOUND } else { CUresult::CUDA_ERROR_INVALID_VALUE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(id: [u8; 16]) -> (CUresult, *const c_void) {
        let id = CUuuid { bytes: id.map(|byte| byte as core::ffi::c_char) };
        let mut table = core::ptr::dangling();
        // SAFETY: both point to locals.
        let code = unsafe { cuGetExportTable(&mut table, &id) };
        (code, table)
    }

    #[test]
    fn every_slot_of_every_table_can_be_called_and_sizes_are_true() {
        for (id, slots) in TABLES {
            let local_storage = id[0] == 0xc6;
            let (head, tail) = if local_storage { (0, 3) } else { (1, slots.len()) };
            if !local_storage {
                assert_eq!(slots[0].0.addr(), size_of_val(*slots), "{id:x?}");
            }
            for slot in &slots[head..tail] {
                assert!(slot.0.addr() > 0x1000, "{id:x?}");
            }
            assert_eq!(ask(*id), (CUresult::CUDA_SUCCESS, slots.as_ptr().cast()));
        }
    }

    #[test]
    fn sizes_are_those_of_driver_580() {
        let bytes = |first: u8| TABLES.iter().find(|(id, _)| id[0] == first).map(|(_, slots)| size_of_val(*slots)).unwrap_or_default();
        assert_eq!([0x6b, 0x42, 0xa0, 0xd4, 0x26].map(bytes), [104, 24, 56, 24, 120]);
        assert_eq!([0x21, 0x17, 0x6e, 0xda].map(bytes), [0x2e8, 0x88, 0x318, 56]);
    }

    #[test]
    fn a_miss_writes_null() {
        let unknown = ask([0x11; 16]);
        assert_eq!(unknown, (CUresult::CUDA_ERROR_INVALID_VALUE, core::ptr::null()));
        let refused = ask(uuid("f8cff951-2146-8b4e-b9e2-fb469e7c0dd9"));
        assert_eq!(refused, (CUresult::CUDA_ERROR_NOT_FOUND, core::ptr::null()));
    }
}
