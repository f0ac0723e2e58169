//! What compilers in the program's process have made, kept on disk.
//!
//! NVRTC compiles in two steps, and asks the driver before each whether it has the result already.
//! cuDNN and cuFFT compile kernels so while a program runs: seconds that each start of each worker
//! would take again. The directory is `cumux` in the one that the driver would use
//! (`CUDA_CACHE_PATH`, `CUDA_CACHE_MAXSIZE`, `CUDA_CACHE_DISABLE`: CUDA Programming Guide,
//! environment variables). NVIDIA's own files there have another form.
//!
//! - A file is named by the hash of everything that the compiler was given, and has that hash, the
//!   hash of the contents and the contents in it. One that does not fit is removed.
//! - The directory and the file must be such that no other user can have written them
//!   ([`Folder`]): what is read here runs on the card.
//! - Files appear in one step. Where they have grown beyond the limit, those go that were not used
//!   for the longest time.

use crate::sync::lock;
use cumux_link::folder::{Folder, FolderError, Rule};
use cumux_link::trust;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::SystemTime;

const MAGIC: &[u8; 8] = b"cumuxcc1";
/// Bytes of a hash.
const HASH: usize = 32;
/// Bytes before the contents of a file.
const HEAD: usize = MAGIC.len() + 2 * HASH;
/// As the CUDA Programming Guide has it for `CUDA_CACHE_MAXSIZE`: 1 GiB, and never more than 4.
const USUAL_LIMIT: u64 = 1 << 30;
const LARGEST_LIMIT: u64 = 4 << 30;
/// More files are not looked at.
const MOST_FILES: usize = 1 << 16;

/// Everything that the compiler was given, as a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key([u8; HASH]);

impl Key {
    /// The key of these parts, in this order. Each one counts with its length, so that no two lists
    /// of parts are the same.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut hash = blake3::Hasher::new();
        for part in parts {
            hash.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Self(hash.finalize().into())
    }

    fn file(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

/// The directory of results.
#[derive(Debug)]
pub(crate) struct Compiled {
    path: PathBuf,
    /// Bytes of all files together.
    limit: u64,
    /// One thread of this process writes at a time: a file that is being written is named by the
    /// process.
    writing: Mutex<()>,
}

impl Compiled {
    /// The directory that the environment names. `None` where results are not to be kept, or the
    /// program has no home.
    pub(crate) fn of_environment() -> Option<&'static Self> {
        static COMPILED: OnceLock<Option<Compiled>> = OnceLock::new();
        let find = || {
            let number = |name| trust::variable(name).and_then(|text| text.to_str()?.trim().parse::<u64>().ok());
            let at = trust::variable("CUDA_CACHE_PATH").map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
            let at = at.or_else(|| Some(Path::new(&trust::variable("HOME").filter(|home| !home.is_empty())?).join(".nv/ComputeCache")))?;
            let limit = number("CUDA_CACHE_MAXSIZE").unwrap_or(USUAL_LIMIT).min(LARGEST_LIMIT);
            (number("CUDA_CACHE_DISABLE").unwrap_or(0) == 0).then(|| Self::at(&at, limit))
        };
        COMPILED.get_or_init(find).as_ref()
    }

    fn at(path: &Path, limit: u64) -> Self {
        Self { path: path.join("cumux"), limit, writing: Mutex::new(()) }
    }

    /// Finds what was kept under the key; `None` if there is nothing, or nothing that is believed.
    pub(crate) fn find(&self, key: Key) -> Option<Vec<u8>> {
        let result = Folder::open(&self.path).and_then(|folder| self.read(&folder, key));
        result.unwrap_or_else(|error| {
            if !error.is_missing() {
                crate::log::line(format_args!("what was compiled before is not read: {error}"));
            }
            None
        })
    }

    fn read(&self, folder: &Folder, key: Key) -> Result<Option<Vec<u8>>, FolderError> {
        let name = key.file();
        let mut file = folder.open_to_read(&name)?;
        let mut bytes = Vec::new();
        let read = (&mut file).take(self.limit.saturating_add(HEAD as u64)).read_to_end(&mut bytes);
        if read.is_ok() && is_sound(key, &bytes) {
            // It was used now: others go first. A file system that cannot say so loses nothing.
            let _ = file.set_modified(SystemTime::now());
            bytes.drain(..HEAD);
            return Ok(Some(bytes));
        }
        crate::log::line(format_args!("{} is damaged and is removed", self.path.join(&name).display()));
        let _ = folder.remove(&name);
        Ok(None)
    }

    /// Keeps what was compiled, if it is not larger than all may be together.
    ///
    /// # Errors
    /// [`FolderError`]: the directory cannot be made or written, or is not safe.
    pub(crate) fn keep(&self, key: Key, contents: &[u8]) -> Result<(), FolderError> {
        if (contents.len() + HEAD) as u64 > self.limit {
            return Ok(());
        }
        let _writing = lock(&self.writing);
        let folder = Folder::make(&self.path, 0o700, Rule::Service)?;
        let hash = blake3::hash(contents);
        folder.install(key.file(), &[MAGIC, key.0.as_slice(), hash.as_bytes(), contents].concat(), 0o600)?;
        if let Err(error) = self.make_room(&folder) {
            crate::log::line(format_args!("what was compiled longest ago stays: {error}"));
        }
        Ok(())
    }

    /// Removes what is kept under the key, if anything is.
    pub(crate) fn forget(&self, key: Key) {
        if let Ok(folder) = Folder::open(&self.path) {
            let _ = folder.remove(key.file());
        }
    }

    /// Removes the files that were used longest ago while all together are larger than the limit.
    fn make_room(&self, folder: &Folder) -> io::Result<()> {
        let mut files = Vec::new();
        for name in folder.names(MOST_FILES)? {
            // Another process may have removed it meanwhile.
            if let Ok(stat) = folder.stat(&name) {
                files.push(((stat.st_mtime, stat.st_mtime_nsec), u64::try_from(stat.st_size).unwrap_or(0), name));
            }
        }
        let mut all: u64 = files.iter().map(|(_, size, _)| size).sum();
        files.sort_unstable();
        for (_, size, name) in files {
            if all <= self.limit {
                break;
            }
            folder.remove(&name)?;
            all -= size;
        }
        Ok(())
    }
}

/// Whether a file is whole, and that of this key.
fn is_sound(key: Key, file: &[u8]) -> bool {
    let (head, contents) = file.split_at_checked(HEAD).unwrap_or_default();
    let hash = blake3::hash(contents);
    head == [MAGIC, key.0.as_slice(), hash.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn place(limit: u64) -> (tempfile::TempDir, Compiled) {
        let room = tempfile::tempdir().unwrap();
        let compiled = Compiled::at(room.path(), limit);
        (room, compiled)
    }

    /// A place with one result, and the file of that.
    fn kept() -> (tempfile::TempDir, Compiled, Key, PathBuf) {
        let (room, compiled) = place(1 << 20);
        let key = Key::of(&[b"source"]);
        compiled.keep(key, b"machine code").unwrap();
        let file = compiled.path.join(key.file());
        (room, compiled, key, file)
    }

    #[test]
    fn what_is_kept_is_found_under_its_key_alone() {
        let (_room, compiled) = place(1 << 20);
        let (one, other) = (Key::of(&[b"source", b"-O3"]), Key::of(&[b"source-", b"O3"]));
        assert_ne!(one, other, "where a part ends counts");
        assert_eq!(compiled.find(one), None, "nothing is there, not even the directory");
        compiled.keep(one, b"machine code").unwrap();
        assert_eq!((compiled.find(one).as_deref(), compiled.find(other)), (Some(&b"machine code"[..]), None));
        compiled.keep(one, b"").unwrap();
        assert_eq!(compiled.find(one).as_deref(), Some(&b""[..]));
        compiled.forget(one);
        compiled.forget(one);
        assert_eq!(compiled.find(one), None);
    }

    #[test]
    fn a_damaged_file_is_removed_and_not_believed() {
        let (_room, compiled, key, file) = kept();
        let whole = std::fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&file, damaged).unwrap();
            assert_eq!((compiled.find(key), file.exists()), (None, false), "byte {at}");
            std::fs::write(&file, &whole[..at]).unwrap();
            assert_eq!((compiled.find(key), file.exists()), (None, false), "{at} bytes");
        }
        // Whole, but under another name.
        let other = Key::of(&[b"another source"]);
        std::fs::write(compiled.path.join(other.file()), &whole).unwrap();
        assert_eq!(compiled.find(other), None);
    }

    #[test]
    fn what_others_can_write_is_not_believed() {
        let (room, compiled, key, file) = kept();
        let set_mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&compiled.path), mode(&file)), (0o700, 0o600));
        set_mode(&compiled.path, 0o777);
        assert_eq!(compiled.find(key), None);
        assert!(compiled.keep(key, b"machine code").is_err_and(|error| error.is_danger()));
        set_mode(&compiled.path, 0o700);
        assert!(compiled.find(key).is_some());
        // A link in its place, to something that would fit.
        std::fs::rename(&file, room.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(room.path().join("elsewhere"), &file).unwrap();
        assert_eq!(compiled.find(key), None);
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let size = 1000 + HEAD as u64;
        let (_room, compiled) = place(3 * size);
        let keys: Vec<Key> = (0..4_u8).map(|number| Key::of(&[&[number]])).collect();
        for (number, key) in keys.iter().enumerate().take(3) {
            compiled.keep(*key, &[number as u8; 1000]).unwrap();
            // As if it had been long ago.
            let file = std::fs::File::open(compiled.path.join(key.file())).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64)).unwrap();
        }
        assert!(compiled.find(keys[0]).is_some(), "the oldest one is used now");
        compiled.keep(keys[3], &[3; 1000]).unwrap();
        assert_eq!(keys.iter().map(|key| compiled.find(*key).is_some()).collect::<Vec<_>>(), [true, false, true, true]);
        compiled.keep(keys[1], &vec![0; 4000]).unwrap();
        assert_eq!(compiled.find(keys[1]), None, "larger than all may be");
        assert!(keys[2..].iter().all(|key| compiled.find(*key).is_some()), "nothing goes for it");
    }
}
