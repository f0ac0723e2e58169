//! Static SM partitions (`-S`, `sm_partition`, `lspart`, `CUDA_MPS_SM_PARTITION`): exclusive chunks
//! of a card's SMs.
//!
//! Pure. Invariants: a chunk belongs to one partition at most. Identifiers follow from the chunks
//! alone, so the same commands from the same state give the same identifiers on the same card. A
//! partition with clients is not removed, and its SMs do not change while it has any. Texts and
//! rules are those of NVIDIA's document on static SM partitioning.

use crate::settings::uuid_text;
use cumux_wire::cuda::DeviceAttribute as A;
use cumux_wire::message::DeviceFacts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The variable with a client's partitions: `<UUID or its beginning>/<partition>`, with commas for
/// several devices.
pub const PARTITION_VARIABLE: &str = "CUDA_MPS_SM_PARTITION";

/// Compute capability of Ampere, the oldest architecture with partitions.
const OLDEST: i32 = 8;
/// Bytes of the mask in an identifier: more bits than any card has chunks.
const MASK: usize = 26;

/// Why a command cannot be carried out. The texts are those that NVIDIA's daemon prints.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// No device has this ordinal or UUID.
    #[error("No device matches {0}")]
    NoDevice(String),
    /// Several UUIDs begin with this text.
    #[error("More than one device matches {0}: write more of its UUID")]
    Ambiguous(String),
    /// The device of this name is older than Ampere.
    #[error("Static SM partitioning needs a GPU of the Ampere architecture or newer, and {0} is older")]
    TooOld(String),
    /// The device has fewer free chunks than these.
    #[error("Failed to fulfill the requested SM partition of {0} chunks, error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION")]
    NotEnough(u64),
    /// No partition has this name.
    #[error("Partition {0} not found")]
    NotFound(String),
    /// The partition of this name has clients.
    #[error("Partition {0} in use. Terminate all clients before removing.")]
    InUse(String),
    /// For clients: the variable names no partition.
    #[error("{PARTITION_VARIABLE} is not set, and the control daemon runs with static SM partitioning (-S): set it to a partition that lspart shows")]
    NotNamed,
    /// For clients: the variable names this device twice.
    #[error("{PARTITION_VARIABLE} names two partitions of one device: {0}")]
    Twice(String),
}

/// All cards of a daemon with their partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Board {
    cards: Vec<PartitionedCard>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PartitionedCard {
    uuid: String,
    all: u32,
    /// SMs of a chunk; 0 where the card cannot be partitioned.
    chunk: u32,
    /// Oldest first.
    partitions: Vec<Partition>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Partition {
    id: String,
    chunks: BTreeSet<u32>,
    /// Whether it also has the SMs that are no whole chunk.
    remainder: bool,
    /// Process ids of its clients.
    clients: BTreeSet<u32>,
}

/// The SMs that a client gets: the device's place in the server's list, and SM indices.
pub type Assigned = Vec<(usize, Vec<u32>)>;

impl Board {
    /// A board for these cards, without partitions.
    #[must_use]
    pub fn new(devices: &[DeviceFacts]) -> Self {
        Self { cards: devices.iter().map(PartitionedCard::new).collect() }
    }

    /// Whether the board was made for these cards.
    #[must_use]
    pub fn fits(&self, devices: &[DeviceFacts]) -> bool {
        self.cards.len() == devices.len() && self.cards.iter().zip(devices).all(|(card, facts)| card.uuid == uuid_text(facts.uuid))
    }

    /// `sm_partition add`: makes a partition of so many chunks and returns its name `<UUID>/<id>`.
    ///
    /// # Errors
    /// The device is unknown or too old, or it has not enough free chunks.
    pub fn add(&mut self, device: &str, chunks: u64) -> Result<String, PartitionError> {
        let card = self.card_mut(device)?;
        if card.chunk == 0 {
            return Err(PartitionError::TooOld(card.uuid.clone()));
        }
        let free = card.free();
        let wanted = usize::try_from(chunks).ok().filter(|n| (1..=free.len()).contains(n)).ok_or(PartitionError::NotEnough(chunks))?;
        let taken: BTreeSet<u32> = free.into_iter().take(wanted).collect();
        let id = identifier(&taken);
        let name = format!("{}/{id}", card.uuid);
        card.partitions.push(Partition { id, chunks: taken, remainder: false, clients: BTreeSet::new() });
        Ok(name)
    }

    /// `sm_partition rm` of `<UUID>/<id>`: returns the full name of the removed partition.
    ///
    /// # Errors
    /// The partition is unknown or in use.
    pub fn remove(&mut self, device: &str, id: &str) -> Result<String, PartitionError> {
        let card = self.card_mut(device)?;
        let name = format!("{}/{id}", card.uuid);
        let at = card.partitions.iter().position(|p| p.id == id).ok_or_else(|| PartitionError::NotFound(name.clone()))?;
        if !card.partitions[at].clients.is_empty() {
            return Err(PartitionError::InUse(name));
        }
        card.partitions.remove(at);
        Ok(name)
    }

    /// Adds a client that connects with this value of [`PARTITION_VARIABLE`].
    ///
    /// # Errors
    /// The value names no partition, an unknown one, or two of one device: the client gets
    /// `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION`.
    pub fn assign(&mut self, variable: Option<&str>, pid: u32) -> Result<Assigned, PartitionError> {
        let text = variable.map(str::trim).filter(|text| !text.is_empty()).ok_or(PartitionError::NotNamed)?;
        let mut chosen: Vec<(usize, usize)> = Vec::new();
        for name in text.split(',').map(str::trim) {
            let (device, id) = name.split_once('/').ok_or_else(|| PartitionError::NotFound(name.to_owned()))?;
            let place = self.place(device)?;
            let at = self.cards[place].partitions.iter().position(|p| p.id == id).ok_or_else(|| PartitionError::NotFound(name.to_owned()))?;
            if chosen.iter().any(|(other, _)| *other == place) {
                return Err(PartitionError::Twice(text.to_owned()));
            }
            chosen.push((place, at));
        }
        // A process that connects again gives up its earlier partitions.
        self.release(pid);
        for (place, at) in &chosen {
            let card = &mut self.cards[*place];
            card.give_remainder();
            card.partitions[*at].clients.insert(pid);
        }
        Ok(chosen.into_iter().map(|(place, at)| (place, self.cards[place].sms(at))).collect())
    }

    /// Removes a client that has ended or was not served.
    pub fn release(&mut self, pid: u32) {
        for partition in self.cards.iter_mut().flat_map(|card| &mut card.partitions) {
            partition.clients.remove(&pid);
        }
    }

    /// Process ids of all clients with a partition.
    #[must_use]
    pub fn clients(&self) -> BTreeSet<u32> {
        self.cards.iter().flat_map(|card| &card.partitions).flat_map(|partition| partition.clients.iter().copied()).collect()
    }

    /// `lspart`: a row for each device, then one for each of its partitions.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut row = |cells: [&str; 7]| {
            let [gpu, partition, free_chunks, used_chunks, free_sms, used_sms, clients] = cells;
            let _ = writeln!(text, "{gpu:<14}{partition:<38}{free_chunks:<7}{used_chunks:<7}{free_sms:<7}{used_sms:<7}{clients}");
        };
        row(["GPU", "Partition", "free", "used", "free", "used", "clients"]);
        row(["", "", "chunk", "chunk", "SM", "SM", ""]);
        for card in &self.cards {
            let short = &card.uuid[..12];
            let (used, sms) = (card.used_chunks(), (0..card.partitions.len()).map(|at| card.sms(at).len()).sum::<usize>() as u32);
            let cells = [card.chunks() - used, used, card.all - sms, sms].map(|number| number.to_string());
            row([short, "-", &cells[0], &cells[1], &cells[2], &cells[3], "-"]);
            for (at, partition) in card.partitions.iter().enumerate() {
                let cells = [partition.chunks.len(), card.sms(at).len()].map(|number| number.to_string());
                row([short, &partition.id, "-", &cells[0], "-", &cells[1], if partition.clients.is_empty() { "-" } else { "Yes" }]);
            }
        }
        text
    }

    fn place(&self, name: &str) -> Result<usize, PartitionError> {
        let wanted = name.to_ascii_lowercase().replacen("gpu-", "GPU-", 1);
        let known = |card: &PartitionedCard| wanted.len() > "GPU-".len() && card.uuid.starts_with(&wanted);
        let mut meant = self.cards.iter().enumerate().filter(|(_, card)| known(card)).map(|(place, _)| place);
        match (meant.next(), meant.next()) {
            (None, _) => Err(PartitionError::NoDevice(name.to_owned())),
            (Some(_), Some(_)) => Err(PartitionError::Ambiguous(name.to_owned())),
            (Some(place), None) => Ok(place),
        }
    }

    fn card_mut(&mut self, name: &str) -> Result<&mut PartitionedCard, PartitionError> {
        let place = self.place(name)?;
        Ok(&mut self.cards[place])
    }
}

impl PartitionedCard {
    fn new(facts: &DeviceFacts) -> Self {
        let all = facts.multiprocessors();
        let (major, integrated) = (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, A::CU_DEVICE_ATTRIBUTE_INTEGRATED);
        let chunk = match (facts.attribute(major), facts.attribute(integrated)) {
            (major, _) if major < OLDEST => 0,
            (_, 1) => 2,
            (8, _) => 4,
            _ => 8,
        };
        Self { uuid: uuid_text(facts.uuid), all, chunk, partitions: Vec::new() }
    }

    fn chunks(&self) -> u32 {
        self.all.checked_div(self.chunk).unwrap_or(0)
    }

    fn used_chunks(&self) -> u32 {
        self.partitions.iter().map(|partition| partition.chunks.len() as u32).sum()
    }

    fn free(&self) -> Vec<u32> {
        (0..self.chunks()).filter(|chunk| !self.partitions.iter().any(|partition| partition.chunks.contains(chunk))).collect()
    }

    fn sms(&self, at: usize) -> Vec<u32> {
        let Some(partition) = self.partitions.get(at) else { return Vec::new() };
        let whole = partition.chunks.iter().flat_map(|chunk| chunk * self.chunk..(chunk + 1) * self.chunk);
        let rest = self.chunks() * self.chunk..self.all;
        if partition.remainder { whole.chain(rest).collect() } else { whole.collect() }
    }

    /// Adds the SMs that are no whole chunk to the oldest partition, when the card's first client
    /// comes and no chunk is free.
    fn give_remainder(&mut self) {
        let quiet = self.partitions.iter().all(|partition| partition.clients.is_empty());
        let given = self.partitions.iter().any(|partition| partition.remainder);
        if quiet && !given && self.used_chunks() == self.chunks() && self.chunks() * self.chunk < self.all {
            // The list begins with the oldest.
            if let Some(oldest) = self.partitions.first_mut() {
                oldest.remainder = true;
            }
        }
    }
}

/// An identifier of 36 characters, as NVIDIA's have, without `/`: it encodes which chunks the
/// partition has.
fn identifier(chunks: &BTreeSet<u32>) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bytes = [0_u8; MASK + 1];
    bytes[0] = u8::try_from(chunks.len()).unwrap_or(u8::MAX);
    for chunk in chunks {
        if let Some(byte) = bytes.get_mut(1 + *chunk as usize / 8) {
            *byte |= 1 << (chunk % 8);
        }
    }
    let mut text = String::new();
    for three in bytes.chunks_exact(3) {
        let word = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        text.extend([18, 12, 6, 0].map(|shift| char::from(ALPHABET[(word >> shift) as usize & 63])));
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A card whose identifier begins with this byte.
    pub(crate) fn card(first: u8, sms: i32, major: i32) -> DeviceFacts {
        let mut uuid = [0x18; 16];
        uuid[0] = first;
        DeviceFacts {
            id: "sim".into(),
            name: "card".into(),
            uuid,
            pci: [0; 3],
            memory: 0,
            attributes: [(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, sms), (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major)].into(),
            capabilities: cumux_wire::facts::Capabilities::default(),
        }
    }

    fn h200() -> Board {
        Board::new(&[card(0xfb, 132, 9)])
    }

    /// The session of NVIDIA's document: add, oversubscribe, list, remove in use, remove.
    #[test]
    fn the_documents_session() {
        let mut board = Board::new(&[card(0x74, 130, 10)]);
        let name = board.add("GPU-74", 7).unwrap();
        let (uuid, id) = name.split_once('/').unwrap();
        assert!(uuid.len() == 40 && id.len() == 36, "{name}");
        let error = board.add(uuid, 20).unwrap_err().to_string();
        assert_eq!(error, "Failed to fulfill the requested SM partition of 20 chunks, error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION");
        assert_eq!(board.assign(Some(&name), 5).unwrap(), [(0, (0..56).collect())]);
        let table = board.text();
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["GPU", "Partition", "free", "used", "free", "used", "clients"]);
        assert_eq!(rows[1], ["chunk", "chunk", "SM", "SM"]);
        assert_eq!(rows[2], ["GPU-74181818", "-", "9", "7", "74", "56", "-"]);
        assert_eq!(rows[3], ["GPU-74181818", id, "-", "7", "-", "56", "Yes"]);
        assert_eq!(board.remove(uuid, id).unwrap_err().to_string(), format!("Partition {name} in use. Terminate all clients before removing."));
        board.release(5);
        assert_eq!(board.remove("gpu-7418", id), Ok(name.clone()));
        assert_eq!(board.remove(uuid, id), Err(PartitionError::NotFound(name)));
    }

    #[test]
    fn chunks_by_architecture() {
        let of = |major, integrated| {
            let mut facts = card(1, 64, major);
            facts.attributes.set(A::CU_DEVICE_ATTRIBUTE_INTEGRATED, integrated);
            PartitionedCard::new(&facts).chunk
        };
        assert_eq!([of(7, 0), of(8, 0), of(9, 0), of(10, 0), of(12, 0), of(8, 1), of(10, 1)], [0, 4, 8, 8, 8, 2, 2]);
        assert!(matches!(Board::new(&[card(1, 40, 7)]).add("GPU-01", 1), Err(PartitionError::TooOld(_))));
    }

    #[test]
    fn what_clients_name_wrongly() {
        let mut board = Board::new(&[card(0xaa, 132, 9), card(0xab, 132, 9)]);
        let (a, b, other) = (board.add("GPU-aa", 2).unwrap(), board.add("GPU-aa", 2).unwrap(), board.add("GPU-ab", 3).unwrap());
        assert_eq!(board.assign(None, 1), Err(PartitionError::NotNamed));
        assert_eq!(board.assign(Some(" "), 1), Err(PartitionError::NotNamed));
        for wrong in ["nothing", "GPU-aa/zzz", "/", "GPU-aa"] {
            assert!(matches!(board.assign(Some(wrong), 1), Err(PartitionError::NotFound(_) | PartitionError::NoDevice(_))), "{wrong}");
        }
        assert!(matches!(board.assign(Some("GPU-a/x"), 1), Err(PartitionError::Ambiguous(_))));
        assert!(matches!(board.assign(Some(&format!("{a},{b}")), 1), Err(PartitionError::Twice(_))));
        assert!(board.clients().is_empty(), "a refused client holds nothing");
        let got = board.assign(Some(&format!("{other},{a}")), 1).unwrap();
        assert_eq!(got, [(1, (0..24).collect()), (0, (0..16).collect())]);
        assert!(matches!(board.add("GPU-aa", 0), Err(PartitionError::NotEnough(0))));
        assert!(matches!(board.add("GPU-zz", 1), Err(PartitionError::NoDevice(_))));
        assert!(matches!(board.add("GPU-aa", u64::MAX), Err(PartitionError::NotEnough(_))));
    }

    /// 132 SMs are 16 chunks and 4 more.
    #[test]
    fn the_remainder_goes_to_the_oldest_partition_when_the_first_client_comes() {
        let mut board = h200();
        let first = board.add("GPU-fb", 6).unwrap();
        let second = board.add("GPU-fb", 9).unwrap();
        assert_eq!(board.assign(Some(&second), 1).unwrap()[0].1.len(), 72, "a chunk is free");
        board.release(1);
        let third = board.add("GPU-fb", 1).unwrap();
        assert_eq!(board.assign(Some(&third), 1).unwrap()[0].1, (120..128).collect::<Vec<_>>());
        let sms = board.assign(Some(&first), 2).unwrap().remove(0).1;
        assert_eq!((sms.len(), sms.last()), (52, Some(&131)), "the oldest has them, though another had the first client");
        assert_eq!(board.text().lines().nth(2).unwrap().split_whitespace().collect::<Vec<_>>()[2..6], ["0", "16", "0", "132"]);
    }

    proptest! {
        /// After any commands: no chunk has two owners, the same commands give the same answers,
        /// clients keep their SMs, and partitions in use stay.
        #[test]
        fn partitions_stay_apart(steps in proptest::collection::vec((0_u8..4, 0_u64..18, 0_usize..6, 1_u32..8), 0..80), sms in 8_i32..200, major in 8_i32..13) {
            let mut board = Board::new(&[card(0x11, sms, major)]);
            let mut twin = board.clone();
            let mut names: Vec<String> = Vec::new();
            let mut held: std::collections::BTreeMap<u32, (String, Vec<u32>)> = std::collections::BTreeMap::new();
            for (what, chunks, which, pid) in steps {
                let name = names.get(which % names.len().max(1)).cloned().unwrap_or_default();
                let (device, id) = name.split_once('/').unwrap_or(("GPU-11", "x"));
                match what {
                    0 => {
                        let got = board.add("GPU-11", chunks);
                        prop_assert_eq!(&got, &twin.add("GPU-11", chunks));
                        if let Ok(name) = got {
                            prop_assert!(!names.contains(&name));
                            names.push(name);
                        }
                    }
                    1 => {
                        let got = board.remove(device, id);
                        prop_assert_eq!(&got, &twin.remove(device, id));
                        if got.is_ok() {
                            prop_assert!(held.values().all(|(held, _)| *held != name));
                            names.retain(|other| *other != name);
                        }
                    }
                    2 => {
                        let got = board.assign(Some(&name), pid);
                        prop_assert_eq!(&got, &twin.assign(Some(&name), pid));
                        if let Ok(mut got) = got {
                            held.insert(pid, (name, got.remove(0).1));
                        }
                    }
                    _ => {
                        board.release(pid);
                        twin.release(pid);
                        held.remove(&pid);
                    }
                }
                let card = &board.cards[0];
                let mut owned: Vec<u32> = (0..card.partitions.len()).flat_map(|at| card.sms(at)).collect();
                let count = owned.len();
                owned.sort_unstable();
                owned.dedup();
                prop_assert_eq!(owned.len(), count, "an SM has two owners");
                prop_assert!(owned.iter().all(|sm| *sm < card.all));
                for (pid, (name, sms)) in &held {
                    let id = name.split_once('/').map_or("", |(_, id)| id);
                    let at = card.partitions.iter().position(|p| p.id == id);
                    prop_assert!(at.is_some_and(|at| card.partitions[at].clients.contains(pid) && card.sms(at) == *sms), "a client's SMs changed");
                }
            }
        }
    }
}
