//! What is known of a program: a JSON document with a version. docs/planning.md explains each
//! field; `cumux record` writes it.
//!
//! Invariant: a [`Profile`] that [`read`] returned is usable: its numbers are in range and every
//! step names a kernel or copy that exists.

pub mod by_hand;

use serde::{Deserialize, Serialize};

/// The word in `format`.
pub const FORMAT: &str = "cumux-profile";
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;

/// Longest document, in bytes.
pub const LONGEST: usize = 64 << 20;
/// Most steps of one request once its repetitions are written out.
pub const MOST_STEPS: u64 = 1_000_000;
/// How deep repetitions may lie in each other.
const DEEPEST: usize = 8;

/// A program, as it was seen on one card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The program's name, for people.
    pub program: String,
    /// When and by what it was recorded; absent in a profile made by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
    /// The card on which the times were taken.
    pub card: CardFacts,
    /// Each kernel with each shape in which it was launched.
    pub kernels: Vec<Kernel>,
    /// Each kind of copy.
    #[serde(default)]
    pub copies: Vec<Copy>,
    /// One request: what the host does from taking up a piece of work until it has its result.
    pub request: Vec<Step>,
    /// How many requests were seen.
    pub requests: u64,
    /// The program's device memory over time, without the context's own. The last entry lasts.
    pub memory: Vec<MemoryAt>,
    /// Where the host's time went, if that was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// What a reader must know of this recording: sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Where the host's time went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Launches of all kernels.
    pub launches: u64,
    /// Time in the calls that launch.
    pub launching_ns: u64,
    /// Host time before a launch since its last call.
    pub launch_gap: Duration,
    /// Host time of a request, without its waits, where it was seen more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Duration>,
    /// How often it waited for the device.
    pub waits: u64,
    /// How long.
    pub waiting_ns: u64,
    /// Where it waited longest, the longest first.
    pub waits_after: Vec<HostWait>,
}

/// A place where the host waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostWait {
    /// The kernel that it launched last before, by its place in [`Profile::kernels`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<usize>,
    /// How often.
    pub count: u64,
    /// How long together.
    pub total_ns: u64,
}

/// About the recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// Seconds since 1970.
    pub at: u64,
    /// Version of cumux.
    pub cumux: String,
    /// Version of the driver; empty on a software GPU.
    pub driver: String,
    /// How long was recorded.
    pub lasted_ns: u64,
}

/// The card, as far as times depend on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardFacts {
    /// The driver's name for it.
    pub name: String,
    /// Multiprocessors that the program could use.
    pub multiprocessors: u32,
    /// Their highest clock.
    pub clock_khz: u32,
    /// Bytes a second.
    pub bandwidth: u64,
    /// Bytes of L2 cache.
    pub cache: u64,
    /// Threads that one multiprocessor can have.
    pub threads: u32,
    /// Blocks that one multiprocessor can have.
    pub blocks: u32,
    /// Registers of one multiprocessor.
    pub registers: u32,
    /// Bytes of shared memory of one multiprocessor.
    pub shared: u32,
}

/// A kernel in one shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// Its name in the image.
    pub name: String,
    /// Launches that were seen.
    pub count: u64,
    /// Blocks of a launch.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block, static and dynamic.
    pub shared: u32,
    /// How long a launch takes alone on the card.
    pub duration: Duration,
    /// Bytes that a launch moves between memory and cache, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<u64>,
    /// Part of the multiprocessors' issue slots that it uses where it runs, 0 to 1, if that is
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<f64>,
}

/// A distribution of times, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Duration {
    /// Mean.
    pub mean_ns: f64,
    /// 99 of 100 are at most this.
    pub p99_ns: f64,
}

/// The way of a copy.
#[derive(Debug, Clone, std::marker::Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From the host to the device.
    ToDevice,
    /// From the device to the host.
    ToHost,
    /// On the device; memory that is set counts as this, too.
    OnDevice,
}

/// A kind of copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copy {
    /// From where to where.
    pub way: Way,
    /// Copies that were seen.
    pub count: u64,
    /// Bytes of one.
    pub bytes: u64,
    /// How long one takes alone.
    pub duration: Duration,
}

/// What the host does next. `gap_ns` is the host's own time since the step before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Launches kernel number `kernel`.
    Launch {
        /// Place in [`Profile::kernels`].
        kernel: usize,
        /// Stream, 0 is the first.
        #[serde(default)]
        stream: u32,
        /// Host time before it.
        #[serde(default)]
        gap_ns: u64,
    },
    /// Begins copy number `copy`.
    Copy {
        /// Place in [`Profile::copies`].
        copy: usize,
        /// Stream.
        #[serde(default)]
        stream: u32,
        /// Host time before it.
        #[serde(default)]
        gap_ns: u64,
    },
    /// Waits for a stream, or for all.
    Wait {
        /// Stream; absent for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stream: Option<u32>,
        /// Host time before it.
        #[serde(default)]
        gap_ns: u64,
    },
    /// Does the same steps several times.
    Repeat {
        /// How often.
        times: u64,
        /// What.
        steps: Vec<Step>,
    },
}

/// Memory from a moment on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryAt {
    /// Since the beginning.
    pub at_ns: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The shortest time of a kernel on a card. From h200-0beefa6.txt, cumux "W2 n=1 N=100": an empty
/// kernel of a chain takes 1.36 µs, and 0.4 of these pass between two kernels. A recorder that sees
/// the ends of several together may measure less.
pub const SHORTEST_KERNEL_NS: f64 = 960.0;

/// Streams of a program.
pub const MOST_STREAMS: u32 = 128;

/// Why a document is no profile that this program can use.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ProfileError {
    /// Not JSON, or not of this form.
    #[error("it is no profile: {0}; `cumux record` writes one, docs/planning.md describes the form")]
    Form(String),
    /// Another document.
    #[error("its \"format\" is \"{0}\", not \"cumux-profile\": this is another kind of file")]
    OtherFormat(String),
    /// Another version.
    #[error("it is a profile of version {found}, and this cumux reads version 1: record it again, or use the cumux that wrote it")]
    OtherVersion {
        /// What it says.
        found: u64,
    },
    /// A value that cannot be.
    #[error("{0}")]
    Value(String),
}

/// The fields that say whether the rest can be read.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

/// Reads and checks a profile.
///
/// # Errors
/// [`ProfileError`]: a sentence that says what is wrong.
pub fn read(text: &str) -> Result<Profile, ProfileError> {
    if text.len() > LONGEST {
        return Err(ProfileError::Value(format!("it has {} bytes; a profile has at most {LONGEST}", text.len())));
    }
    let head: Head = serde_json::from_str(text).map_err(|error| ProfileError::Form(error.to_string()))?;
    if head.format != FORMAT {
        return Err(ProfileError::OtherFormat(head.format.chars().take(40).collect()));
    }
    if head.version != u64::from(VERSION) {
        return Err(ProfileError::OtherVersion { found: head.version });
    }
    let profile: Profile = serde_json::from_str(text).map_err(|error| ProfileError::Form(error.to_string()))?;
    check(&profile)?;
    Ok(profile)
}

/// Whether a time can be one: a number, at most a day.
fn is_time(ns: f64) -> bool {
    (0.0..=86_400e9).contains(&ns)
}

fn check(profile: &Profile) -> Result<(), ProfileError> {
    let wrong = |text: String| Err(ProfileError::Value(text));
    let card = &profile.card;
    let facts = [card.multiprocessors, card.clock_khz, card.threads, card.blocks, card.registers, card.shared];
    if facts.contains(&0) || facts[0] > 4096 || card.bandwidth == 0 {
        return wrong("\"card\" has a zero where a card has none, or more than 4,096 multiprocessors".to_owned());
    }
    for (number, kernel) in profile.kernels.iter().enumerate() {
        let of = || format!("kernel number {number} ({})", kernel.name.chars().take(60).collect::<String>());
        if kernel.blocks == 0 || kernel.threads == 0 || kernel.threads > 1024 {
            return wrong(format!("{} has {} blocks of {} threads: a launch has at least one block of 1 to 1,024", of(), kernel.blocks, kernel.threads));
        }
        let Duration { mean_ns, p99_ns } = kernel.duration;
        if !is_time(mean_ns) || !is_time(p99_ns) || mean_ns == 0.0 {
            return wrong(format!("{} has a duration that is none: above 0 and at most a day", of()));
        }
        if kernel.issue.is_some_and(|issue| !(0.0..=1.0).contains(&issue)) {
            return wrong(format!("{} has an \"issue\" outside 0 to 1", of()));
        }
        if occupancy(card, kernel) == 0 {
            return wrong(format!("a block of {} does not fit into a multiprocessor of the card of its profile", of()));
        }
    }
    for (number, copy) in profile.copies.iter().enumerate() {
        if !is_time(copy.duration.mean_ns) || !is_time(copy.duration.p99_ns) {
            return wrong(format!("copy number {number} has a duration that is none: at most a day"));
        }
    }
    if let Some(request) = profile.host.as_ref().and_then(|host| host.request)
        && (!is_time(request.mean_ns) || !is_time(request.p99_ns))
    {
        return wrong("the \"request\" of \"host\" is no duration: at most a day".to_owned());
    }
    if let Some(host) = &profile.host
        && (host.waits_after.iter().any(|wait| wait.after.is_some_and(|kernel| kernel >= profile.kernels.len())) || !is_time(host.launch_gap.mean_ns))
    {
        return wrong("\"host\" names a kernel that there is not, or a gap that is no time".to_owned());
    }
    let mut counted = 0;
    check_steps(profile, &profile.request, 1, 0, &mut counted)?;
    if counted == 0 {
        return wrong("\"request\" has no steps: there is nothing to plan".to_owned());
    }
    if !profile.request.iter().any(has_work) {
        return wrong("\"request\" launches and copies nothing: there is nothing to plan".to_owned());
    }
    Ok(())
}

/// Whether a step gives the device something to do.
fn has_work(step: &Step) -> bool {
    match step {
        Step::Launch { .. } | Step::Copy { .. } => true,
        Step::Wait { .. } => false,
        Step::Repeat { steps, .. } => steps.iter().any(has_work),
    }
}

fn check_steps(profile: &Profile, steps: &[Step], times: u64, depth: usize, counted: &mut u64) -> Result<(), ProfileError> {
    let wrong = |text: String| Err(ProfileError::Value(text));
    if depth > DEEPEST {
        return wrong(format!("\"repeat\" lies in itself more than {DEEPEST} times"));
    }
    for step in steps {
        *counted = counted.saturating_add(times);
        if *counted > MOST_STEPS {
            return wrong(format!("one request has more than {MOST_STEPS} steps: a request is what the host does until it has one result"));
        }
        let stream = match step {
            Step::Launch { kernel, .. } if *kernel >= profile.kernels.len() => {
                return wrong(format!("a step launches kernel number {kernel}, and there are {}", profile.kernels.len()));
            }
            Step::Copy { copy, .. } if *copy >= profile.copies.len() => {
                return wrong(format!("a step begins copy number {copy}, and there are {}", profile.copies.len()));
            }
            Step::Launch { stream, .. } | Step::Copy { stream, .. } => *stream,
            Step::Wait { stream, .. } => stream.unwrap_or(0),
            Step::Repeat { times: 0, .. } => return wrong("a \"repeat\" has 0 for its times".to_owned()),
            Step::Repeat { steps, .. } if steps.is_empty() => return wrong("a \"repeat\" has no steps".to_owned()),
            Step::Repeat { times: more, steps } => {
                check_steps(profile, steps, times.saturating_mul(*more), depth + 1, counted)?;
                0
            }
        };
        let gap = match step {
            Step::Launch { gap_ns, .. } | Step::Copy { gap_ns, .. } | Step::Wait { gap_ns, .. } => *gap_ns,
            Step::Repeat { .. } => 0,
        };
        if stream >= MOST_STREAMS || !is_time(gap as f64) {
            return wrong(format!("a step names stream {stream} or a gap of {gap} ns: at most {MOST_STREAMS} streams and a day"));
        }
    }
    Ok(())
}

/// Blocks of a kernel that fit into one multiprocessor of a card of these facts.
#[must_use]
pub fn occupancy(card: &CardFacts, kernel: &Kernel) -> u32 {
    let room = crate::card::Capacity { threads: card.threads, blocks: card.blocks, registers: card.registers, shared: card.shared };
    room.times(need(kernel))
}

/// What a block takes. Registers are given out in units of eight for each thread of a whole warp.
#[must_use]
pub fn need(kernel: &Kernel) -> crate::card::Capacity {
    let threads = kernel.threads.next_multiple_of(32);
    let registers = kernel.registers.clamp(16, 256).next_multiple_of(8) * threads;
    crate::card::Capacity { threads, blocks: 1, registers, shared: kernel.shared }
}

impl Profile {
    /// The most memory that the program had, in bytes.
    #[must_use]
    pub fn peak_memory(&self) -> u64 {
        self.memory.iter().map(|at| at.bytes).max().unwrap_or(0)
    }
}
