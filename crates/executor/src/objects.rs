//! What a client has: streams, modules, memory. The state that survives the executor, as entries of
//! the journal's object log.
//!
//! [`Objects`] is the one truth; it changes only by [`Objects::apply`], with an entry that is
//! written to the log too. Replaying the log, or the entries of [`Objects::snapshot`], gives the
//! same state (property-tested).
//!
//! One file, although long: each kind of change stands in it three times, in the same order.

use crate::loans::Token;
use cumux_ring::page::Answer;
use cumux_wire::positions::SmPositions;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A module as it can be loaded again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleSpec {
    /// Content hash of the image, its name in the keeper.
    pub image: String,
    /// By the client's ordinals.
    pub device: u32,
    /// Name, address and bytes of its variables.
    pub variables: Vec<(String, u64, u64)>,
    /// Function, attribute, value.
    pub settings: Vec<(u32, u32, i32)>,
    /// Why no successor can load it and go on; none if one can.
    #[serde(default)]
    pub not_resumable: Option<String>,
    /// The functions that were launched, if its kernels are loaded one by one.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub used: BTreeSet<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    pub bytes: u64,
    pub handle: u32,
    pub offset: u64,
    /// `CUmemAccess_flags` of its own device.
    pub access: u32,
    /// Those of the client's other devices: two bits each, by the client's ordinals.
    #[serde(default)]
    pub peers: u32,
}

/// Bits of one device in [`Mapped::peers`].
const PEER_BITS: u32 = 2;

impl Mapped {
    /// `CUmemAccess_flags` of a device that is not its own.
    #[must_use]
    pub fn peer_access(&self, device: u32) -> u32 {
        self.peers >> (device * PEER_BITS) & ((1 << PEER_BITS) - 1)
    }

    /// [`Mapped::peers`] with these flags for a device.
    #[must_use]
    pub fn with_peer_access(&self, device: u32, access: u32) -> u32 {
        let all = (1 << PEER_BITS) - 1;
        self.peers & !(all << (device * PEER_BITS)) | (access & all) << (device * PEER_BITS)
    }
}

/// How an allocation of the client is lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentOut {
    pub token: Token,
    pub kind: u32,
    /// That of its extent.
    pub mark: Token,
}

/// An allocation of another client that this one has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Borrowed {
    pub token: Token,
    pub kind: u32,
    /// The device's place in the server's list.
    pub device_index: u32,
    pub bytes: u64,
    /// What its owner is charged for it.
    pub charged: u64,
    /// Address and length of its extent.
    pub extent: (u64, u64),
    pub mark: Token,
}

/// How physical memory is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPhysical {
    pub token: Token,
    /// It is another client's.
    pub borrowed: bool,
}

/// What a stream is made as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSpec {
    pub device: u32,
    pub priority: i32,
    /// 0 = the client's whole share.
    pub partition: u32,
}

/// What a part of the client's share is made as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionSpec {
    pub device: u32,
    pub multiprocessors: u32,
    /// Exactly these multiprocessors of the share, and not whichever are free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<SmPositions>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    Stream {
        index: u32,
        spec: StreamSpec,
    },
    StreamGone {
        index: u32,
    },
    Partition {
        number: u32,
        #[serde(flatten)]
        spec: PartitionSpec,
    },
    PartitionGone {
        number: u32,
    },
    /// Memory of the window that counts against the client's limit.
    Charge {
        address: u64,
        device: u32,
        bytes: u64,
    },
    Refund {
        address: u64,
    },
    Module {
        id: u32,
        spec: ModuleSpec,
    },
    ModuleGone {
        id: u32,
    },
    /// A kernel was launched for the first time, of a module whose kernels are loaded one by one.
    KernelUsed {
        module: u32,
        function: u32,
    },
    Function {
        module: u32,
        function: u32,
        attribute: u32,
        value: i32,
    },
    Alloc {
        address: u64,
        bytes: u64,
    },
    Free {
        address: u64,
    },
    Reserve {
        address: u64,
        bytes: u64,
    },
    Unreserve {
        address: u64,
    },
    Physical {
        handle: u32,
        device: u32,
        bytes: u64,
    },
    /// The client has let go of it; it goes with its last mapping.
    Released {
        handle: u32,
    },
    PhysicalGone {
        handle: u32,
    },
    Map {
        address: u64,
        mapped: Mapped,
    },
    Unmap {
        address: u64,
    },
    Access {
        address: u64,
        access: u32,
    },
    /// Access of the client's other devices to a mapping: [`Mapped::peers`].
    PeersOfMapping {
        address: u64,
        peers: u32,
    },
    /// Work on one device of the client reaches its allocations on another.
    Peer {
        device: u32,
        peer: u32,
    },
    PeerGone {
        device: u32,
        peer: u32,
    },
    Alias {
        user: u64,
        window: u64,
        bytes: u64,
    },
    AliasGone {
        user: u64,
    },
    /// An array that the device's driver has made. `bytes` count against the client's limit.
    Array {
        array: u32,
        device: u32,
        bytes: u64,
    },
    ArrayGone {
        array: u32,
    },
    /// A texture or surface object that the device's driver has made.
    TextureObject {
        device: u32,
        handle: u64,
    },
    TextureObjectGone {
        device: u32,
        handle: u64,
    },
    Limit {
        limit: u32,
        value: u64,
    },
    /// Bytes of the window that the device must reach.
    Window {
        address: u64,
        bytes: u64,
    },
    /// Others can open an allocation.
    Lend {
        address: u64,
        lent: LentOut,
    },
    /// The client has freed an allocation that others have open: it is nobody's until they close
    /// it.
    Keep {
        address: u64,
    },
    KeepGone {
        address: u64,
    },
    Borrow {
        address: u64,
        borrowed: Borrowed,
    },
    Return {
        address: u64,
    },
    SharePhysical {
        handle: u32,
        shared: SharedPhysical,
    },
    /// Physical memory of another client has a handle of this one.
    BorrowPhysical {
        handle: u32,
        device: u32,
        bytes: u64,
        token: Token,
    },
    Fault {
        result: u32,
        text: String,
    },
    /// Everything is gone but the announced pieces of the window and what others have open (device
    /// reset).
    Reset,
    /// There is more than the log can hold: what follows is not in it.
    Unlogged,
    /// Nothing changed; carries an answer.
    Nothing,
}

/// A change with where it came from and what was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    pub change: Change,
    /// Ring position after the record that caused it; 0 if none did.
    pub end: u64,
    /// Slot, request, result, words.
    pub answer: Option<(u32, u64, u32, [u64; 6])>,
}

impl Logged {
    #[must_use]
    pub fn plain(change: Change) -> Self {
        Self { change, end: 0, answer: None }
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// # Errors
    /// A sentence when the entry is damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| format!("a journal entry is damaged: {error}"))
    }

    #[must_use]
    pub fn answer(&self) -> Option<(u32, u64, Answer)> {
        self.answer.map(|(slot, request, result, words)| (slot, request, Answer { result, words }))
    }
}

/// All objects of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Objects {
    pub streams: BTreeMap<u32, StreamSpec>,
    pub partitions: BTreeMap<u32, PartitionSpec>,
    /// Address to device and bytes.
    pub charges: BTreeMap<u64, (u32, u64)>,
    pub modules: BTreeMap<u32, ModuleSpec>,
    /// Address to bytes as asked for.
    pub allocations: BTreeMap<u64, u64>,
    pub reservations: BTreeMap<u64, u64>,
    /// Handle to device and bytes.
    pub physical: BTreeMap<u32, (u32, u64)>,
    /// Those that the client has let go of while they were mapped.
    pub released: BTreeSet<u32>,
    pub mappings: BTreeMap<u64, Mapped>,
    /// Allocations that others can open.
    pub lent: BTreeMap<u64, LentOut>,
    /// Freed allocations that others have open, with their bytes.
    pub kept: BTreeMap<u64, (u64, LentOut)>,
    /// Allocations of others.
    pub borrowed: BTreeMap<u64, Borrowed>,
    /// Physical memory that others can open, and that of others, by handle.
    pub shared_physical: BTreeMap<u32, SharedPhysical>,
    /// Device and the one whose allocations it reaches.
    pub peers: BTreeSet<(u32, u32)>,
    /// Private address to window address and bytes.
    pub aliases: BTreeMap<u64, (u64, u64)>,
    /// Arrays of the device's driver: number to device and bytes.
    pub arrays: BTreeMap<u32, (u32, u64)>,
    /// Device and handle of the objects of the device's driver.
    pub texture_objects: BTreeSet<(u32, u64)>,
    pub limits: BTreeMap<u32, u64>,
    /// Address to bytes of announced window pieces.
    pub windows: BTreeMap<u64, u64>,
    pub fault: Option<(u32, String)>,
}

impl Objects {
    /// Whether nothing of it lies in what the keeper keeps. Reservations are addresses only.
    #[must_use]
    pub fn need_no_memory(&self) -> bool {
        let own = self.allocations.is_empty() && self.modules.is_empty() && self.physical.is_empty() && self.mappings.is_empty();
        own && self.kept.is_empty() && self.borrowed.is_empty()
    }

    /// Names what the device's driver has made for the client, which no successor has; none if it
    /// has made nothing.
    #[must_use]
    pub fn describe_textures(&self) -> Option<String> {
        let (arrays, objects) = (self.arrays.len(), self.texture_objects.len());
        (arrays + objects > 0).then(|| format!("{arrays} arrays and {objects} texture or surface objects"))
    }

    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Stream { index, spec } => {
                self.streams.insert(*index, *spec);
            }
            Change::Partition { number, spec } => {
                self.partitions.insert(*number, *spec);
            }
            Change::PartitionGone { number } => {
                self.partitions.remove(number);
                // A stream that is left over goes on in the whole share.
                self.streams.values_mut().filter(|spec| spec.partition == *number).for_each(|spec| spec.partition = 0);
            }
            Change::Charge { address, device, bytes } => {
                self.charges.insert(*address, (*device, *bytes));
            }
            Change::Refund { address } => {
                self.charges.remove(address);
            }
            Change::StreamGone { index } => {
                self.streams.remove(index);
            }
            Change::Module { id, spec } => {
                self.modules.insert(*id, spec.clone());
            }
            Change::ModuleGone { id } => {
                self.modules.remove(id);
            }
            Change::Function { module, function, attribute, value } => {
                if let Some(spec) = self.modules.get_mut(module) {
                    spec.settings.retain(|(f, a, _)| (f, a) != (function, attribute));
                    spec.settings.push((*function, *attribute, *value));
                }
            }
            Change::KernelUsed { module, function } => {
                if let Some(spec) = self.modules.get_mut(module) {
                    spec.used.insert(*function);
                }
            }
            Change::Alloc { address, bytes } => {
                self.allocations.insert(*address, *bytes);
            }
            Change::Free { address } => {
                self.allocations.remove(address);
                self.lent.remove(address);
            }
            Change::Lend { address, lent } => {
                self.lent.insert(*address, *lent);
            }
            Change::Keep { address } => {
                if let (Some(bytes), Some(lent)) = (self.allocations.remove(address), self.lent.remove(address)) {
                    self.kept.insert(*address, (bytes, lent));
                }
            }
            Change::KeepGone { address } => {
                self.kept.remove(address);
            }
            Change::Borrow { address, borrowed } => {
                self.borrowed.insert(*address, *borrowed);
            }
            Change::Return { address } => {
                self.borrowed.remove(address);
            }
            Change::SharePhysical { handle, shared } => {
                self.shared_physical.insert(*handle, *shared);
            }
            Change::BorrowPhysical { handle, device, bytes, token } => {
                self.physical.insert(*handle, (*device, *bytes));
                self.shared_physical.insert(*handle, SharedPhysical { token: *token, borrowed: true });
            }
            Change::Reserve { address, bytes } => {
                self.reservations.insert(*address, *bytes);
            }
            Change::Unreserve { address } => {
                self.reservations.remove(address);
            }
            Change::Physical { handle, device, bytes } => {
                self.physical.insert(*handle, (*device, *bytes));
            }
            Change::Released { handle } => {
                self.released.insert(*handle);
            }
            Change::PhysicalGone { handle } => {
                self.physical.remove(handle);
                self.released.remove(handle);
                self.shared_physical.remove(handle);
            }
            Change::Map { address, mapped } => {
                self.mappings.insert(*address, *mapped);
            }
            Change::Unmap { address } => {
                self.mappings.remove(address);
            }
            Change::Access { address, access } => {
                if let Some(mapped) = self.mappings.get_mut(address) {
                    mapped.access = *access;
                }
            }
            Change::PeersOfMapping { address, peers } => {
                if let Some(mapped) = self.mappings.get_mut(address) {
                    mapped.peers = *peers;
                }
            }
            Change::Peer { device, peer } => {
                self.peers.insert((*device, *peer));
            }
            Change::PeerGone { device, peer } => {
                self.peers.remove(&(*device, *peer));
            }
            Change::Alias { user, window, bytes } => {
                self.aliases.insert(*user, (*window, *bytes));
            }
            Change::AliasGone { user } => {
                self.aliases.remove(user);
            }
            Change::Array { array, device, bytes } => {
                self.arrays.insert(*array, (*device, *bytes));
            }
            Change::ArrayGone { array } => {
                self.arrays.remove(array);
            }
            Change::TextureObject { device, handle } => {
                self.texture_objects.insert((*device, *handle));
            }
            Change::TextureObjectGone { device, handle } => {
                self.texture_objects.remove(&(*device, *handle));
            }
            Change::Limit { limit, value } => {
                self.limits.insert(*limit, *value);
            }
            Change::Window { address, bytes } => {
                self.windows.insert(*address, *bytes);
            }
            Change::Fault { result, text } => self.fault = Some((*result, text.clone())),
            // What was announced of the window stays with the device, and the client does not
            // announce it again.
            Change::Reset => *self = Self { windows: std::mem::take(&mut self.windows), kept: std::mem::take(&mut self.kept), ..Self::default() },
            Change::Nothing | Change::Unlogged => {}
        }
    }

    /// The entries that lead to this state.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Change> {
        let mut out = Vec::new();
        out.extend(self.partitions.iter().map(|(number, spec)| Change::Partition { number: *number, spec: *spec }));
        out.extend(self.streams.iter().map(|(index, spec)| Change::Stream { index: *index, spec: *spec }));
        out.extend(self.charges.iter().map(|(address, (device, bytes))| Change::Charge { address: *address, device: *device, bytes: *bytes }));
        // An allocation that is kept was one that was lent.
        for (address, (bytes, lent)) in &self.kept {
            out.extend([
                Change::Alloc { address: *address, bytes: *bytes },
                Change::Lend { address: *address, lent: *lent },
                Change::Keep { address: *address },
            ]);
        }
        out.extend(self.allocations.iter().map(|(address, bytes)| Change::Alloc { address: *address, bytes: *bytes }));
        out.extend(self.lent.iter().map(|(address, lent)| Change::Lend { address: *address, lent: *lent }));
        out.extend(self.borrowed.iter().map(|(address, borrowed)| Change::Borrow { address: *address, borrowed: *borrowed }));
        out.extend(self.reservations.iter().map(|(address, bytes)| Change::Reserve { address: *address, bytes: *bytes }));
        out.extend(self.physical.iter().map(|(handle, (device, bytes))| Change::Physical { handle: *handle, device: *device, bytes: *bytes }));
        out.extend(self.shared_physical.iter().map(|(handle, shared)| Change::SharePhysical { handle: *handle, shared: *shared }));
        out.extend(self.released.iter().map(|handle| Change::Released { handle: *handle }));
        out.extend(self.mappings.iter().map(|(address, mapped)| Change::Map { address: *address, mapped: *mapped }));
        out.extend(self.peers.iter().map(|(device, peer)| Change::Peer { device: *device, peer: *peer }));
        out.extend(self.aliases.iter().map(|(user, (window, bytes))| Change::Alias { user: *user, window: *window, bytes: *bytes }));
        out.extend(self.modules.iter().map(|(id, spec)| Change::Module { id: *id, spec: spec.clone() }));
        out.extend(self.arrays.iter().map(|(array, (device, bytes))| Change::Array { array: *array, device: *device, bytes: *bytes }));
        out.extend(self.texture_objects.iter().map(|(device, handle)| Change::TextureObject { device: *device, handle: *handle }));
        out.extend(self.limits.iter().map(|(limit, value)| Change::Limit { limit: *limit, value: *value }));
        out.extend(self.windows.iter().map(|(address, bytes)| Change::Window { address: *address, bytes: *bytes }));
        out.extend(self.fault.iter().map(|(result, text)| Change::Fault { result: *result, text: text.clone() }));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn change() -> impl Strategy<Value = Change> {
        let small = 0_u32..4;
        let address = (0_u64..6).prop_map(|n| n * 4096);
        prop_oneof![
            (small.clone(), -5..1_i32, small.clone())
                .prop_map(|(index, priority, partition)| Change::Stream { index, spec: StreamSpec { device: 0, priority, partition } }),
            (small.clone(), 8_u32..99, proptest::option::of(1_u64..)).prop_map(|(number, multiprocessors, word)| {
                let positions = word.map(|word| SmPositions::from_words([word, 0, 0, 1]));
                Change::Partition { number, spec: PartitionSpec { device: 0, multiprocessors, positions } }
            }),
            small.clone().prop_map(|number| Change::PartitionGone { number }),
            (address.clone(), 1_u64..99).prop_map(|(address, bytes)| Change::Charge { address, device: 0, bytes }),
            address.clone().prop_map(|address| Change::Refund { address }),
            small.clone().prop_map(|index| Change::StreamGone { index }),
            (small.clone(), "[a-f]{3}").prop_map(|(id, image)| Change::Module {
                id,
                spec: ModuleSpec { image, device: 0, variables: vec![("v".into(), 1, 2)], settings: vec![], not_resumable: None, used: BTreeSet::from([3]) }
            }),
            small.clone().prop_map(|id| Change::ModuleGone { id }),
            (small.clone(), small.clone(), any::<i32>()).prop_map(|(module, function, value)| Change::Function { module, function, attribute: 8, value }),
            (address.clone(), 1_u64..100).prop_map(|(address, bytes)| Change::Alloc { address, bytes }),
            address.clone().prop_map(|address| Change::Free { address }),
            (address.clone(), any::<u64>()).prop_map(|(address, word)| Change::Lend { address, lent: LentOut { token: [word, 1], kind: 0, mark: [2, word] } }),
            address.clone().prop_map(|address| Change::Keep { address }),
            address.clone().prop_map(|address| Change::KeepGone { address }),
            (address.clone(), any::<u64>()).prop_map(|(address, word)| Change::Borrow {
                address,
                borrowed: Borrowed { token: [word, 3], kind: 1, device_index: 0, bytes: 9, charged: 512, extent: (address, 4096), mark: [4, word] }
            }),
            address.clone().prop_map(|address| Change::Return { address }),
            (small.clone(), any::<bool>()).prop_map(|(handle, borrowed)| Change::SharePhysical { handle, shared: SharedPhysical { token: [5, 6], borrowed } }),
            (address.clone(), 1_u64..9).prop_map(|(address, bytes)| Change::Reserve { address, bytes }),
            address.clone().prop_map(|address| Change::Unreserve { address }),
            (small.clone(), 1_u64..9).prop_map(|(handle, bytes)| Change::Physical { handle, device: 0, bytes }),
            (small.clone(), 1_u64..9).prop_map(|(handle, bytes)| Change::BorrowPhysical { handle, device: 0, bytes, token: [8, bytes] }),
            small.clone().prop_map(|handle| Change::Released { handle }),
            small.clone().prop_map(|handle| Change::PhysicalGone { handle }),
            address.clone().prop_map(|user| Change::AliasGone { user }),
            (address.clone(), small.clone())
                .prop_map(|(address, handle)| Change::Map { address, mapped: Mapped { bytes: 4096, handle, offset: 0, access: 0, peers: 0 } }),
            (address.clone(), any::<u32>()).prop_map(|(address, peers)| Change::PeersOfMapping { address, peers }),
            (small.clone(), small.clone()).prop_map(|(device, peer)| Change::Peer { device, peer }),
            (small.clone(), small.clone()).prop_map(|(device, peer)| Change::PeerGone { device, peer }),
            (address.clone(), 0_u32..4).prop_map(|(address, access)| Change::Access { address, access }),
            address.clone().prop_map(|address| Change::Unmap { address }),
            (address.clone(), address).prop_map(|(user, window)| Change::Alias { user, window, bytes: 4096 }),
            (small.clone(), 1_u64..99).prop_map(|(array, bytes)| Change::Array { array, device: 0, bytes }),
            small.clone().prop_map(|array| Change::ArrayGone { array }),
            (small.clone(), 1_u64..4).prop_map(|(device, handle)| Change::TextureObject { device, handle }),
            (small.clone(), 1_u64..4).prop_map(|(device, handle)| Change::TextureObjectGone { device, handle }),
            (small.clone(), any::<u64>()).prop_map(|(limit, value)| Change::Limit { limit, value }),
            (small, "[a-z]{1,5}").prop_map(|(result, text)| Change::Fault { result, text }),
            (0_u64..4).prop_map(|n| Change::Window { address: n << 20, bytes: n }),
            Just(Change::Reset),
        ]
    }

    proptest! {
        #[test]
        fn a_snapshot_and_the_whole_log_mean_the_same(changes in proptest::collection::vec(change(), 0..60)) {
            let mut live = Objects::default();
            for c in &changes {
                live.apply(c);
                let logged = Logged { change: c.clone(), end: 7, answer: Some((1, 2, 3, [4; 6])) };
                prop_assert_eq!(&Logged::decode(&logged.encode()).expect("what was written can be read"), &logged);
            }
            let mut replayed = Objects::default();
            for c in live.snapshot() {
                replayed.apply(&c);
            }
            prop_assert_eq!(live, replayed);
        }
    }
}
