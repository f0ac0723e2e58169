//! Cards by what the simulation needs to know of them.

use crate::mig::{Table, tables};

/// What one multiprocessor has, or what one block takes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Threads.
    pub threads: u32,
    /// Blocks.
    pub blocks: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Bytes of shared memory.
    pub shared: u32,
}

impl Capacity {
    /// How often `block` fits into this.
    #[must_use]
    pub fn times(self, block: Self) -> u32 {
        let times = |room: u32, need: u32| room.checked_div(need).unwrap_or(u32::MAX);
        let by_size = times(self.threads, block.threads).min(times(self.registers, block.registers));
        by_size.min(times(self.shared, block.shared)).min(times(self.blocks, block.blocks))
    }
}

/// A card.
#[derive(Debug)]
pub struct CardModel {
    /// As `--card` names it.
    pub id: &'static str,
    /// As people name it.
    pub name: &'static str,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Highest clock of the multiprocessors.
    pub clock_khz: u32,
    /// Peak bandwidth of its memory, in bytes a second.
    pub bandwidth: u64,
    /// L2 cache in bytes.
    pub cache: u64,
    /// Memory that programs can have.
    pub memory_mib: u32,
    /// Compute capability, major.
    pub major: u32,
    /// One multiprocessor.
    pub each: Capacity,
    /// What MIG offers; `None` for a card without it.
    pub mig: Option<Table>,
    /// `<device><vendor>` numbers on the PCI bus, as mig-parted filters by them.
    pub pci: &'static [&'static str],
    /// Where the numbers are from.
    pub source: &'static str,
}

const fn each(threads: u32, blocks: u32, shared: u32) -> Capacity {
    Capacity { threads, blocks, registers: 65_536, shared }
}

/// Compute capability 8.0.
const AMPERE: Capacity = each(2048, 32, 167_936);
/// 9.0 and 10.x.
const HOPPER: Capacity = each(2048, 32, 233_472);
/// 8.9.
const ADA: Capacity = each(1536, 24, 102_400);

const READ: &str = "read from a card by its driver, or by a model of one in this tree";
const SHEET: &str = "NVIDIA's data sheet; not read from a card";
const GUESSED: &str = "data sheet where there is one; multiprocessors as on the sibling; not read from a card";

/// The cards.
static ALL: [CardModel; 16] = [
    CardModel {
        id: "a30",
        name: "NVIDIA A30",
        multiprocessors: 56,
        clock_khz: 1_440_000,
        bandwidth: 933_000_000_000,
        cache: 24 << 20,
        memory_mib: 24_062,
        major: 8,
        each: AMPERE,
        mig: Some(tables::A30),
        pci: &["0x20B710DE"],
        source: SHEET,
    },
    CardModel {
        id: "a100-40",
        name: "NVIDIA A100-SXM4-40GB",
        multiprocessors: 108,
        clock_khz: 1_410_000,
        bandwidth: 1_555_200_000_000,
        cache: 41_943_040,
        memory_mib: 40_536,
        major: 8,
        each: AMPERE,
        mig: Some(tables::A100_40),
        pci: &["0x20B010DE", "0x20B110DE", "0x20F110DE", "0x20F610DE"],
        source: READ,
    },
    CardModel {
        id: "a100-80",
        name: "NVIDIA A100-SXM4-80GB",
        multiprocessors: 108,
        clock_khz: 1_410_000,
        bandwidth: 2_039_040_000_000,
        cache: 41_943_040,
        memory_mib: 81_251,
        major: 8,
        each: AMPERE,
        mig: Some(tables::A100_80),
        pci: &["0x20B210DE", "0x20B510DE", "0x20F310DE", "0x20F510DE"],
        source: READ,
    },
    CardModel {
        id: "h100-80",
        name: "NVIDIA H100 80GB HBM3",
        multiprocessors: 132,
        clock_khz: 1_980_000,
        bandwidth: 3_352_000_000_000,
        cache: 50 << 20,
        memory_mib: 81_152,
        major: 9,
        each: HOPPER,
        mig: Some(tables::H100_80),
        pci: &["0x233010DE", "0x233110DE", "0x232210DE", "0x232410DE"],
        source: SHEET,
    },
    CardModel {
        id: "h100-94",
        name: "NVIDIA H100 NVL",
        multiprocessors: 132,
        clock_khz: 1_785_000,
        bandwidth: 3_938_000_000_000,
        cache: 50 << 20,
        memory_mib: 95_830,
        major: 9,
        each: HOPPER,
        mig: Some(tables::H100_94),
        pci: &["0x232110DE", "0x233A10DE"],
        source: SHEET,
    },
    CardModel {
        id: "gh200-96",
        name: "NVIDIA GH200 96GB",
        multiprocessors: 132,
        clock_khz: 1_980_000,
        bandwidth: 4_000_000_000_000,
        cache: 50 << 20,
        memory_mib: 97_280,
        major: 9,
        each: HOPPER,
        mig: Some(tables::GH200_96),
        pci: &["0x234210DE", "0x233D10DE"],
        source: SHEET,
    },
    CardModel {
        id: "h200",
        name: "NVIDIA H200",
        multiprocessors: 132,
        clock_khz: 1_980_000,
        bandwidth: 4_814_304_000_000,
        cache: 62_914_560,
        memory_mib: 143_155,
        major: 9,
        each: HOPPER,
        mig: Some(tables::H200),
        pci: &["0x233510DE", "0x233B10DE"],
        source: READ,
    },
    CardModel {
        id: "gh200-144",
        name: "NVIDIA GH200 144GB",
        multiprocessors: 132,
        clock_khz: 1_980_000,
        bandwidth: 4_900_000_000_000,
        cache: 62_914_560,
        memory_mib: 146_000,
        major: 9,
        each: HOPPER,
        mig: Some(tables::GH200_144),
        pci: &["0x234810DE"],
        source: SHEET,
    },
    CardModel {
        id: "b200",
        name: "NVIDIA B200",
        multiprocessors: 148,
        clock_khz: 1_965_000,
        bandwidth: 7_700_000_000_000,
        cache: 132_644_864,
        memory_mib: 182_000,
        major: 10,
        each: HOPPER,
        mig: Some(tables::B200),
        pci: &["0x290110DE"],
        source: SHEET,
    },
    CardModel {
        id: "gb200",
        name: "NVIDIA GB200",
        multiprocessors: 148,
        clock_khz: 1_965_000,
        bandwidth: 7_900_000_000_000,
        cache: 132_644_864,
        memory_mib: 188_000,
        major: 10,
        each: HOPPER,
        mig: Some(tables::GB200),
        pci: &["0x294110DE"],
        source: GUESSED,
    },
    CardModel {
        id: "b300",
        name: "NVIDIA B300",
        multiprocessors: 148,
        clock_khz: 1_920_000,
        bandwidth: 7_900_000_000_000,
        cache: 132_644_864,
        memory_mib: 275_040,
        major: 10,
        each: HOPPER,
        mig: Some(tables::B300),
        pci: &["0x318210DE"],
        source: GUESSED,
    },
    CardModel {
        id: "gb300",
        name: "NVIDIA GB300",
        multiprocessors: 148,
        clock_khz: 1_920_000,
        bandwidth: 7_900_000_000_000,
        cache: 132_644_864,
        memory_mib: 284_000,
        major: 10,
        each: HOPPER,
        mig: Some(tables::GB300),
        pci: &["0x31C210DE"],
        source: GUESSED,
    },
    CardModel {
        id: "rtx-pro-6000",
        name: "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        multiprocessors: 188,
        clock_khz: 2_430_000,
        bandwidth: 1_597_000_000_000,
        cache: 128 << 20,
        memory_mib: 97_402,
        major: 12,
        each: ADA,
        mig: Some(tables::RTX_PRO_6000),
        pci: &["0x2BB510DE"],
        source: SHEET,
    },
    CardModel {
        id: "l40s",
        name: "NVIDIA L40S",
        multiprocessors: 142,
        clock_khz: 2_520_000,
        bandwidth: 864_000_000_000,
        cache: 96 << 20,
        memory_mib: 45_589,
        major: 8,
        each: ADA,
        mig: None,
        pci: &["0x26B910DE"],
        source: SHEET,
    },
    CardModel {
        id: "l4",
        name: "NVIDIA L4",
        multiprocessors: 58,
        clock_khz: 2_040_000,
        bandwidth: 300_048_000_000,
        cache: 50_331_648,
        memory_mib: 22_491,
        major: 8,
        each: ADA,
        mig: None,
        pci: &["0x27B810DE"],
        source: READ,
    },
    CardModel {
        id: "t4",
        name: "Tesla T4",
        multiprocessors: 40,
        clock_khz: 1_590_000,
        bandwidth: 320_064_000_000,
        cache: 4_194_304,
        memory_mib: 15_102,
        major: 7,
        each: each(1024, 16, 65_536),
        mig: None,
        pci: &["0x1EB810DE"],
        source: READ,
    },
];

/// No card has this name.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("there is no card \"{name}\" in the planner's list; it knows {known}")]
pub struct UnknownCard {
    name: String,
    known: String,
}

/// All cards.
#[must_use]
pub fn all() -> &'static [CardModel] {
    &ALL
}

/// The card of this name. `sim:` in front is taken, too: the software GPU of that card.
///
/// # Errors
/// [`UnknownCard`], which lists the cards.
pub fn find(name: &str) -> Result<&'static CardModel, UnknownCard> {
    let wanted = name.trim().to_ascii_lowercase();
    let wanted = wanted.strip_prefix("sim:").unwrap_or(&wanted);
    // The software GPU's name for it.
    let wanted = if wanted == "a100" { "a100-40" } else { wanted };
    // The driver's name for it, as nvidia-smi prints it, is one, too.
    all().iter().find(|card| card.id == wanted || card.name.eq_ignore_ascii_case(wanted)).ok_or_else(|| UnknownCard { name: name.to_owned(), known: names() })
}

/// The names of all cards.
#[must_use]
pub fn names() -> String {
    all().iter().map(|card| card.id).collect::<Vec<_>>().join(", ")
}
