//! The cards that the software GPU can be: their facts, and their limits as the scheduler needs
//! them.
//!
//! Invariant: what a card answers ([`DeviceFacts`]) and what launches are checked against
//! ([`Limits`]) come from the same attributes.

mod attributes;
mod names;

use cumux_abi::CUdevice_attribute as A;
use cumux_device::{Capabilities, DeviceError, DeviceFacts};
use cumux_wire::limits::LaunchLimits;

use attributes::{A100, A100_40, Attribute, B300, DEPARTURES, GB10, H200, L4, RTX_PRO_6000, T4};
pub(crate) use names::{ComputeMode, breaks, kind, number, numbers, rounds_bounds, single_names};
use names::{split_bounds, split_card, split_mode};

/// A card. Sizes are in bytes.
struct Model {
    id: &'static str,
    name: &'static str,
    memory: u64,
    /// Attributes that differ from those of the H200. Later lists override earlier ones.
    differs: &'static [&'static [Attribute]],
    /// Dies with memory of their own. Each can be a device of its own (a memory-locality
    /// partition).
    localities: u32,
}

const MIB: u64 = 1 << 20;

/// The cards. Their memory is what the driver reports: the board's memory, less what the driver
/// reserves.
const MODELS: [Model; 8] = [
    Model { id: "sim:h200", name: "NVIDIA H200", memory: 143_155 * MIB, differs: &[], localities: 1 },
    Model { id: "sim:a100-80", name: "NVIDIA A100-SXM4-80GB", memory: 81_251 * MIB, differs: &[A100], localities: 1 },
    Model { id: "sim:a100", name: "NVIDIA A100-SXM4-40GB", memory: 40_536 * MIB, differs: &[A100, A100_40], localities: 1 },
    Model { id: "sim:l4", name: "NVIDIA L4", memory: 22_491 * MIB, differs: &[L4], localities: 1 },
    Model { id: "sim:t4", name: "Tesla T4", memory: 15_102 * MIB, differs: &[T4], localities: 1 },
    Model { id: "sim:b300", name: "NVIDIA B300", memory: 275_040 * MIB, differs: &[B300], localities: 2 },
    Model { id: "sim:rtx-pro-6000", name: "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", memory: 97_247 * MIB, differs: &[RTX_PRO_6000], localities: 1 },
    Model { id: "sim:gb10", name: "NVIDIA GB10", memory: 122_570 * MIB, differs: &[RTX_PRO_6000, GB10], localities: 1 },
];

/// What one SM and one block can have. Shared memory is in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// What a launch is checked against.
    pub(crate) launch: LaunchLimits,
    pub(crate) sm: Capacity,
    /// Compute capability as major * 10 + minor.
    pub(crate) capability: u32,
}

/// Registers of a thread are allocated in this unit (CUDA occupancy calculator).
const REGISTER_UNIT: u32 = 8;
/// Fewest registers of a thread that compilers for these cards use.
const MIN_REGISTERS: u32 = 16;
/// Most registers of a thread (CUDA C++ Programming Guide, *Technical specifications per compute
/// capability*).
const MAX_REGISTERS: u32 = 255;

/// Threads of a warp.
pub(crate) const WARP: u32 = 32;

/// What one SM has, or what one block takes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Capacity {
    pub(crate) threads: u32,
    /// Resident blocks.
    pub(crate) blocks: u32,
    /// 32-bit registers.
    pub(crate) registers: u32,
    /// Bytes of shared memory.
    pub(crate) shared: u32,
}

impl Capacity {
    fn zip(self, other: Self, f: impl Fn(u32, u32) -> u32) -> Self {
        Capacity {
            threads: f(self.threads, other.threads),
            blocks: f(self.blocks, other.blocks),
            registers: f(self.registers, other.registers),
            shared: f(self.shared, other.shared),
        }
    }

    /// The sum of both.
    pub(crate) fn plus(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    /// What is left without `other`, which must fit.
    pub(crate) fn minus(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    /// True if `room` has at least as much of everything.
    pub(crate) fn fits_into(self, room: Self) -> bool {
        self.threads <= room.threads && self.blocks <= room.blocks && self.registers <= room.registers && self.shared <= room.shared
    }

    /// How many times this fits into `room`.
    pub(crate) fn times_in(self, room: Self) -> u32 {
        let times = room.zip(self, |room, need| room.checked_div(need).unwrap_or(u32::MAX));
        times.threads.min(times.blocks).min(times.registers).min(times.shared)
    }
}

/// The names of all cards.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    MODELS.iter().map(|card| card.id)
}

/// The facts of card `id`, as number `ordinal` of its kind in this process. A number in its name
/// comes before that.
///
/// # Errors
/// [`DeviceError::Invalid`], with a sentence that lists the cards.
pub(crate) fn facts(id: &str, ordinal: u32) -> Result<DeviceFacts, DeviceError> {
    let ordinal = number(id).unwrap_or(ordinal);
    let (card_name, breaks) = split_card(id);
    let (named, _) = split_bounds(card_name);
    let (named, mode) = split_mode(named);
    let (whole, part) = split(named);
    let Some((number, card)) = (0u8..).zip(&MODELS).find(|(_, card)| card.id == whole && part.is_none_or(|part| card.localities > 1 && part < card.localities))
    else {
        let known = names().collect::<Vec<_>>().join(", ");
        return Err(DeviceError::Invalid(format!(
            "there is no software GPU named {id:?}; choose one of {known}, with :exclusive_process or :prohibited behind it for that compute mode, :granule behind \
             that for bounds that are rounded as on real cards, :card behind all that for one that breaks at a fault as real cards do, and @1 at the end for \
             the second of its kind"
        )));
    };
    let mut values: Vec<Attribute> = H200.to_vec();
    for (attribute, value) in &mut values {
        if let Some((_, other)) = card.differs.iter().flat_map(|list| list.iter()).rev().find(|(n, _)| n == attribute) {
            *value = *other;
        }
        if let Some(departure) = DEPARTURES.iter().find(|departure| departure.covers(*attribute)) {
            *value = departure.value;
        }
    }
    let pci = [0, 0x10 + (ordinal & 0x7f) + u32::from(number) * 0x20, 0];
    for (attribute, value) in &mut values {
        match *attribute {
            A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID => *value = pci[0].cast_signed(),
            A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => *value = pci[1].cast_signed(),
            A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID => *value = pci[2].cast_signed(),
            A::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE => *value = mode.unwrap_or(ComputeMode::Default).number(),
            _ => {}
        }
    }
    let uuid = uuid(number, part.map_or(0, |part| part as u8 + 1), ordinal);
    let (mut name, mut memory) = (card.name.to_owned(), card.memory);
    if let Some(part) = part {
        name = format!("{name} MLOPart {part}");
        memory /= u64::from(card.localities);
        for (attribute, value) in &mut values {
            if DIVIDED.contains(attribute) {
                *value /= card.localities.cast_signed();
            }
        }
    }
    let attributes = values.into_iter().collect();
    let capabilities = Capabilities {
        resumes_kernels: true,
        waits_for_reports: true,
        contains_faults: true,
        pins_windows: false,
        needs_cores: true,
        runs_ptx_alone: true,
        has_textures: true,
        makes_textures: false,
        sets_conditions: true,
        exclusive: (mode == Some(ComputeMode::ExclusiveProcess))
            .then(|| format!("{named} is in EXCLUSIVE_PROCESS mode, in which one process alone may use it; --device {named} lets a standby be kept ready")),
        unavailable: None,
        peers: Vec::new(),
    };
    let capabilities = if breaks { as_a_real_card(capabilities) } else { capabilities };
    Ok(DeviceFacts { id: id.to_owned(), name, uuid, pci, memory, attributes, capabilities })
}

/// The capabilities of a card without a progress log: what depends on the log is as a real card has
/// it, so that tests without a GPU see how the executor treats one.
pub(crate) fn without_progress_log(capabilities: Capabilities) -> Capabilities {
    Capabilities { resumes_kernels: false, waits_for_reports: false, needs_cores: false, ..capabilities }
}

/// The capabilities of a card that breaks at a fault: in everything those of a real card.
fn as_a_real_card(capabilities: Capabilities) -> Capabilities {
    Capabilities { contains_faults: false, pins_windows: true, ..without_progress_log(capabilities) }
}

/// What the memory-locality partitions of a card share evenly.
const DIVIDED: [A; 3] = [A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE];

/// Splits the name of a memory-locality partition into the card's name and the partition's number:
/// `sim:b300.m1` is the second one of `sim:b300`.
fn split(id: &str) -> (&str, Option<u32>) {
    match id.rsplit_once(".m") {
        Some((whole, number)) if number.len() == 1 => (whole, number.parse().ok().or(Some(u32::MAX))),
        _ => (id, None),
    }
}

/// The names of a card's memory-locality partitions; none for a card with one locality.
pub(crate) fn localities(id: &str) -> Vec<String> {
    let whole = kind(id);
    let mode = &id[whole.len()..];
    let count = MODELS.iter().find(|card| card.id == whole).map_or(1, |card| card.localities);
    if count < 2 { Vec::new() } else { (0..count).map(|part| format!("{whole}.m{part}{mode}")).collect() }
}

/// A card's UUID: version 8 of RFC 9562, whose layout is ours. It is the same in every process.
///
/// People, `ps` and prefixes shorten UUIDs, so the beginning must tell cards apart. The first digit
/// differs between up to 16 cards of one model, and between the models. The first two groups are
/// a mix of all inputs. The second half is readable: `m`, the model's number, the number of the
/// part (0 for a whole card), the ordinal.
fn uuid(card: u8, part: u8, ordinal: u32) -> [u8; 16] {
    let [a, b, c, d] = ordinal.to_be_bytes();
    // The last step of SplitMix64: each bit of the input changes about half of the bits of the
    // output, and different inputs have different outputs.
    let mut mixed = u64::from_le_bytes([card, part, a, b, c, d, b's', b'm']);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let [m0, m1, m2, m3, m4, m5, m6, m7] = (mixed ^ (mixed >> 31)).to_be_bytes();
    let first = d.wrapping_add(card.wrapping_mul(5)).wrapping_add(part.wrapping_mul(3)) << 4 | m0 & 0x0f;
    [first, m1, m2, m3, m4, m5, 0x80 | m6 & 0x0f, m7, 0x80, b'm', card, part, a, b, c, d]
}

impl Limits {
    /// The limits in a card's attributes.
    pub(crate) fn of(facts: &DeviceFacts) -> Self {
        let value = |attribute: A| facts.attribute(attribute).max(0).cast_unsigned();
        let launch = LaunchLimits::of(facts);
        Limits {
            sm: Capacity {
                threads: launch.threads_per_multiprocessor,
                blocks: launch.blocks_per_multiprocessor,
                registers: launch.registers_per_multiprocessor,
                shared: launch.shared_per_multiprocessor,
            },
            launch,
            capability: value(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 + value(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        }
    }

    /// Registers of a thread as the scheduler counts them. They are never so many that the largest
    /// block which the kernel declares would not fit: a compiler for the card would have spilled
    /// the rest.
    pub(crate) fn registers_of_thread(&self, registers: u32, max_threads: u32) -> u32 {
        let most = self.launch.registers_per_block / max_threads.clamp(1, self.launch.threads_per_block).next_multiple_of(WARP);
        registers.clamp(MIN_REGISTERS, MAX_REGISTERS).min(most / REGISTER_UNIT * REGISTER_UNIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h200_is_as_recorded_except_for_the_listed_departures() {
        let facts = facts("sim:h200", 0).unwrap();
        assert_eq!(facts.name, "NVIDIA H200");
        let on_the_bus = [A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];
        for (attribute, recorded) in H200 {
            let departs = DEPARTURES.iter().any(|departure| departure.covers(attribute)) || on_the_bus.contains(&attribute);
            assert!(departs || facts.attribute(attribute) == recorded, "{attribute:?}");
        }
        assert_eq!(facts.attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 132);
        assert_eq!(facts.attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 232_448);
        assert_eq!(facts.attribute(A::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH), 1);
        assert_eq!(facts.attribute(A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH), 131_072);
        assert_eq!(facts.attribute(A::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED), 0);
    }

    #[test]
    fn every_departure_has_a_reason_and_no_attribute_two() {
        for (at, departure) in DEPARTURES.iter().enumerate() {
            assert!(departure.first.0 <= departure.last.0 && !departure.why.is_empty());
            assert!(DEPARTURES[at + 1..].iter().all(|later| later.first.0 > departure.last.0), "sorted, no overlap");
        }
    }

    #[test]
    fn cards_differ_where_they_should() {
        let of = |id| Limits::of(&facts(id, 0).unwrap());
        assert_eq!(of("sim:h200").capability, 90);
        assert_eq!((of("sim:a100").launch.multiprocessors, of("sim:a100").sm.shared, of("sim:a100").capability), (108, 167_936, 80));
        assert_eq!((of("sim:l4").sm.threads, of("sim:l4").sm.blocks), (1536, 24));
        assert_eq!((of("sim:t4").sm.threads, of("sim:t4").launch.shared_reserved), (1024, 0));
        assert_eq!((of("sim:rtx-pro-6000").capability, of("sim:rtx-pro-6000").sm.shared, of("sim:rtx-pro-6000").launch.multiprocessors), (120, 102_400, 188));
        assert_eq!((of("sim:gb10").capability, of("sim:gb10").sm.threads, of("sim:gb10").launch.multiprocessors), (121, 1536, 48));
        let memory_clock = |id| facts(id, 0).unwrap().attribute(A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
        assert_eq!((memory_clock("sim:a100"), memory_clock("sim:a100-80")), (1_215_000, 1_593_000));
    }

    /// As their drivers report it: the board's memory less 2 to 5 %.
    #[test]
    fn every_card_is_listed_and_has_its_memory() {
        let gigabytes: Vec<(&str, u64)> = crate::names().map(|id| (id, facts(id, 0).unwrap().memory >> 30)).collect();
        assert_eq!(
            gigabytes,
            [
                ("sim:h200", 139),
                ("sim:a100-80", 79),
                ("sim:a100", 39),
                ("sim:l4", 21),
                ("sim:t4", 14),
                ("sim:b300", 268),
                ("sim:rtx-pro-6000", 94),
                ("sim:gb10", 119)
            ]
        );
        let unknown = facts("sim:h300", 0).unwrap_err().to_string();
        assert!(crate::names().all(|id| unknown.contains(id)), "{unknown}");
    }

    #[test]
    fn localities_are_devices_of_their_own_on_one_card() {
        assert!(localities("sim:h200").is_empty());
        let parts: Vec<DeviceFacts> = localities("sim:b300").iter().map(|id| facts(id, 1).unwrap()).collect();
        let whole = facts("sim:b300", 1).unwrap();
        assert_eq!(parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>(), ["NVIDIA B300 MLOPart 0", "NVIDIA B300 MLOPart 1"]);
        assert!(
            parts
                .iter()
                .all(|part| part.pci == whole.pci && part.attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == 74 && part.memory * 2 == whole.memory)
        );
        let beginnings: std::collections::BTreeSet<_> = parts.iter().chain([&whole]).map(|facts| &facts.uuid[..4]).collect();
        assert_eq!(beginnings.len(), 3, "`ps` shows the beginning of a UUID");
    }

    #[test]
    fn a_card_in_a_compute_mode_is_the_same_card() {
        let plain = facts("sim:h200", 1).unwrap();
        for (id, mode, number) in [
            ("sim:h200:default", ComputeMode::Default, 0),
            ("sim:h200:prohibited", ComputeMode::Prohibited, 2),
            ("sim:h200:exclusive_process", ComputeMode::ExclusiveProcess, 3),
            ("sim:b300.m1:exclusive_process", ComputeMode::ExclusiveProcess, 3),
        ] {
            let facts = facts(id, 1).unwrap();
            assert_eq!((ComputeMode::of(&facts), facts.attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)), (mode, number), "{id}");
            assert!(kind(id) != "sim:h200" || facts.uuid == plain.uuid, "{id}");
        }
        assert_eq!(ComputeMode::of(&plain), ComputeMode::Default);
        assert_eq!(localities("sim:b300:exclusive_process"), ["sim:b300.m0:exclusive_process", "sim:b300.m1:exclusive_process"]);
        for id in [
            "sim:h200:",
            "sim:h200:card:",
            "sim:h200:card:card",
            "sim:h200:card:prohibited",
            ":card",
            "sim:h200:exclusive",
            "sim:h200:prohibited:prohibited",
            "sim:default",
            ":default",
        ] {
            assert!(facts(id, 0).is_err(), "{id}");
        }
    }

    #[test]
    fn a_card_with_rounded_bounds_is_the_same_card() {
        for (id, kind_of, plain) in [
            ("sim:h200:granule", "sim:h200", "sim:h200"),
            ("sim:h200:exclusive_process:granule", "sim:h200", "sim:h200:exclusive_process"),
            ("sim:l4:granule:card", "sim:l4", "sim:l4:card"),
        ] {
            let (card, plain) = (facts(id, 0).unwrap(), facts(plain, 0).unwrap());
            assert!(rounds_bounds(id) && !rounds_bounds(&plain.id) && kind(id) == kind_of, "{id}");
            assert_eq!((card.uuid, card.capabilities.contains_faults, card.attributes), (plain.uuid, plain.capabilities.contains_faults, plain.attributes));
        }
        for id in ["sim:h200:granule:granule", "sim:h200:card:granule", ":granule", "sim:h200:granule:prohibited"] {
            assert!(facts(id, 0).is_err(), "{id}");
        }
    }

    #[test]
    fn a_card_that_breaks_is_the_same_card_with_a_real_cards_capabilities() {
        let real = Capabilities { pins_windows: true, runs_ptx_alone: true, has_textures: true, sets_conditions: true, ..Capabilities::default() };
        for id in names().map(str::to_owned).chain(localities("sim:b300")) {
            let (plain, card) = (facts(&id, 1).unwrap(), facts(&format!("{id}:card"), 1).unwrap());
            assert!(breaks(&card.id) && !breaks(&plain.id) && kind(&card.id) == id, "{id}");
            assert_eq!(card, DeviceFacts { id: card.id.clone(), capabilities: real.clone(), ..plain });
        }
        let exclusive = facts("sim:h200:exclusive_process:card", 0).unwrap();
        assert!(ComputeMode::of(&exclusive) == ComputeMode::ExclusiveProcess && exclusive.capabilities.exclusive.is_some());
        assert!(!exclusive.capabilities.contains_faults && kind(&exclusive.id) == "sim:h200");
        assert_eq!(localities("sim:b300:card"), ["sim:b300.m0:card", "sim:b300.m1:card"]);
    }

    #[test]
    fn two_of_a_kind_are_told_apart_and_each_is_stable() {
        let (first, second) = (facts("sim:h200", 0).unwrap(), facts("sim:h200", 1).unwrap());
        assert_ne!(first.uuid, second.uuid);
        assert_ne!(first.pci, second.pci);
        assert_eq!(facts("sim:h200", 1).unwrap(), second);
    }

    #[test]
    fn cards_are_told_apart_by_the_beginning_of_their_uuids() {
        let first_digit = |id: &str, ordinal| facts(id, ordinal).unwrap().uuid[0] >> 4;
        let of_a_kind: std::collections::BTreeSet<u8> = (0..16).map(|ordinal| first_digit("sim:h200", ordinal)).collect();
        let kinds: std::collections::BTreeSet<u8> = names().map(|id| first_digit(id, 0)).collect();
        assert_eq!((of_a_kind.len(), kinds.len()), (16, MODELS.len()));
        let ids = names().map(str::to_owned).chain(localities("sim:b300"));
        let all: Vec<[u8; 16]> = ids.flat_map(|id| (0..64).map(move |ordinal| facts(&id, ordinal).unwrap().uuid)).collect();
        let groups: std::collections::BTreeSet<&[u8]> = all.iter().map(|uuid| &uuid[..4]).collect();
        assert_eq!(groups.len(), all.len(), "the first group is enough");
        // Stable: scripts name them.
        let uuid = facts("sim:h200", 0).unwrap().uuid;
        assert_eq!(uuid.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), "0248be0ea92b8af7806d000000000000");
        assert!(all.iter().all(|uuid| uuid[6] >> 4 == 8 && uuid[8] >> 6 == 2), "version 8, variant of RFC 9562");
    }

    #[test]
    fn an_unknown_card_is_answered_with_the_list() {
        let text = facts("sim:h100", 0).unwrap_err().to_string();
        assert!(text.contains("sim:h100") && text.contains("sim:h200, sim:a100-80, sim:a100, sim:l4, sim:t4, sim:b300, sim:rtx-pro-6000, sim:gb10"), "{text}");
        for id in ["sim:b300.m2", "sim:h200.m0", "sim:b300.mx", "sim:b300.m"] {
            assert!(facts(id, 0).is_err(), "{id}");
        }
    }
}
