//! What a process of ours says when it crashes: the signal, where it was, and what had called it.
//!
//! The lines that a process writes on purpose end before its crash. So each executor, standby,
//! keeper and server says this with its last breath, as one line on standard error, which is the
//! log of the daemon. Then the signal does what it would have done without it.
//!
//! Invariants: the handler allocates nothing, takes no lock and calls only what signal-safety(7)
//! allows, and `mmap` for its notes. It believes nothing that lies on the stack: a word there that
//! could be a return address is one that points into code.
//!
//! ```text
//! cumux: signal 11 (SIGSEGV) in thread engine-0, address 0x20, at libcuda.so.1+0x2f1a40,
//!     called by cumux+0x9c1e0, cumux+0x9a77c                           (all of it in one line)
//! ```
//!
//! A place is a file and the offset in it. `addr2line` wants an address: the offset, less that of
//! the file's code, plus the code's address (`readelf -lW FILE`).

use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use core::ptr;
use libc::{sigaction, siginfo_t};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Signals that end a process which does something wrong, with their names.
const CRASHES: [(c_int, &str); 5] =
    [(libc::SIGSEGV, "SIGSEGV"), (libc::SIGBUS, "SIGBUS"), (libc::SIGILL, "SIGILL"), (libc::SIGFPE, "SIGFPE"), (libc::SIGABRT, "SIGABRT")];
/// Where the system says which files are mapped.
const MAPS: &CStr = c"/proc/self/maps";
/// Most mappings of code that are known.
const MOST_CODE: usize = 512;
/// Most characters of a file's name.
const MOST_NAME: usize = 48;
/// Most bytes between a full stack's pointer and the stack.
const MOST_GUARD: usize = 1 << 20;
/// Words of the stack that are looked at, and most callers that are named.
const STACK_WORDS: usize = 2048;
const MOST_CALLERS: usize = 24;

/// What the signals did before, in the order of [`CRASHES`].
static BEFORE: OnceLock<[sigaction; CRASHES.len()]> = OnceLock::new();

/// From now on a crash of this process is told on standard error.
pub fn report_crashes() {
    BEFORE.get_or_init(|| CRASHES.map(|(signal, _)| handle_with(signal, handle)));
}

/// A handler as the system calls it.
type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Sets a handler and returns what was there.
fn handle_with(signal: c_int, handler: Handler) -> sigaction {
    let (mut new, mut before) = (MaybeUninit::<sigaction>::zeroed(), MaybeUninit::<sigaction>::zeroed());
    // SAFETY: a zeroed action is a valid one: no flags, an empty mask, the default handler. Both
    // pointers are valid for the call.
    unsafe {
        let action = new.assume_init_mut();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(signal, new.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the system gives both to a handler that was set with SA_SIGINFO.
    let (code, crash) = unsafe { ((*info).si_code, Crash { signal, address: (*info).si_addr() as usize, registers: Registers::read(context) }) };
    // Positive codes are the processor's. Others mean that somebody has sent the signal.
    let is_sent = code <= 0;
    tell(&Crash { address: if is_sent { 0 } else { crash.address }, ..crash });
    let before = BEFORE.get().into_iter().flatten().zip(CRASHES).find(|(_, (number, _))| *number == signal);
    // SAFETY: the action is one that the system has returned. All three calls may be made in a
    // handler.
    unsafe {
        match before.filter(|_| !is_sent) {
            // The instruction that is at fault runs again when this returns.
            Some((before, _)) => {
                libc::sigaction(signal, before, ptr::null_mut());
            }
            // A signal that was sent does not come again by itself.
            None => {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
    }
}

/// The processor's place.
#[derive(Debug, Clone, Copy, Default)]
struct Registers {
    instruction: usize,
    stack: usize,
}

impl Registers {
    /// # Safety
    /// `context` is what the system has given to a handler.
    unsafe fn read(context: *mut c_void) -> Registers {
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: as the caller has it.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            let registers = &(*context).uc_mcontext.gregs;
            Registers { instruction: registers[libc::REG_RIP as usize] as usize, stack: registers[libc::REG_RSP as usize] as usize }
        }
        // SAFETY: as the caller has it.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            Registers { instruction: (*context).uc_mcontext.pc as usize, stack: (*context).uc_mcontext.sp as usize }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Crash {
    signal: c_int,
    /// What was read or written; 0 where the signal was sent.
    address: usize,
    registers: Registers,
}

/// A mapping of code: its addresses, the offset of the first one in the file, and the file's name.
#[derive(Clone, Copy)]
struct Code {
    start: usize,
    end: usize,
    offset: usize,
    name: [u8; MOST_NAME],
    length: usize,
}

/// The handler's notes. All bytes zero are no notes.
struct Notes {
    text: [u8; 4096],
    written: usize,
    code: [Code; MOST_CODE],
    known: usize,
    /// What can be read of the stack, from its pointer on.
    stack: Range<usize>,
    read: [u8; 4096],
    line: [u8; 512],
}

/// Writes what is known of a crash.
fn tell(crash: &Crash) {
    let bytes = size_of::<Notes>();
    // SAFETY: a new mapping at an address that the system chooses.
    let place = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if place == libc::MAP_FAILED {
        return;
    }
    // SAFETY: the mapping is this function's, is large enough, begins at a page, and has bytes that
    // are zero, which are valid notes.
    let notes = unsafe { &mut *place.cast::<Notes>() };
    notes.learn_mappings(crash.registers.stack);
    notes.describe(crash);
    // SAFETY: the text has these bytes.
    unsafe { libc::write(libc::STDERR_FILENO, notes.text.as_ptr().cast(), notes.written) };
}

impl Notes {
    /// Reads which code is mapped, and how far the stack goes.
    fn learn_mappings(&mut self, stack: usize) {
        // SAFETY: the name ends with a zero.
        let file = unsafe { libc::open(MAPS.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if file < 0 {
            return;
        }
        let mut length = 0;
        loop {
            // SAFETY: the buffer has these bytes.
            let read = unsafe { libc::read(file, self.read.as_mut_ptr().cast(), self.read.len()) };
            let Ok(read @ 1..) = usize::try_from(read) else { break };
            for at in 0..read {
                match self.read.get(at) {
                    Some(b'\n') => {
                        self.learn(length, stack);
                        length = 0;
                    }
                    Some(byte) => {
                        if let Some(place) = self.line.get_mut(length) {
                            *place = *byte;
                            length += 1;
                        }
                    }
                    None => {}
                }
            }
        }
        // SAFETY: it was opened here.
        unsafe { libc::close(file) };
    }

    /// Learns from a line of which so many bytes are there.
    fn learn(&mut self, length: usize, stack: usize) {
        let Some(Mapping { start, end, offset, is_readable, is_code, name }) = self.line.get(..length).and_then(read_mapping) else { return };
        // The pointer of a full stack is in the page before it, which nobody may read.
        if is_readable && self.stack.is_empty() && end > stack && start <= stack.saturating_add(MOST_GUARD) {
            self.stack = start.max(stack)..end;
        }
        let Some(place) = self.code.get_mut(self.known).filter(|_| is_code) else { return };
        let length = name.len().min(MOST_NAME);
        *place = Code { start, end, offset, name: [0; MOST_NAME], length };
        place.name.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
        self.known += 1;
    }

    fn describe(&mut self, crash: &Crash) {
        let Crash { signal, address, registers } = *crash;
        self.say(b"cumux: signal ");
        self.say_number(signal as usize, 10);
        if let Some((_, name)) = CRASHES.iter().find(|(number, _)| *number == signal) {
            self.say(b" (");
            self.say(name.as_bytes());
            self.say(b")");
        }
        let mut thread = [0_u8; 16];
        // SAFETY: the system writes at most 16 bytes, the last of them zero.
        unsafe { libc::prctl(libc::PR_GET_NAME, thread.as_mut_ptr()) };
        self.say(b" in thread ");
        self.say(thread.split(|byte| *byte == 0).next().unwrap_or_default());
        self.say(b", address 0x");
        self.say_number(address, 16);
        self.say(b", at ");
        if !self.say_place(registers.instruction) {
            self.say(b"0x");
            self.say_number(registers.instruction, 16);
        }
        let mut callers = 0;
        let first = self.stack.start.next_multiple_of(size_of::<usize>());
        for number in 0..STACK_WORDS {
            let at = first + number * size_of::<usize>();
            if callers == MOST_CALLERS || at + size_of::<usize>() > self.stack.end {
                break;
            }
            // SAFETY: the word is in a mapping that can be read, and aligned.
            let word = unsafe { ptr::with_exposed_provenance::<usize>(at).read_volatile() };
            if self.find(word).is_some() {
                self.say(if callers == 0 { b", called by " } else { b", " });
                self.say_place(word);
                callers += 1;
            }
        }
        self.say(b"\n");
    }

    fn find(&self, address: usize) -> Option<Code> {
        self.code.get(..self.known)?.iter().find(|code| (code.start..code.end).contains(&address)).copied()
    }

    /// Says the file in which the address lies, and the offset. False if it lies in none.
    fn say_place(&mut self, address: usize) -> bool {
        let Some(code) = self.find(address) else { return false };
        self.say(code.name.get(..code.length).unwrap_or_default());
        self.say(b"+0x");
        self.say_number(address - code.start + code.offset, 16);
        true
    }

    /// Adds to the text as much as fits.
    fn say(&mut self, words: &[u8]) {
        for byte in words {
            if let Some(place) = self.text.get_mut(self.written) {
                *place = *byte;
                self.written += 1;
            }
        }
    }

    fn say_number(&mut self, number: usize, base: usize) {
        let mut digits = [0_u8; 20];
        let (mut rest, mut at) = (number, digits.len());
        loop {
            at -= 1;
            if let (Some(place), Some(digit)) = (digits.get_mut(at), b"0123456789abcdef".get(rest % base)) {
                *place = *digit;
            }
            rest /= base;
            if rest == 0 || at == 0 {
                break;
            }
        }
        let from = at;
        for at in from..digits.len() {
            let digit = digits.get(at).copied().unwrap_or_default();
            self.say(&[digit]);
        }
    }
}

/// A line of the list of mappings.
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'a> {
    start: usize,
    end: usize,
    offset: usize,
    is_readable: bool,
    is_code: bool,
    /// The file's name without its folder; what the system writes for a mapping without a file.
    name: &'a [u8],
}

/// Reads a line of the list of mappings, as proc_pid_maps(5) has them.
fn read_mapping(line: &[u8]) -> Option<Mapping<'_>> {
    let mut words = line.split(|byte| *byte == b' ');
    let mut addresses = words.next()?.split(|byte| *byte == b'-');
    let (start, end) = (read_hexadecimal(addresses.next()?)?, read_hexadecimal(addresses.next()?)?);
    let rights = words.next()?;
    let offset = read_hexadecimal(words.next()?)?;
    let path = words.nth(1)?;
    // Spaces come before the path, and may be in it: what is behind the last slash is enough.
    let rest = words.fold(path, |last, word| if word.is_empty() { last } else { word });
    let name = rest.rsplit(|byte| *byte == b'/').next().unwrap_or(rest);
    Some(Mapping {
        start,
        end,
        offset,
        is_readable: rights.first() == Some(&b'r'),
        is_code: rights.get(2) == Some(&b'x'),
        name: if rest == path { b"?" } else { name },
    })
}

fn read_hexadecimal(digits: &[u8]) -> Option<usize> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as usize);
    let add = |number: Option<usize>, byte: &u8| number?.checked_mul(16)?.checked_add(digit(byte)?);
    if digits.is_empty() { None } else { digits.iter().fold(Some(0), add) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Output};

    /// What the child of a test does.
    const TASK: &str = "CUMUX_TEST_CRASH";

    #[inline(never)]
    fn crash(task: &str) {
        match task {
            // SAFETY: no: this is what is tested.
            "write" => unsafe { ptr::without_provenance_mut::<u32>(0x20).write_volatile(7) },
            "abort" => std::process::abort(),
            // SAFETY: raise(3) has no preconditions.
            "sent" => unsafe {
                libc::raise(libc::SIGSEGV);
            },
            "deep" => drop(std::thread::Builder::new().name("deep".into()).spawn(|| sink(0)).expect("a thread").join()),
            other => panic!("{other}"),
        }
    }

    /// Calls itself until the stack is full.
    #[expect(unconditional_recursion, reason = "this is what is tested")]
    fn sink(depth: u64) -> u64 {
        std::hint::black_box([depth; 64]);
        sink(depth + 1) + std::hint::black_box(1)
    }

    fn run(task: &str) -> (Output, String) {
        let program = std::env::current_exe().expect("this program");
        let output =
            Command::new(program).args(["--exact", "crashes::tests::a_crash_says_where_it_was", "--nocapture"]).env(TASK, task).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, said)
    }

    #[test]
    fn a_crash_says_where_it_was() {
        if let Ok(task) = std::env::var(TASK) {
            // Nobody wants the core of this.
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the structure lives until the call returns.
            unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
            report_crashes();
            crash(&task);
            return;
        }
        let name = std::env::current_exe().expect("this program").file_name().expect("a name").to_string_lossy().into_owned();
        let here: String = name.chars().take(MOST_NAME).collect();
        for (task, signal, words, address) in [
            ("write", libc::SIGSEGV, "signal 11 (SIGSEGV)", "0x20"),
            ("abort", libc::SIGABRT, "signal 6 (SIGABRT)", "0x0"),
            ("sent", libc::SIGSEGV, "signal 11 (SIGSEGV)", "0x0"),
        ] {
            let (output, said) = run(task);
            assert_eq!(output.status.signal(), Some(signal), "{task}: {said}");
            let line = said.lines().find(|line| line.starts_with("cumux: signal")).unwrap_or_else(|| panic!("{task}: {said}"));
            assert!(line.contains(words) && line.contains(&format!(", address {address}, at ")), "{task}: {line}");
            assert!(line.contains(&format!("{here}+0x")), "{task}: {line} {here}");
            assert!(line.matches(", ").count() > 3, "callers: {line}");
        }
        // What the standard library says of a full stack is still said.
        let (output, said) = run("deep");
        assert!(output.status.signal().is_some() && said.contains("cumux: signal 11") && said.contains("overflowed its stack"), "{said}");
    }

    #[test]
    fn lines_of_the_list_of_mappings_are_read() {
        let read = |line: &'static str| read_mapping(line.as_bytes());
        let mapping = |start, end, offset, is_code, name: &'static str| Some(Mapping { start, end, offset, is_readable: true, is_code, name: name.as_bytes() });
        assert_eq!(
            read("7f12a000-7f12b000 r-xp 00003000 08:01 1234                       /usr/lib/libcuda.so.1"),
            mapping(0x7f12_a000, 0x7f12_b000, 0x3000, true, "libcuda.so.1")
        );
        assert_eq!(read("7f12a000-7f12b000 rw-p 00000000 00:00 0"), mapping(0x7f12_a000, 0x7f12_b000, 0, false, "?"));
        assert_eq!(read("7ffd000-7ffe000 rw-p 00000000 00:00 0                          [stack]"), mapping(0x7ff_d000, 0x7ff_e000, 0, false, "[stack]"));
        assert_eq!(read("1-2 r-xp 0 00:00 7      /a b/c d (deleted)"), mapping(1, 2, 0, true, "(deleted)"));
        assert_eq!(read("1-2 ---p 0 00:00 0").map(|mapping| (mapping.is_readable, mapping.is_code)), Some((false, false)));
        for bad in ["", "1", "1-2", "1-x r-xp 0 0 0 /a", "1-2 r-xp", "-2 r-xp 0 0 0", "fffffffffffffffff-1 r-xp 0 0 0 /a"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn text_that_is_too_long_is_cut() {
        let mut notes: Box<Notes> = Box::new(Notes {
            text: [0; 4096],
            written: 0,
            code: [Code { start: 0, end: 0, offset: 0, name: [0; MOST_NAME], length: 0 }; MOST_CODE],
            known: 0,
            stack: 0..0,
            read: [0; 4096],
            line: [0; 512],
        });
        for (number, base, text) in [(0, 10, "0"), (11, 10, "11"), (usize::MAX, 16, "ffffffffffffffff"), (usize::MAX, 10, "18446744073709551615")] {
            let before = notes.written;
            notes.say_number(number, base);
            assert_eq!(&notes.text[before..notes.written], text.as_bytes());
        }
        notes.say(&[b'x'; 5000]);
        assert_eq!(notes.written, 4096);
        assert!(!notes.say_place(7));
    }
}
