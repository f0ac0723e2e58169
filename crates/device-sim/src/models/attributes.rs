//! Attribute values by `CUdevice_attribute` number: what real cards answer, and where the software GPU answers otherwise.
//!
//! [`H200`] was read from one NVIDIA H200 with driver 580.159.04. [`DEPARTURES`] is applied to every card and is the one list of
//! features that a card has and the software GPU does not.

/// All attributes of an H200.
#[rustfmt::skip]
pub(super) const H200: [(u32, i32); 147] = [
    (1, 1024), (2, 1024), (3, 1024), (4, 64), (5, 2147483647), (6, 65535), (7, 65535), (8, 49152), (9, 65536),
    (10, 32), (11, 2147483647), (12, 65536), (13, 1980000), (14, 512), (15, 1), (16, 132), (17, 0), (18, 0),
    (19, 1), (20, 0), (21, 131072), (22, 131072), (23, 65536), (24, 16384), (25, 16384), (26, 16384),
    (27, 32768), (28, 32768), (29, 2048), (30, 512), (31, 1), (32, 1), (33, 0), (34, 6), (35, 0),
    (36, 3201000), (37, 6016), (38, 62914560), (39, 2048), (40, 3), (41, 1), (42, 32768), (43, 2048), (44, 1),
    (45, 32768), (46, 32768), (47, 8192), (48, 8192), (49, 32768), (50, 0), (51, 32), (52, 32768),
    (53, 32768), (54, 2046), (55, 32768), (56, 131072), (57, 65536), (58, 16384), (59, 16384), (60, 16384),
    (61, 32768), (62, 2048), (63, 32768), (64, 32768), (65, 2048), (66, 32768), (67, 32768), (68, 2046),
    (69, 268435456), (70, 131072), (71, 65000), (72, 2097120), (73, 32768), (74, 32768), (75, 9), (76, 0),
    (77, 32768), (78, 1), (79, 1), (80, 1), (81, 233472), (82, 65536), (83, 1), (84, 0), (85, 0), (86, 0),
    (87, 2), (88, 0), (89, 1), (90, 1), (91, 1), (92, 0), (93, 0), (94, 0), (95, 1), (96, 1), (97, 232448),
    (98, 0), (99, 1), (100, 0), (101, 0), (102, 1), (103, 1), (104, 0), (105, 0), (106, 32), (107, 1),
    (108, 39321600), (109, 134217728), (110, 1), (111, 1024), (112, 1), (113, 1), (114, 1), (115, 1),
    (116, 1), (117, 1), (118, 100), (119, 9), (120, 1), (121, 1), (122, 1), (123, 1), (124, 1), (125, 1),
    (126, 4), (127, 1), (128, 1), (129, 1), (130, 0), (131, -1), (132, 0), (133, 0), (134, 0), (135, 0),
    (136, 0), (137, 0), (138, 0), (139, 590680286), (140, 415174878), (141, 1), (142, 1), (143, 0), (144, 1),
    (145, 1), (146, 0), (147, 0),
];

/// A range of attribute numbers (inclusive), the value that every software GPU answers, and why.
pub(super) struct Departure {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) value: i32,
    #[cfg_attr(not(test), expect(dead_code, reason = "read by people and by the test that asks for a reason"))]
    pub(super) why: &'static str,
}

const fn departure(first: u32, last: u32, value: i32, why: &'static str) -> Departure {
    Departure { first, last, value, why }
}

/// Features of real cards that the software GPU does not have. A program that asks finds out before it fails.
pub(super) const DEPARTURES: &[Departure] = &[
    departure(17, 17, 0, "no display, so no time limit of its own; a watchdog is configured by CUMUX_SIM_WATCHDOG_MS"),
    departure(21, 29, 0, "no textures: no texture extent is possible"),
    departure(42, 49, 0, "no textures and no gather from them"),
    departure(52, 74, 0, "no cube maps, surfaces, linear or mipmapped textures"),
    departure(77, 77, 0, "no mipmapped textures"),
    departure(92, 94, 0, "the first version of stream memory operations is gone, as on driver 580"),
    departure(96, 96, 0, "a cooperative launch stays on one device"),
    departure(103, 105, 0, "memory handles cannot be exported to other processes"),
    departure(107, 107, 0, "no compressible memory"),
    departure(108, 109, 0, "there is no L2 cache that could be set aside"),
    departure(110, 110, 0, "no GPUDirect RDMA"),
    departure(112, 112, 0, "no sparse arrays"),
    departure(113, 113, 0, "registered host memory is always writable by kernels"),
    departure(114, 114, 0, "no external semaphores"),
    departure(116, 118, 0, "no GPUDirect RDMA"),
    departure(119, 119, 0, "memory pools cannot be exported to other processes"),
    departure(120, 120, 0, "no thread block clusters"),
    departure(121, 121, 0, "no arrays with deferred mapping"),
    departure(124, 124, 0, "no dma-buf export"),
    departure(125, 125, 0, "no events shared between processes"),
    departure(126, 126, 1, "one memory synchronisation domain"),
    departure(127, 127, 0, "no tensor maps"),
    departure(128, 128, 0, "no fabric handles"),
    departure(129, 129, 0, "function pointers belong to one module"),
    departure(132, 132, 0, "no multicast objects"),
    departure(141, 142, 0, "no virtual memory and no pools on host NUMA nodes"),
    departure(144, 146, 0, "no host memory pools, no host virtual memory management"),
];

/// What an A100 answers differently from an H200 before the departures. Both memory sizes share it; the memory clock differs.
pub(super) const A100: &[(u32, i32)] = &[
    (13, 1_410_000),
    (16, 108),
    (36, 1_593_000),
    (37, 5120),
    (38, 41_943_040),
    (75, 8),
    (76, 0),
    (81, 167_936),
    (97, 166_912),
    (126, 1),
    (139, 0x20b2_10de),
    (140, 0x1463_10de),
];

/// What the A100 with 40 GB answers differently from the one with 80 GB.
pub(super) const A100_40: &[(u32, i32)] = &[(36, 1_215_000), (139, 0x20b0_10de), (140, 0x144e_10de)];

/// What an L4 answers differently from an H200 before the departures.
pub(super) const L4: &[(u32, i32)] = &[
    (13, 2_040_000),
    (16, 58),
    (36, 6_251_000),
    (37, 192),
    (38, 50_331_648),
    (39, 1536),
    (40, 2),
    (75, 8),
    (76, 9),
    (81, 102_400),
    (87, 64),
    (97, 101_376),
    (106, 24),
    (126, 1),
    (139, 0x27b8_10de),
    (140, 0x16ee_10de),
];

/// What a T4 answers differently from an H200 before the departures.
pub(super) const T4: &[(u32, i32)] = &[
    (13, 1_590_000),
    (16, 40),
    (36, 5_001_000),
    (37, 256),
    (38, 4_194_304),
    (39, 1024),
    (75, 7),
    (76, 5),
    (81, 65_536),
    (87, 32),
    (97, 65_536),
    (106, 16),
    (111, 0),
    (126, 1),
    (139, 0x1eb8_10de),
    (140, 0x12a2_10de),
];

/// What a B300 answers differently from an H200 before the departures. No card was read. From sources: NVIDIA's list of compute capabilities has 10.3 for
/// it, and its tuning guide for Blackwell gives an SM of 10.0 the same shared memory (228 KB, 227 for a block), registers and threads as one of 9.0; the
/// number of SMs and the L2 cache are those that a B200 was seen to answer (github.com/pytorch/ao/pull/4002), which is built of the same two dies; vendors give
/// eight stacks of memory, 1024 bits each. Assumed: that a B300 has as many SMs and as much L2 as a B200, the clock, the ids on the bus, the memory that is
/// left of 288 GB, and, since the document of memory-locality partitions gives no figures, that each of the two has half of everything.
pub(super) const B300: &[(u32, i32)] = &[(13, 1_920_000), (16, 148), (37, 8192), (38, 132_644_864), (75, 10), (76, 3), (139, 0x3182_10de), (140, 0x20e6_10de)];
