//! `cuLogs…`: the error messages of this process (`messages.rs`), kept, written into a file, or
//! told to whoever has registered for them.

use crate::ffi::Try;
use crate::messages::{self, Excerpt};
use core::ffi::{CStr, c_char, c_uint, c_void};
use cumux_abi::{CUlogIterator, CUlogLevel, CUlogsCallback, CUlogsCallbackHandle, CUresult};
use std::ffi::{CString, OsStr};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Mutex, PoisonError};

/// Who has registered. A callback may register others, so none is called under the lock.
static REGISTERED: Mutex<Registered> = Mutex::new(Registered { entries: Vec::new(), last: 0 });

struct Registered {
    entries: Vec<Entry>,
    /// The last handle that was given out.
    last: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    handle: usize,
    function: unsafe extern "C" fn(*mut c_void, CUlogLevel, *mut c_char, usize),
    /// The program's own word.
    data: usize,
}

fn registered() -> std::sync::MutexGuard<'static, Registered> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tell_all(_number: usize, line: &str) {
    let entries = registered().entries.clone();
    let Ok(text) = CString::new(line) else { return };
    for Entry { function, data, .. } in entries {
        let mut bytes = text.clone().into_bytes_with_nul();
        // SAFETY: the program has registered this function for calls with its own word, a text that
        // ends with zero and belongs to the call, and its length.
        unsafe { function(data as *mut c_void, CUlogLevel::CU_LOG_LEVEL_ERROR, bytes.as_mut_ptr().cast(), line.len()) };
    }
}

/// Registers a function that is called with each message.
pub unsafe fn cuLogsRegisterCallback(function: CUlogsCallback, data: *mut c_void, handle: *mut CUlogsCallbackHandle) -> Try {
    let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    messages::set_listener(tell_all);
    let mut registered = registered();
    registered.last += 1;
    let entry = Entry { handle: registered.last, function, data: data as usize };
    registered.entries.push(entry);
    if !handle.is_null() {
        // SAFETY: not null, and the caller's to be written.
        unsafe { handle.write(entry.handle as CUlogsCallbackHandle) };
    }
    Ok(())
}

/// Ends that. A call that is under way on another thread may still come to its end.
pub unsafe fn cuLogsUnregisterCallback(handle: CUlogsCallbackHandle) -> Try {
    let mut registered = registered();
    let at = registered.entries.iter().position(|entry| entry.handle == handle as usize).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    registered.entries.remove(at);
    Ok(())
}

/// The place behind the last message.
pub unsafe fn cuLogsCurrent(iterator: *mut CUlogIterator, flags: c_uint) -> Try {
    if iterator.is_null() || flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's to be written.
    unsafe { iterator.write(messages::with(|messages| messages.next())) };
    Ok(())
}

/// Reads from the iterator's place, or all that is kept without one.
unsafe fn read(iterator: *mut CUlogIterator, room: usize) -> Excerpt {
    // SAFETY: null or the caller's to be read.
    let from = unsafe { iterator.as_ref() }.copied();
    messages::with(|messages| messages.read(from.unwrap_or_else(|| messages.first()), room))
}

unsafe fn advance(iterator: *mut CUlogIterator, next: u32) {
    // SAFETY: null or the caller's to be written.
    if let Some(iterator) = unsafe { iterator.as_mut() } {
        *iterator = next;
    }
}

/// Writes messages behind what the file has already.
pub unsafe fn cuLogsDumpToFile(iterator: *mut CUlogIterator, path: *const c_char, flags: c_uint) -> Try {
    if path.is_null() || flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null; the caller gives a text that ends with zero.
    let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
    // SAFETY: as our caller promises.
    let Excerpt { text, next } = unsafe { read(iterator, usize::MAX) };
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: as our caller promises.
    unsafe { advance(iterator, next) };
    Ok(())
}

/// Copies messages, with a zero behind them. `size` is the room, and then what was used of it
/// without the zero.
pub unsafe fn cuLogsDumpToMemory(iterator: *mut CUlogIterator, buffer: *mut c_char, size: *mut usize, flags: c_uint) -> Try {
    if buffer.is_null() || size.is_null() || flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's to be read.
    let room = unsafe { size.read() }.checked_sub(1).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: as our caller promises.
    let Excerpt { text, next } = unsafe { read(iterator, room) };
    // SAFETY: the buffer has a byte more than `room`, and the text has at most `room`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, text.len());
        buffer.add(text.len()).write(0);
        size.write(text.len());
    }
    // SAFETY: as our caller promises.
    if text.is_empty() && unsafe { read(iterator, usize::MAX) } != (Excerpt { text: String::new(), next }) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: as our caller promises.
    unsafe { advance(iterator, next) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    static HEARD: Mutex<Vec<(usize, String)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn hear(data: *mut c_void, level: CUlogLevel, message: *mut c_char, length: usize) {
        // SAFETY: what is told ends with zero.
        let text = unsafe { CStr::from_ptr(message) }.to_str().unwrap().to_owned();
        assert_eq!((level, text.len()), (CUlogLevel::CU_LOG_LEVEL_ERROR, length));
        // One that fails is not told to itself.
        messages::note("within");
        HEARD.lock().unwrap().push((data as usize, text));
    }

    /// From the iterator's place on, into so much room.
    fn dump(iterator: &mut CUlogIterator, room: usize) -> Result<String, CUresult> {
        let (mut buffer, mut size) = (vec![1_u8; room], room);
        // SAFETY: our own memory, and its size.
        unsafe { cuLogsDumpToMemory(iterator, buffer.as_mut_ptr().cast(), &mut size, 0) }?;
        assert_eq!(buffer[size], 0);
        Ok(String::from_utf8(buffer[..size].to_vec()).unwrap())
    }

    /// Messages belong to the process, so this is one test.
    #[test]
    fn messages_are_kept_and_told() {
        let (mut before, mut handle) = (7, null_mut());
        // SAFETY: our own variables, and a function that takes what it is given.
        unsafe {
            cuLogsCurrent(&mut before, 0).unwrap();
            cuLogsRegisterCallback(Some(hear), 5 as *mut c_void, &mut handle).unwrap();
        }
        messages::note("one");
        messages::note("two");
        let mut iterator = before;
        let text = dump(&mut iterator, 1000).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| line.rsplit("[CUDA][E] ").next().unwrap()).collect();
        assert_eq!((lines, iterator), (vec!["one", "two"], before + 2));
        assert_eq!(dump(&mut iterator, 1000), Ok(String::new()), "nothing new");
        assert_eq!(dump(&mut { before }, 5), Err(CUresult::CUDA_ERROR_INVALID_VALUE), "no room for the first one");
        let heard: Vec<(usize, String)> = HEARD.lock().unwrap().clone();
        assert!(heard.len() == 2 && heard.iter().all(|(data, _)| *data == 5) && heard[1].1.ends_with("[CUDA][E] two"), "{heard:?}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        let path = CString::new(file.as_os_str().as_bytes()).unwrap();
        // SAFETY: our own variables; the handle is the one that was given out.
        unsafe {
            cuLogsDumpToFile(&mut before, path.as_ptr(), 0).unwrap();
            cuLogsUnregisterCallback(handle).unwrap();
            assert_eq!(cuLogsUnregisterCallback(handle), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
            assert_eq!(cuLogsDumpToFile(null_mut(), c"/nonexistent/folder/file".as_ptr(), 0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
            assert_eq!(cuLogsCurrent(null_mut(), 0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        }
        messages::note("three");
        assert_eq!((std::fs::read_to_string(file).unwrap(), HEARD.lock().unwrap().len()), (text, 2));
    }
}
