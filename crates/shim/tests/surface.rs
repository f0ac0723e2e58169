//! The built `libcuda.so.1` as a program meets it: its exports, and the decision with no daemon,
//! with and without a driver.
//!
//! The decision is taken once per process, so each story runs in a child: this test program itself,
//! told by an environment variable to play the part of the program (`the_program`). The real driver
//! is played by a small library compiled from C on the spot.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _, SectionHeader as _, Sym as _};
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

const PART: &str = "CUMUX_TEST_PART";
const SHIM: &str = "CUMUX_TEST_SHIM";

/// The library under test lies beside this program, which cargo builds after it.
fn shim() -> PathBuf {
    let program = std::env::current_exe().expect("the test program has a path");
    let library = program.with_file_name("libcuda.so");
    assert!(library.is_file(), "{} is missing", library.display());
    library
}

/// A driver that answers a little, built once per test that needs it.
fn driver(folder: &Path) -> PathBuf {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdlib.h>
        static int reentry = -1;
        /* A library whose loading causes a call through the very library that is deciding. */
        __attribute__((constructor)) static void loaded(void) {
            void *shim = dlopen(getenv("CUMUX_TEST_SHIM"), RTLD_NOW | RTLD_NOLOAD);
            int (*init)(unsigned) = shim ? (int (*)(unsigned))dlsym(shim, "cuInit") : 0;
            if (init) reentry = init(0);
        }
        int cuInit(unsigned flags) { return flags ? 1 : 0; }
        int cuDeviceGetCount(int *count) { *count = reentry; return 0; }
        int cuTexRefSetMipmapLevelBias(void *ref, float bias) { return ref == (void *)0x77 && bias == 1.5f ? 0 : 999; }
        int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h,
                           void *i, void **j, void **k) {
            return f == (void *)1 && a == 2 && b == 3 && c == 4 && d == 5 && e == 6 && g == 7 && h == 8 && i == (void *)9 &&
                   j == (void **)10 && k == (void **)11 ? 0 : 999;
        }
    "#;
    let source = folder.join("driver.c");
    let library = folder.join("libcuda.so.1");
    std::fs::write(&source, SOURCE).expect("the folder is writable");
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
    assert!(status.expect("a C compiler, which Rust needs for linking as well").success());
    library
}

/// Runs a part in a child; the child's checks are its exit status.
fn play(part: &str, variables: &[(&str, &Path)]) {
    let mut child = Command::new(std::env::current_exe().expect("the test program has a path"));
    child.args(["--exact", "the_program", "--nocapture"]);
    child.env(PART, part).env(SHIM, shim()).env("CUDA_MPS_PIPE_DIRECTORY", "").env_remove("CUMUX_LOG");
    child.env("CUMUX_REAL_LIBCUDA", "/nonexistent/libcuda.so.1");
    for (name, value) in variables {
        child.env(name, value);
    }
    let output = child.output().expect("the test program starts again");
    assert!(output.status.success(), "{part}: {}\n{}\n{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

struct Program {
    library: Library,
}

impl Program {
    fn start() -> Self {
        let path = std::env::var_os(SHIM).expect("set by the test");
        // SAFETY: loading the shim runs nothing.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.expect("the shim can be loaded");
        Self { library }
    }

    /// A function of the library, with the type that the caller knows it to have.
    fn function<T: Copy>(&self, name: &CStr) -> T {
        // SAFETY: every caller names the type of the driver's manual.
        *unsafe { self.library.get::<T>(name.to_bytes_with_nul()) }.expect("the name is exported")
    }

    fn init(&self) -> u32 {
        // SAFETY: as the manual has it.
        unsafe { self.function::<unsafe extern "C" fn(c_uint) -> u32>(c"cuInit")(0) }
    }

    fn count(&self) -> (u32, c_int) {
        let mut count = -9;
        // SAFETY: as the manual has it.
        let code = unsafe { self.function::<unsafe extern "C" fn(*mut c_int) -> u32>(c"cuDeviceGetCount")(&mut count) };
        (code, count)
    }

    fn launch(&self) -> u32 {
        type Launch = unsafe extern "C" fn(usize, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, usize, usize, usize) -> u32;
        // SAFETY: the played driver only compares the arguments.
        unsafe { self.function::<Launch>(c"cuLaunchKernel")(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11) }
    }
}

/// Plays a program when a test asks for it, and does nothing otherwise.
#[test]
fn the_program() {
    let Ok(part) = std::env::var(PART) else { return };
    let program = Program::start();
    match part.as_str() {
        "no device" => no_device(&program),
        "bypassed" => {
            assert_eq!(program.init(), 0);
            assert_eq!(program.launch(), 0);
            // NOT_INITIALIZED: what the driver's own constructor got while the decision was being
            // taken.
            assert_eq!(program.count(), (0, 3));
            let missing = program.function::<unsafe extern "C" fn() -> u32>(c"cuCtxGetId");
            // SAFETY: a name the driver lacks is refused before it looks at any argument.
            assert_eq!(unsafe { missing() }, 801);
        }
        "first call carries a float" => {
            let set = program.function::<unsafe extern "C" fn(usize, f32) -> u32>(c"cuTexRefSetMipmapLevelBias");
            // SAFETY: the played driver only compares the arguments.
            assert_eq!(unsafe { set(0x77, 1.5) }, 0);
        }
        "first call fills the stack" => assert_eq!(program.launch(), 0),
        "many threads" => {
            let start = std::sync::Barrier::new(16);
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        start.wait();
                        assert_eq!(program.launch(), 0);
                    });
                }
            });
        }
        "own build" => assert_eq!(program.init(), 100),
        other => panic!("unknown part {other}"),
    }
}

fn no_device(program: &Program) {
    assert_eq!(program.count(), (100, -9));
    assert_eq!(program.init(), 100);
    let mut version = 0;
    // SAFETY: as the manual has it.
    let code = unsafe { program.function::<unsafe extern "C" fn(*mut c_int) -> u32>(c"cuDriverGetVersion")(&mut version) };
    assert_eq!((code, version), (0, 13000));

    type Describe = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
    let mut text = std::ptr::null();
    // SAFETY: as the manual has it.
    let code = unsafe { program.function::<Describe>(c"cuGetErrorName")(100, &mut text) };
    assert_eq!(code, 0);
    // SAFETY: the call succeeded.
    assert_eq!(unsafe { CStr::from_ptr(text) }, c"CUDA_ERROR_NO_DEVICE");

    type Find = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> u32;
    let (mut found, mut status) = (std::ptr::null_mut(), -1);
    // SAFETY: as the manual has it.
    let code = unsafe { program.function::<Find>(c"cuGetProcAddress_v2")(c"cuMemAlloc".as_ptr(), &mut found, 13000, 0, &mut status) };
    assert_eq!((code, status), (0, 0));
    let exported = program.function::<unsafe extern "C" fn()>(c"cuMemAlloc_v2");
    assert_eq!(found, exported as *mut c_void, "the same address as the dynamic linker gives");

    type Table = unsafe extern "C" fn(*mut *const c_void, *const [u8; 16]) -> u32;
    let mut table = std::ptr::dangling();
    // SAFETY: as the manual has it.
    let code = unsafe { program.function::<Table>(c"cuGetExportTable")(&mut table, &[0x55; 16]) };
    assert_eq!((code, table), (1, std::ptr::null()));
}

#[test]
fn without_daemon_and_driver_there_is_no_device() {
    play("no device", &[]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    play("no device", &[("CUDA_MPS_PIPE_DIRECTORY", folder.path())]);
    play("no device", &[("CUDA_MPS_PIPE_DIRECTORY", &folder.path().join("missing"))]);
}

#[test]
fn without_daemon_calls_reach_the_driver_with_all_their_arguments() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let driver = driver(folder.path());
    // A daemon that was killed leaves its socket.
    let socket = folder.path().join("cumux");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("the folder is writable"));
    assert!(socket.exists());
    for part in ["bypassed", "first call carries a float", "first call fills the stack", "many threads"] {
        play(part, &[("CUMUX_REAL_LIBCUDA", &driver)]);
        play(part, &[("CUMUX_REAL_LIBCUDA", &driver), ("CUDA_MPS_PIPE_DIRECTORY", folder.path())]);
    }
}

#[test]
fn our_own_build_is_never_taken_for_the_driver() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = folder.path().join("libcuda.so.1");
    std::fs::copy(shim(), &copy).expect("the folder is writable");
    play("own build", &[("CUMUX_REAL_LIBCUDA", &copy)]);
    play("own build", &[("CUMUX_REAL_LIBCUDA", &shim())]);
}

#[test]
fn exports_are_those_of_driver_580_and_our_mark() {
    let bytes = std::fs::read(shim()).expect("the shim is readable");
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).expect("an ELF file");
    let endian = file.endian();
    let sections = file.elf_header().sections(endian, &*bytes).expect("sections");
    let symbols = sections.symbols(endian, &*bytes, object::elf::SHT_DYNSYM).expect("dynamic symbols");
    let mut exported = BTreeSet::new();
    for symbol in symbols.iter().filter(|symbol| symbol.st_shndx(endian) != object::elf::SHN_UNDEF) {
        let name = symbol.name(endian, symbols.strings()).expect("a name");
        if !name.is_empty() {
            exported.insert(String::from_utf8_lossy(name).into_owned());
        }
    }
    let mut expected: BTreeSet<String> = cumux_abi::surface::SURFACE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    assert_eq!(expected.len(), 707);
    expected.insert("cumux_shim_build_id".to_owned());
    expected.insert("cumux_shim_is_decided".to_owned());
    assert_eq!(exported, expected);

    let strings = symbols.strings();
    let mut soname = None;
    for section in sections.iter() {
        for entry in section.dynamic(endian, &*bytes).ok().flatten().map(|(entries, _)| entries).unwrap_or_default() {
            if entry.tag(endian) == object::elf::DT_SONAME {
                soname = entry.string(endian, strings).ok();
            }
        }
    }
    assert_eq!(soname, Some(&b"libcuda.so.1"[..]));
}
