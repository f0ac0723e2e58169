//! A warp: its registers, and the fragments into which its lanes have diverged.
//!
//! A fragment is an instruction, a set of lanes and a frame. Each lane belongs to exactly one
//! fragment until it exits. The fragment that runs next is the one deepest in calls and then lowest
//! in the code. Fragments that arrive at the same instruction in the same frame merge. A fragment
//! that spins yields, so that the others make progress.
//!
//! The registers of a frame begin where those of its caller end. Fragments in different frames may
//! use the same register slots, because a fragment writes its own lanes only.

use crate::program::code::Code;
use crate::simd::lanes::{LANES, PerLane32, PerLane64, WarpRegisters};

/// The registers of one call, and where the call returns to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    /// Index of the function in the program.
    pub function: u32,
    /// Index of the caller's frame; [`NO_FRAME`] for the kernel.
    pub caller: u32,
    /// The instruction behind the call.
    pub return_to: u32,
    /// Calls between the kernel and this frame.
    pub depth: u32,
    /// Where the frame's registers begin in the three banks.
    pub base32: u32,
    pub base64: u32,
    pub base_p: u32,
    /// Where the frame begins in local memory, in bytes.
    pub local: u32,
    /// Fragments in this frame, and frames called from it.
    users: u32,
}

/// Steps of a fragment before it yields to its siblings: a backward branch is one step, an ordered
/// access several. The count goes on across calls and divergence, so that no shape of a spin loop
/// starves the lanes it waits for.
pub(super) const STEPS_BEFORE_YIELD: u32 = 4096;

/// The caller of a kernel.
pub(super) const NO_FRAME: u32 = u32::MAX;

/// The largest [`Fragment::waits`]: every fragment of the warp waited for lanes, some of which will
/// not come. This one performs its instruction with the lanes that have arrived.
pub(super) const FORCED: u32 = u32::MAX;

/// In place of the number of a block's barrier: the one of the cluster.
pub(super) const CLUSTER_BARRIER: u8 = 16;

/// What a fragment waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FragmentState {
    /// Nothing: it can run.
    Ready,
    /// Barrier number `0` of the block, or [`CLUSTER_BARRIER`]; `pc` is the barrier's instruction.
    Barrier(u8),
    /// Other lanes of the warp; `pc` is the instruction that needs them.
    AwaitsLanes,
}

/// Lanes that are at the same instruction in the same frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fragment {
    /// Index of the next instruction.
    pub pc: u32,
    /// One bit for each lane.
    pub lanes: u32,
    pub frame: u32,
    /// The frame's depth.
    pub depth: u32,
    pub state: FragmentState,
    /// The warp's count of yields when this fragment last yielded: the larger, the longer it waits.
    /// [`FORCED`] if it runs with the lanes that have arrived.
    pub waits: u32,
    /// Steps left before it yields, see [`STEPS_BEFORE_YIELD`].
    pub steps_left: u32,
}

/// The lanes of one warp, their registers and their local memory.
#[derive(Debug, Default)]
pub(super) struct Warp {
    pub fragments: Vec<Fragment>,
    frames: Vec<Frame>,
    free_frames: Vec<u32>,
    /// The three banks of registers: 32 bits, 64 bits, and predicates with a bit for each lane.
    pub r32: Vec<PerLane32>,
    pub r64: Vec<PerLane64>,
    pub p: Vec<u32>,
    /// Lanes that have not exited.
    pub alive: u32,
    /// Index of the warp in its block.
    pub index: u32,
    /// `%tid` of the lanes.
    pub tid: [PerLane32; 3],
    /// What `tid` was made for: the block's size and the warp's first thread.
    shape: ([u32; 3], u32),
    /// Local memory: `local_bytes` bytes for each lane, lane after lane.
    pub local: Vec<u8>,
    pub local_bytes: u32,
    /// Yields so far.
    pub yields: u32,
    /// It has not run since a barrier of its block, or of its cluster, let it go on.
    pub is_released: bool,
    /// The last error of the device runtime that each lane got; 0 for none.
    pub errors: PerLane32,
}

impl Default for PerLane32 {
    fn default() -> Self {
        PerLane32::splat(0)
    }
}

impl Warp {
    /// Puts the warp at a kernel's first instruction.
    pub fn start(&mut self, index: u32, block: [u32; 3], code: &Code, function: u32, local_bytes: u32) {
        let threads = block.iter().map(|n| u64::from(*n)).product::<u64>() as u32;
        let first = index * 32;
        let count = threads.saturating_sub(first).min(32);
        self.alive = if count == 32 { u32::MAX } else { (1 << count) - 1 };
        self.index = index;
        if self.shape != (block, first) {
            self.shape = (block, first);
            self.number_threads(block, first);
        }
        self.frames.clear();
        self.free_frames.clear();
        self.fragments.clear();
        self.yields = 0;
        self.is_released = false;
        self.errors = PerLane32::splat(0);
        self.local_bytes = local_bytes;
        self.local.clear();
        self.local.resize(local_bytes as usize * 32, 0);
        self.frames.push(Frame { function, caller: NO_FRAME, return_to: 0, depth: 0, base32: 0, base64: 0, base_p: 0, local: 0, users: 1 });
        self.reserve_registers(0, code);
        self.fragments.push(Fragment {
            pc: code.entry,
            lanes: self.alive,
            frame: 0,
            depth: 0,
            state: FragmentState::Ready,
            waits: 0,
            steps_left: STEPS_BEFORE_YIELD,
        });
    }

    /// Fills in the threads' indices. They are counted up: a division for each lane would be slow.
    fn number_threads(&mut self, block: [u32; 3], first: u32) {
        let mut at = [first % block[0], first / block[0] % block[1], first / block[0] / block[1]];
        for lane in 0..LANES {
            for (axis, tid) in self.tid.iter_mut().enumerate() {
                tid.0[lane] = at[axis];
            }
            at[0] += 1;
            for axis in 0..2 {
                if at[axis] == block[axis] {
                    at[axis] = 0;
                    at[axis + 1] += 1;
                }
            }
        }
    }

    /// True if a fragment can run.
    pub fn has_ready_fragment(&self) -> bool {
        self.fragments.iter().any(|fragment| fragment.state == FragmentState::Ready)
    }

    /// Makes the banks large enough for the registers of a frame.
    fn reserve_registers(&mut self, frame: u32, code: &Code) {
        let frame = self.frames[frame as usize];
        let (need32, need64) = ((frame.base32 + code.slots32) as usize, (frame.base64 + code.slots64) as usize);
        let need_p = (frame.base_p + code.predicates) as usize;
        if self.r32.len() < need32 {
            self.r32.resize(need32, PerLane32::splat(0));
        }
        if self.r64.len() < need64 {
            self.r64.resize(need64, PerLane64::splat(0));
        }
        if self.p.len() < need_p {
            self.p.resize(need_p, 0);
        }
    }

    pub fn frame(&self, index: u32) -> &Frame {
        &self.frames[index as usize]
    }

    /// The frame of a call of `function` from the frame `caller`: the same one for lanes in the
    /// same call.
    pub fn open_frame(&mut self, caller: u32, function: u32, return_to: u32, caller_code: &Code, code: &Code) -> u32 {
        for index in 0..self.frames.len() {
            let frame = &mut self.frames[index];
            if frame.users > 0 && frame.caller == caller && frame.function == function && frame.return_to == return_to {
                frame.users += 1;
                return index as u32;
            }
        }
        let from = self.frames[caller as usize];
        let frame = Frame {
            function,
            caller,
            return_to,
            depth: from.depth + 1,
            base32: from.base32 + caller_code.slots32,
            base64: from.base64 + caller_code.slots64,
            base_p: from.base_p + caller_code.predicates,
            local: from.local + caller_code.frame,
            users: 1,
        };
        // The child keeps its caller's frame.
        self.frames[caller as usize].users += 1;
        let index = match self.free_frames.pop() {
            Some(index) => {
                self.frames[index as usize] = frame;
                index
            }
            None => {
                self.frames.push(frame);
                (self.frames.len() - 1) as u32
            }
        };
        self.reserve_registers(index, code);
        index
    }

    /// One more fragment is in this frame.
    pub fn retain_frame(&mut self, frame: u32) {
        self.frames[frame as usize].users += 1;
    }

    /// A fragment has left this frame. Ends the frame, and its callers' frames, if nothing else
    /// uses it.
    pub fn release_frame(&mut self, mut frame: u32) {
        while frame != NO_FRAME {
            let it = &mut self.frames[frame as usize];
            it.users -= 1;
            if it.users > 0 {
                return;
            }
            self.free_frames.push(frame);
            frame = it.caller;
        }
    }

    /// The registers of a frame, with the constants of its function.
    pub fn registers_of<'a>(
        r32: &'a mut [PerLane32],
        r64: &'a mut [PerLane64],
        p: &'a mut [u32],
        frame: &Frame,
        code: &Code,
        c64: &'a [PerLane64],
        c32: &'a [PerLane32],
    ) -> WarpRegisters<'a> {
        let (b32, b64, bp) = (frame.base32 as usize, frame.base64 as usize, frame.base_p as usize);
        WarpRegisters {
            r32: &mut r32[b32..b32 + code.slots32 as usize],
            r64: &mut r64[b64..b64 + code.slots64 as usize],
            p: &mut p[bp..bp + code.predicates as usize],
            c32,
            c64,
        }
    }

    /// Adds a fragment. It merges with a fragment at the same instruction of the same frame.
    pub fn add_fragment(&mut self, fragment: Fragment) {
        for other in &mut self.fragments {
            let same = other.pc == fragment.pc && other.frame == fragment.frame;
            if same && !matches!(other.state, FragmentState::Barrier(_)) && !matches!(fragment.state, FragmentState::Barrier(_)) {
                other.lanes |= fragment.lanes;
                other.waits = other.waits.min(fragment.waits);
                other.steps_left = other.steps_left.min(fragment.steps_left);
                // A fragment that waits for lanes checks again: these may be among them.
                other.state = if fragment.state == FragmentState::Ready { FragmentState::Ready } else { other.state };
                self.release_frame(fragment.frame);
                return;
            }
        }
        self.fragments.push(fragment);
    }

    /// Takes out the fragment that runs next.
    pub fn take_next_fragment(&mut self) -> Option<Fragment> {
        if let [one] = &self.fragments[..] {
            return if one.state == FragmentState::Ready { self.fragments.pop() } else { None };
        }
        let (at, _) =
            self.fragments.iter().enumerate().filter(|(_, f)| f.state == FragmentState::Ready).min_by_key(|(_, f)| (f.waits, u32::MAX - f.depth, f.pc))?;
        Some(self.fragments.swap_remove(at))
    }

    /// The first instruction at which `running` might meet another fragment, where it must stop;
    /// `u32::MAX` if there is none.
    pub fn convergence_limit(&self, running: &Fragment) -> u32 {
        self.fragments
            .iter()
            .filter(|f| f.depth == running.depth && f.pc > running.pc && !matches!(f.state, FragmentState::Barrier(_)))
            .map(|f| f.pc)
            .min()
            .unwrap_or(u32::MAX)
    }

    /// Ends lanes.
    pub fn retire_lanes(&mut self, lanes: u32) {
        self.alive &= !lanes;
    }
}
