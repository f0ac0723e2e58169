//! What this machine has for device memory: that of a software GPU is the machine's own, and a
//! card's 140 GiB are not there on most.
//!
//! Extents are backed when they are touched. To promise more than there is would end the executor
//! by the kernel's memory guard, and the same work would end its successor. So extents are counted
//! against a [`Budget`]: `CUMUX_SIM_MEMORY_BYTES`, or what is available of the machine's memory and
//! within the limits of the control group, less a reserve. All software GPUs of a process share it.
//! Beyond it an allocation is refused, as on a full card.
//!
//! It is measured when it is first needed, which is when an executor begins to serve. What a
//! predecessor's extents hold is not available then, and is added.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cumux_device::DeviceError;
use parking_lot::Mutex;

/// Bytes of extents that all software GPUs of an executor may have together.
pub(crate) const VARIABLE: &str = "CUMUX_SIM_MEMORY_BYTES";
/// One part of so many stays free, and at least [`LEAST_RESERVE`].
const RESERVE_PART: u64 = 16;
const LEAST_RESERVE: u64 = 128 << 20;

/// The budget of this process.
static SHARED: Mutex<Option<Arc<Budget>>> = Mutex::new(None);

/// Where the number of bytes comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Given(u64),
    /// Of the machine, not measured yet.
    Unmeasured,
    Measured(u64),
}

#[derive(Debug)]
struct State {
    limit: Limit,
    used: u64,
}

impl State {
    fn limit(&mut self) -> u64 {
        if self.limit == Limit::Unmeasured {
            self.limit = Limit::Measured(less_reserve(available(Path::new("/"))));
        }
        match self.limit {
            Limit::Given(bytes) | Limit::Measured(bytes) => bytes,
            Limit::Unmeasured => u64::MAX,
        }
    }
}

/// Bytes for extents, and how many of them are taken.
#[derive(Debug)]
pub(crate) struct Budget {
    state: Mutex<State>,
}

impl Budget {
    /// So many; without a number, what the machine has.
    pub(crate) fn new(bytes: Option<u64>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { limit: bytes.map_or(Limit::Unmeasured, Limit::Given), used: 0 }) })
    }

    /// The one that all cards of this process share; the first one says how it is limited.
    pub(crate) fn of_process(bytes: Option<u64>) -> Arc<Self> {
        SHARED.lock().get_or_insert_with(|| Self::new(bytes)).clone()
    }

    /// What somebody may have who has `own` of it.
    pub(crate) fn within_reach(&self, own: u64) -> u64 {
        let mut state = self.state.lock();
        state.limit().saturating_sub(state.used.saturating_sub(own))
    }

    /// Reserves bytes for a new extent.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when they are not there.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        let limit = state.limit();
        if state.used.checked_add(bytes).is_none_or(|sum| sum > limit) {
            let used = state.used;
            return Err(DeviceError::OutOfMemory(format!(
                "{bytes} bytes wanted, and {used} of the {limit} are taken that this machine has for software GPUs ({VARIABLE} sets another number)"
            )));
        }
        state.used += bytes;
        Ok(())
    }

    /// Counts bytes of an extent that a predecessor made, whatever there is. `resident`: what it
    /// holds of the machine's memory already.
    pub(crate) fn inherit(&self, bytes: u64, resident: u64) {
        let mut state = self.state.lock();
        state.limit();
        if let Limit::Measured(limit) = state.limit {
            state.limit = Limit::Measured(limit.saturating_add(resident));
        }
        state.used = state.used.saturating_add(bytes);
    }

    pub(crate) fn release(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.used = state.used.saturating_sub(bytes);
    }
}

/// What may be promised of so much. Where nothing can be known, nothing is limited.
fn less_reserve(available: Option<u64>) -> u64 {
    available.map_or(u64::MAX, |bytes| bytes.saturating_sub((bytes / RESERVE_PART).max(LEAST_RESERVE)))
}

/// Bytes that this process and its like can still get: the machine's available memory, and what its
/// control groups leave. `root` is `/`.
fn available(root: &Path) -> Option<u64> {
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok().and_then(|text| field(&text, "MemAvailable:")).map(|kib| kib.saturating_mul(1024));
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let rooms = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let layout = if controllers.is_empty() {
            &UNIFIED
        } else if controllers.split(',').any(|name| name == "memory") {
            &SPLIT
        } else {
            return None;
        };
        layout.room(root, path)
    });
    machine.into_iter().chain(rooms).min()
}

/// The number behind a word at the beginning of a line.
fn field(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        if words.next() == Some(word) { words.next()?.parse().ok() } else { None }
    })
}

/// The files of a version of control groups.
struct Layout {
    mount: &'static str,
    most: &'static str,
    used: &'static str,
    /// Files that nobody reads at the moment count as used and can be had at once.
    reclaimable: &'static str,
}

const UNIFIED: Layout = Layout { mount: "sys/fs/cgroup", most: "memory.max", used: "memory.current", reclaimable: "inactive_file" };
const SPLIT: Layout =
    Layout { mount: "sys/fs/cgroup/memory", most: "memory.limit_in_bytes", used: "memory.usage_in_bytes", reclaimable: "total_inactive_file" };

impl Layout {
    /// What the tightest of a group and those above it leaves; none where none of them has a limit.
    fn room(&self, root: &Path, group: &str) -> Option<u64> {
        let mount = root.join(self.mount);
        // In a container the path may be that of the host, and the mount begins at the group
        // itself.
        let mut folders: Vec<PathBuf> = Path::new(group.trim_start_matches('/')).ancestors().map(|path| mount.join(path)).collect();
        folders.push(mount);
        folders.iter().filter_map(|folder| self.room_of(folder)).min()
    }

    fn room_of(&self, folder: &Path) -> Option<u64> {
        let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        // "max", or with the older files a number beyond every machine.
        let most = number(self.most).filter(|most| *most < 1 << 60)?;
        let reclaimable = fs::read_to_string(folder.join("memory.stat")).ok().and_then(|text| field(&text, self.reclaimable)).unwrap_or(0);
        Some(most.saturating_sub(number(self.used)?.saturating_sub(reclaimable)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A machine made of files.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let machine = Self(std::env::temp_dir().join(format!("cumux-machine-{name}-{}", std::process::id())));
            for (path, text) in files {
                let path = machine.0.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            machine
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       9999999 kB\nMemAvailable:   1048576 kB\n");

    #[test]
    fn the_machine_alone() {
        let machine = Machine::new("alone", &[MEMINFO, ("proc/self/cgroup", "0::/user.slice\n")]);
        assert_eq!(available(&machine.0), Some(1024 * MIB));
        assert_eq!(available(Path::new("/nonexistent")), None);
        assert_eq!((less_reserve(Some(1024 * MIB)), less_reserve(Some(MIB)), less_reserve(None)), (896 * MIB, 0, u64::MAX));
        assert_eq!(less_reserve(Some(32 << 30)), 30 << 30);
    }

    #[test]
    fn the_tightest_group_counts_and_what_can_be_reclaimed_does_not() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "536870912\n"),
            ("sys/fs/cgroup/a/memory.current", "268435456\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 67108864\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "1\n"),
        ];
        assert_eq!(available(&Machine::new("unified", &files).0), Some(320 * MIB));
    }

    #[test]
    fn a_group_of_a_container_lies_at_the_mount_itself() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "12:cpu,cpuacct:/docker/x\n7:memory:/docker/x\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "209715200\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "104857600\n"),
            ("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 0\n"),
        ];
        assert_eq!(available(&Machine::new("split", &files).0), Some(100 * MIB));
        let unlimited = [MEMINFO, files[1], ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"), files[3]];
        assert_eq!(available(&Machine::new("unlimited", &unlimited).0), Some(1024 * MIB));
    }

    #[test]
    fn a_budget_is_shared_and_what_is_inherited_is_not_refused() {
        let budget = Budget::new(Some(100));
        budget.reserve(60).unwrap();
        assert_eq!((budget.within_reach(60), budget.within_reach(0)), (100, 40));
        let text = budget.reserve(41).unwrap_err().to_string();
        assert!(text.contains("41 bytes wanted, and 60 of the 100") && text.contains(VARIABLE), "{text}");
        budget.inherit(70, 70);
        assert_eq!((budget.within_reach(70), budget.reserve(1).is_err()), (40, true), "a given number stays what it is");
        budget.release(70);
        budget.reserve(40).unwrap();
        let measured = Budget { state: Mutex::new(State { limit: Limit::Measured(100), used: 0 }) };
        measured.inherit(80, 30);
        assert_eq!(measured.within_reach(80), 130, "what it holds was not available any more");
    }
}
