//! The tables of MIG profiles: what each card offers, and where an instance may begin.
//!
//! Starts and sizes are on the axis of memory slices. A number that nobody has seen on a card is
//! `None` and is estimated where it is needed ([`super::Profile::multiprocessors`]).

use super::{Profile, Table};

const fn row(
    name: &'static str,
    (compute, size): (u32, u32),
    starts: &'static [u32],
    most: u32,
    (seen_multiprocessors, seen_memory_mib): (Option<u32>, Option<u32>),
    id: Option<u32>,
) -> Profile {
    Profile { name, compute, size, starts, most, seen_multiprocessors, seen_memory_mib, id }
}

pub(crate) const A30: Table = Table {
    grid: 4,
    compute: 4,
    source: "names: MIG guide; multiprocessors and memory: mock of go-nvml, not seen on a card",
    profiles: &[
        row("1g.6gb", (1, 1), &[0, 1, 2, 3], 4, (Some(14), Some(5836)), None),
        row("1g.6gb+me", (1, 1), &[0, 1, 2, 3], 1, (Some(14), Some(5836)), None),
        row("2g.12gb", (2, 2), &[0, 2], 2, (Some(28), Some(11_672)), None),
        row("2g.12gb+me", (2, 2), &[0, 2], 1, (Some(28), Some(11_672)), None),
        row("4g.24gb", (4, 4), &[0], 1, (Some(56), Some(23_344)), None),
    ],
};

pub(crate) const A100_40: Table = Table {
    grid: 8,
    compute: 7,
    source: "names and placements: MIG guide and transcripts of cards; memory of the small ones: mock of go-nvml",
    profiles: &[
        row("1g.5gb", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 7, (Some(14), Some(4864)), Some(19)),
        row("1g.5gb+me", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 1, (Some(14), Some(4864)), Some(20)),
        row("1g.10gb", (1, 2), &[0, 2, 4, 6], 4, (Some(14), Some(9856)), Some(15)),
        row("2g.10gb", (2, 2), &[0, 2, 4], 3, (Some(28), Some(9856)), Some(14)),
        row("3g.20gb", (3, 4), &[0, 4], 2, (Some(42), Some(19_968)), Some(9)),
        row("4g.20gb", (4, 4), &[0], 1, (Some(56), Some(19_968)), Some(5)),
        row("7g.40gb", (7, 8), &[0], 1, (Some(98), Some(40_192)), Some(0)),
    ],
};

pub(crate) const A100_80: Table = Table {
    grid: 8,
    compute: 7,
    source: "names: MIG guide; multiprocessors and memory: mock of go-nvml, which agrees with transcripts of the card with 40 GB",
    profiles: &[
        row("1g.10gb", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 7, (Some(14), Some(9856)), Some(19)),
        row("1g.10gb+me", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 1, (Some(14), Some(9856)), Some(20)),
        row("1g.20gb", (1, 2), &[0, 2, 4, 6], 4, (Some(14), Some(19_968)), Some(15)),
        row("2g.20gb", (2, 2), &[0, 2, 4], 3, (Some(28), Some(19_968)), Some(14)),
        row("3g.40gb", (3, 4), &[0, 4], 2, (Some(42), Some(40_192)), Some(9)),
        row("4g.40gb", (4, 4), &[0], 1, (Some(56), Some(40_192)), Some(5)),
        row("7g.80gb", (7, 8), &[0], 1, (Some(98), Some(80_384)), Some(0)),
    ],
};

pub(crate) const H100_80: Table = Table {
    grid: 8,
    compute: 7,
    source: "transcript of a card (`nvidia-smi mig -lgip`, `-lgipp`) and MIG guide",
    profiles: &[
        row("1g.10gb", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 7, (Some(16), Some(9984)), Some(19)),
        row("1g.10gb+me", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 1, (Some(16), Some(9984)), Some(20)),
        row("1g.20gb", (1, 2), &[0, 2, 4, 6], 4, (Some(26), Some(20_090)), Some(15)),
        row("2g.20gb", (2, 2), &[0, 2, 4], 3, (Some(32), Some(20_090)), Some(14)),
        row("3g.40gb", (3, 4), &[0, 4], 2, (Some(60), Some(40_448)), Some(9)),
        row("4g.40gb", (4, 4), &[0], 1, (Some(64), Some(40_448)), Some(5)),
        row("7g.80gb", (7, 8), &[0], 1, (Some(132), Some(81_152)), Some(0)),
    ],
};

pub(crate) const H100_94: Table = Table {
    grid: 8,
    compute: 7,
    source: "names and placements: transcript of a card; multiprocessors as on the H100 with 80 GB; memory estimated",
    profiles: &[
        row("1g.12gb", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 7, (Some(16), None), Some(19)),
        row("1g.12gb+me", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 1, (Some(16), None), Some(20)),
        row("1g.24gb", (1, 2), &[0, 2, 4, 6], 4, (Some(26), None), Some(15)),
        row("2g.24gb", (2, 2), &[0, 2, 4], 3, (Some(32), None), Some(14)),
        row("3g.47gb", (3, 4), &[0, 4], 2, (Some(60), None), Some(9)),
        row("4g.47gb", (4, 4), &[0], 1, (Some(64), None), Some(5)),
        row("7g.94gb", (7, 8), &[0], 1, (Some(132), None), Some(0)),
    ],
};

pub(crate) const GH200_96: Table = Table {
    grid: 8,
    compute: 7,
    source: "names: mig-parted; the rest as on the H100 with 80 GB; memory estimated",
    profiles: &[
        row("1g.12gb", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 7, (Some(16), None), Some(19)),
        row("1g.12gb+me", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 1, (Some(16), None), Some(20)),
        row("1g.24gb", (1, 2), &[0, 2, 4, 6], 4, (Some(26), None), Some(15)),
        row("2g.24gb", (2, 2), &[0, 2, 4], 3, (Some(32), None), Some(14)),
        row("3g.48gb", (3, 4), &[0, 4], 2, (Some(60), None), Some(9)),
        row("4g.48gb", (4, 4), &[0], 1, (Some(64), None), Some(5)),
        row("7g.96gb", (7, 8), &[0], 1, (Some(132), None), Some(0)),
    ],
};

pub(crate) const H200: Table = Table {
    grid: 8,
    compute: 7,
    source: "read from a card through NVML, driver 580",
    profiles: &[
        row("1g.18gb", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 7, (Some(16), Some(16_384)), Some(19)),
        row("1g.18gb+me", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 1, (Some(16), Some(16_384)), Some(20)),
        row("1g.35gb", (1, 2), &[0, 2, 4, 6], 4, (Some(26), Some(33_280)), Some(15)),
        row("2g.35gb", (2, 2), &[0, 2, 4], 3, (Some(32), Some(33_280)), Some(14)),
        row("3g.71gb", (3, 4), &[0, 4], 2, (Some(60), Some(71_424)), Some(9)),
        row("4g.71gb", (4, 4), &[0], 1, (Some(64), Some(71_424)), Some(5)),
        row("7g.141gb", (7, 8), &[0], 1, (Some(132), Some(143_360)), Some(0)),
    ],
};

pub(crate) const GH200_144: Table = Table {
    grid: 8,
    compute: 7,
    source: "names: mig-parted; the rest as on the H200; memory estimated",
    profiles: &[
        row("1g.18gb", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 7, (Some(16), None), Some(19)),
        row("1g.18gb+me", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 1, (Some(16), None), Some(20)),
        row("1g.36gb", (1, 2), &[0, 2, 4, 6], 4, (Some(26), None), Some(15)),
        row("2g.36gb", (2, 2), &[0, 2, 4], 3, (Some(32), None), Some(14)),
        row("3g.72gb", (3, 4), &[0, 4], 2, (Some(60), None), Some(9)),
        row("4g.72gb", (4, 4), &[0], 1, (Some(64), None), Some(5)),
        row("7g.144gb", (7, 8), &[0], 1, (Some(132), None), Some(0)),
    ],
};

pub(crate) const B200: Table = Table {
    grid: 8,
    compute: 7,
    source: "names: MIG guide; placements follow from the memory; multiprocessors and memory estimated",
    profiles: &[
        row("1g.23gb", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 7, (None, None), Some(19)),
        row("1g.23gb+me", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 1, (None, None), Some(20)),
        row("1g.45gb", (1, 2), &[0, 2, 4, 6], 4, (None, None), Some(15)),
        row("2g.45gb", (2, 2), &[0, 2, 4], 3, (None, None), Some(14)),
        row("3g.90gb", (3, 4), &[0, 4], 2, (None, None), Some(9)),
        row("4g.90gb", (4, 4), &[0], 1, (None, None), Some(5)),
        row("7g.180gb", (7, 8), &[0], 1, (None, None), Some(0)),
    ],
};

pub(crate) const GB200: Table = Table {
    grid: 8,
    compute: 7,
    source: "names: mig-parted; the rest as on the B200",
    profiles: &[
        row("1g.23gb", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 7, (None, None), Some(19)),
        row("1g.23gb+me", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 1, (None, None), Some(20)),
        row("1g.47gb", (1, 2), &[0, 2, 4, 6], 4, (None, None), Some(15)),
        row("2g.47gb", (2, 2), &[0, 2, 4], 3, (None, None), Some(14)),
        row("3g.93gb", (3, 4), &[0, 4], 2, (None, None), Some(9)),
        row("4g.93gb", (4, 4), &[0], 1, (None, None), Some(5)),
        row("7g.186gb", (7, 8), &[0], 1, (None, None), Some(0)),
    ],
};

pub(crate) const B300: Table = Table {
    grid: 8,
    compute: 7,
    source: "names: mig-parted; the rest estimated",
    profiles: &[
        row("1g.34gb", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 7, (None, None), Some(19)),
        row("1g.34gb+me", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 1, (None, None), Some(20)),
        row("1g.67gb", (1, 2), &[0, 2, 4, 6], 4, (None, None), Some(15)),
        row("2g.67gb", (2, 2), &[0, 2, 4], 3, (None, None), Some(14)),
        row("3g.135gb", (3, 4), &[0, 4], 2, (None, None), Some(9)),
        row("4g.135gb", (4, 4), &[0], 1, (None, None), Some(5)),
        row("7g.269gb", (7, 8), &[0], 1, (None, None), Some(0)),
    ],
};

pub(crate) const GB300: Table = Table {
    grid: 8,
    compute: 7,
    source: "names: mig-parted; the rest estimated",
    profiles: &[
        row("1g.35gb", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 7, (None, None), Some(19)),
        row("1g.35gb+me", (1, 1), &[0, 1, 2, 3, 4, 5, 6], 1, (None, None), Some(20)),
        row("1g.70gb", (1, 2), &[0, 2, 4, 6], 4, (None, None), Some(15)),
        row("2g.70gb", (2, 2), &[0, 2, 4], 3, (None, None), Some(14)),
        row("3g.139gb", (3, 4), &[0, 4], 2, (None, None), Some(9)),
        row("4g.139gb", (4, 4), &[0], 1, (None, None), Some(5)),
        row("7g.278gb", (7, 8), &[0], 1, (None, None), Some(0)),
    ],
};

pub(crate) const RTX_PRO_6000: Table = Table {
    grid: 12,
    compute: 4,
    source: "transcript of a card (Server Edition) and MIG guide",
    profiles: &[
        row("1g.24gb", (1, 3), &[0, 3, 6, 9], 4, (Some(46), Some(24_186)), Some(14)),
        row("1g.24gb+me", (1, 3), &[0, 3, 6, 9], 1, (Some(46), Some(24_186)), Some(21)),
        row("1g.24gb+gfx", (1, 3), &[0, 3, 6, 9], 4, (Some(46), Some(24_186)), Some(47)),
        row("1g.24gb+me.all", (1, 3), &[0, 3, 6, 9], 1, (Some(46), Some(24_186)), Some(65)),
        row("1g.24gb-me", (1, 3), &[0, 3, 6, 9], 4, (Some(46), Some(24_186)), Some(67)),
        row("2g.48gb", (2, 6), &[0, 6], 2, (Some(94), Some(48_517)), Some(5)),
        row("2g.48gb+gfx", (2, 6), &[0, 6], 2, (Some(94), Some(48_517)), Some(35)),
        row("2g.48gb+me.all", (2, 6), &[0, 6], 1, (Some(94), Some(48_517)), Some(64)),
        row("2g.48gb-me", (2, 6), &[0, 6], 2, (Some(94), Some(48_517)), Some(66)),
        row("4g.96gb", (4, 12), &[0], 1, (Some(188), Some(97_402)), Some(0)),
        row("4g.96gb+gfx", (4, 12), &[0], 1, (Some(188), Some(97_402)), Some(32)),
    ],
};
