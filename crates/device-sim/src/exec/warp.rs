//! A warp: its registers, and the fragments into which its lanes have diverged.
//!
//! Each lane belongs to exactly one fragment until it exits. A fragment is a place in the code, a set of lanes and a frame. The scheduler
//! runs the fragment deepest in calls and lowest in the code; fragments that meet at the same place in the same frame merge. Spinning
//! fragments step back so that the others make progress.
//!
//! Registers of a frame begin where its caller's end. Fragments in different frames may use the same slots: they write their own lanes only.

use crate::program::code::Code;
use crate::simd::lanes::{LANES, PerLane32, PerLane64, WarpRegisters};

/// Registers of one call and where to return.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub function: u32,
    /// Index of the caller's frame; `NO_FRAME` for the kernel.
    pub caller: u32,
    pub return_to: u32,
    pub depth: u32,
    pub base32: u32,
    pub base64: u32,
    pub base_p: u32,
    /// Where the frame begins in local memory.
    pub local: u32,
    /// Fragments in it and frames called from it.
    users: u32,
}

/// Steps of a fragment after which its waiting siblings get a turn: backward branches count one, ordered accesses more. Kept across calls and
/// divergence, so that no shape of a spin loop starves those it waits for.
pub(super) const STEPS_BEFORE_YIELD: u32 = 4096;

pub(super) const NO_FRAME: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FragmentState {
    Ready,
    /// At barrier `0` of the block (at the instruction itself).
    Barrier(u8),
    /// At an instruction that needs other lanes of the warp.
    AwaitsLanes,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Fragment {
    pub pc: u32,
    pub lanes: u32,
    pub frame: u32,
    pub depth: u32,
    pub state: FragmentState,
    /// When it last stepped back, in the warp's count of such steps; larger waits longer.
    pub waits: u32,
    /// Steps until it steps back again, see [`STEPS_BEFORE_YIELD`].
    pub steps_left: u32,
}

#[derive(Debug, Default)]
pub(super) struct Warp {
    pub fragments: Vec<Fragment>,
    frames: Vec<Frame>,
    free_frames: Vec<u32>,
    pub r32: Vec<PerLane32>,
    pub r64: Vec<PerLane64>,
    pub p: Vec<u32>,
    /// WarpRegisters that have not exited.
    pub alive: u32,
    /// Index in the block.
    pub index: u32,
    pub tid: [PerLane32; 3],
    /// What `tid` was made for: the block's size and the first thread. Nothing at first.
    shape: ([u32; 3], u32),
    /// Local memory of each lane, one after the other.
    pub local: Vec<u8>,
    pub local_bytes: u32,
    /// Steps back so far.
    pub yields: u32,
}

impl Default for PerLane32 {
    fn default() -> Self {
        PerLane32::splat(0)
    }
}

impl Warp {
    /// A warp at the kernel's first instruction.
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

    /// Fills in the threads' indices, counted up rather than divided for each lane.
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

    /// Whether some fragment can run.
    pub fn has_ready_fragment(&self) -> bool {
        self.fragments.iter().any(|fragment| fragment.state == FragmentState::Ready)
    }

    /// Makes the banks large enough for a frame.
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

    /// The frame of a call of `function` from `caller`; the same one if other lanes are in the same call.
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
        // The caller's frame is used by its child as well as by fragments in it.
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

    /// One fragment more in this frame.
    pub fn retain_frame(&mut self, frame: u32) {
        self.frames[frame as usize].users += 1;
    }

    /// A fragment has left this frame.
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

    /// Registers of a frame.
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

    /// Adds a fragment, merging it with one at the same place.
    pub fn add_fragment(&mut self, fragment: Fragment) {
        for other in &mut self.fragments {
            let same = other.pc == fragment.pc && other.frame == fragment.frame;
            if same && !matches!(other.state, FragmentState::Barrier(_)) && !matches!(fragment.state, FragmentState::Barrier(_)) {
                other.lanes |= fragment.lanes;
                other.waits = other.waits.min(fragment.waits);
                other.steps_left = other.steps_left.min(fragment.steps_left);
                // Whoever waited there looks again with the newcomers.
                other.state = if fragment.state == FragmentState::Ready { FragmentState::Ready } else { other.state };
                self.release_frame(fragment.frame);
                return;
            }
        }
        self.fragments.push(fragment);
    }

    /// Takes out the fragment to run next.
    pub fn take_next_fragment(&mut self) -> Option<Fragment> {
        if let [one] = &self.fragments[..] {
            return if one.state == FragmentState::Ready { self.fragments.pop() } else { None };
        }
        let (at, _) =
            self.fragments.iter().enumerate().filter(|(_, f)| f.state == FragmentState::Ready).min_by_key(|(_, f)| (f.waits, u32::MAX - f.depth, f.pc))?;
        Some(self.fragments.swap_remove(at))
    }

    /// Where a fragment must stop because another may wait for it there.
    pub fn convergence_limit(&self, running: &Fragment) -> u32 {
        self.fragments
            .iter()
            .filter(|f| f.depth == running.depth && f.pc > running.pc && !matches!(f.state, FragmentState::Barrier(_)))
            .map(|f| f.pc)
            .min()
            .unwrap_or(u32::MAX)
    }

    /// WarpRegisters stop for good.
    pub fn retire_lanes(&mut self, lanes: u32) {
        self.alive &= !lanes;
    }
}
