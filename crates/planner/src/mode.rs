//! The ways of sharing a card, or an instance of it, with what was measured of each.
//!
//! Every number has its source beside it. They are one H200's with driver 580.159.04, and are taken
//! for every card: what has not been compared with other cards is said in docs/planning.md.

use crate::simulate::{Common, Submission, TimeSlices};
use cumux_wire::threads::ServiceThreads;
use serde::{Deserialize, Serialize};

/// What of one program may reach another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// A fault of one program may end others.
    None,
    /// A fault of one program ends no other.
    Faults,
    /// No program takes memory, bandwidth or time from another.
    Hard,
}

/// A way in which programs share one machine: a card, or an instance of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One program has it alone.
    Exclusive,
    /// The programs are threads of one process, with a stream each.
    Streams,
    /// Processes with contexts of their own, in turn.
    TimeSliced,
    /// NVIDIA's Multi-Process Service.
    Mps,
    /// cumux: one executor for all.
    Cumux,
    /// cumux with `--isolation own`: an executor for each.
    CumuxOwn,
}

/// How long a busy context keeps the card while others wait. From faults-h200, section 3: four
/// processes of 20 µs kernels beside an endless one do 11.0 instead of 28.4 thousand kernels a
/// second, so the endless one has 2.23 ms of each round, its switch among them; launch and wait
/// beside it takes 2.4 ms, which is slice, two switches and the launch itself.
pub const SLICE_NS: f64 = 2_100_000.0;
/// From one context to another that has work. From benches/results/h200-0beefa6.json, native "W2
/// n=8 N=1" and "N=4" and "W1 n=8": a round of eight takes 1,087, 1,127 and 2,804 µs, the work
/// itself 1.7 µs a kernel of W2.
pub const SWITCH_NS: f64 = 134_000.0;
/// Clients whose work NVIDIA's MPS has on the card at a time. From h200-0beefa6.json, MPS "W1
/// n=32": as many kernels a second as 16 clients, although a third of the card is free.
pub const MPS_AT_A_TIME: usize = 16;
/// How long these keep the card while others wait: p99 of the same row, 8.27 ms.
pub const MPS_TURN_NS: f64 = 8_200_000.0;
/// Kernels of MPS clients pass one after the other: MPS "W2 n=8", N = 4, 16 and 100: 1.05 to 1.08
/// million a second.
const MPS_KERNEL_NS: f64 = 920.0;
/// How many times as long that takes at times. From the lab's `tiny`, 8 and 16 programs on an H200
/// and two H100s: 99 of 100 requests take at most 1.15 to 1.72 times as long as the mean, 1.36 in
/// the mean of the six.
const MPS_SLOW: f64 = 1.36;

/// MiB of an idle context (h200-0beefa6.txt, "MiB of the card per idle client", native).
pub const CONTEXT_MIB: u32 = 526;
/// MiB of an idle client of NVIDIA's MPS (the same line).
const MPS_CLIENT_MIB: u32 = 519;
/// MiB of an idle client of cumux (the same line).
const CUMUX_CLIENT_MIB: u32 = 2;
/// Clients of one MPS server (NVIDIA's document, "MPS client limits").
const MPS_CLIENTS: u32 = 60;
/// Clients of one executor of cumux: its windows (ARCHITECTURE.md, "Addresses").
const CUMUX_CLIENTS: u32 = 512;

/// Part of its speed that a processor loses while its sibling in the same core works. Of programs
/// whose passes wait for the host (ResNet-50 by MPS, nine labs), each has 0.89 of one's rate with
/// two of them, 0.94 with four and 0.81 with eight (medians; 0.73 to 1.08). The model says 0.92,
/// 0.87 and 0.80: siblings work together more often than if all were at random places.
const SIBLING_COST: f64 = 0.3;
/// How much of a working thread's load on the sibling a thread is that waits actively: it pauses
/// between two looks. ResNet-50, one copy and two, by cumux in place of MPS: 0.9 to 1.65 times as
/// many passes on four machines, 1.45 in the middle; the model says 1.1 with 1 here, and 1.2 so.
const POLLING_LOAD: f64 = 0.2;
/// The host where none is known.
pub const USUAL_HOST: ServedHost = ServedHost::with(16);
/// The part of a chain's time in which no other engine gets on, where they have fewer intake
/// threads. In one context two engines did 1.16 times the kernels of one (W2 n=8, N = 1 and 4, two
/// cards; decision 0122), and with a context for each 1.2 times as many once more (decision 0131).
const LOCKED: f64 = 1.0 / (1.16 * 1.2);
/// The same where each engine has an intake thread that may carry it (decision 0132): the lab's
/// `tiny`, 8 programs on an H200 with three of each, at 485bb64e (docs/planning.md).
const LOCKED_CARRIED: f64 = 0.45;

/// A host, and the threads with which an executor of one card serves its clients there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedHost {
    /// Its processors.
    pub processors: u32,
    /// Engine threads, which submit work to the card.
    pub engines: u32,
    /// Intake threads, which take in the work of clients.
    pub lanes: u32,
}

impl ServedHost {
    /// A host with so many processors, and as many threads as an executor has there.
    #[must_use]
    pub const fn with(processors: u32) -> ServedHost {
        let ServiceThreads { engines, lanes } = ServiceThreads::on(processors);
        ServedHost { processors, engines, lanes }
    }

    /// The threads of an executor that wait actively: intake and engines.
    const fn polling(self) -> u32 {
        ServiceThreads { engines: self.engines, lanes: self.lanes }.polling()
    }
}

/// A processor's time for a launch, without MPS or cumux: h200-0beefa6.txt, "ns of CPU per launch"
/// (2,602). A host where it is another is that much slower in everything
/// ([`Submission::on_host`]).
pub const LAUNCH_NS: f64 = 2600.0;
/// Threads of one process launch one after the other.
const THREADS: Common = Common { chain_ns: 0.0, kernel_ns: 2100.0, other_ns: 0.0, longest: 1, by_host: true, slow: 1.0, engines: 1, locked: 0.0 };
/// What a kernel costs besides in a chain of cumux where the one before is another: it is compared,
/// and often its node is set. From ResNet-50 by cumux, 16 workers, on three machines: 2.1 µs a
/// kernel in all, in two engines, which the model makes 1.9 to 2.6.
const OTHER_KERNEL_NS: f64 = 900.0;
/// How many times longer launches, notices and cumux's own threads take in slow times, at most.
/// From the lab's `tiny` by time-slicing, one program, on two machines: 99 of 100 requests take at
/// most 1.49 and 1.57 times as long as half of them.
const SLOW_SUBMISSION: f64 = 1.5;
/// As a process alone launches: the rest of 7.6 µs of "W2 n=1 N=1".
const NATIVE: Submission = Submission { launch_ns: LAUNCH_NS, start_ns: 2200.0, notify_ns: 1500.0, between_ns: 400.0, slowest: SLOW_SUBMISSION, common: None };

/// How many times longer a program's host takes in slow times, beside other programs. From the
/// lab's ResNet-50 on an H200: 99 of 100 requests take at most 1.38 to 1.56 times as long as the
/// mean for 2 to 8 through cumux; alone through cumux 1.08 times.
const DISTURBED: f64 = 1.5;
/// The same by MPS. From three machines where the calmer of two rounds counts: 1.15 to 1.6 times
/// for 2 to 8, besides what [`SIBLING_COST`] has already.
const DISTURBED_MPS: f64 = 1.25;
/// The same for one program alone with the driver in its own process. ResNet-50 on four H200s
/// (benches/results/lab): 0.93, 1.07, 1.34 and 1.44 times what the model says without it. In the
/// middle of that, all four are within 25 %.
const DISTURBED_ALONE: f64 = 1.15;

impl Mode {
    /// The ways in which several programs can share.
    pub const SHARED: [Mode; 5] = [Mode::Cumux, Mode::CumuxOwn, Mode::Mps, Mode::TimeSliced, Mode::Streams];

    /// As the JSON and tests name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Streams => "streams",
            Mode::TimeSliced => "time_sliced",
            Mode::Mps => "mps",
            Mode::Cumux => "cumux",
            Mode::CumuxOwn => "cumux_own",
        }
    }

    /// As people name it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Mode::Exclusive => "one program a card",
            Mode::Streams => "streams of one process",
            Mode::TimeSliced => "time-slicing",
            Mode::Mps => "NVIDIA MPS",
            Mode::Cumux => "cumux",
            Mode::CumuxOwn => "cumux, own executors",
        }
    }

    /// The context of client number `client`.
    #[must_use]
    pub fn context(self, client: usize) -> usize {
        match self {
            Mode::Exclusive | Mode::Streams | Mode::Cumux => 0,
            Mode::TimeSliced | Mode::CumuxOwn => client,
            Mode::Mps => client / MPS_AT_A_TIME,
        }
    }

    /// How its contexts take turns.
    #[must_use]
    pub fn turns(self) -> TimeSlices {
        let slice_ns = if self == Mode::Mps { MPS_TURN_NS } else { SLICE_NS };
        TimeSlices { slice_ns, switch_ns: SWITCH_NS }
    }

    /// How its launches get to the card, with so many threads of cumux as a host has.
    #[must_use]
    pub fn submission(self, host: ServedHost) -> Submission {
        match self {
            Mode::Exclusive | Mode::TimeSliced => NATIVE,
            // The driver's lock: threads of one process launch one after the other.
            Mode::Streams => Submission { start_ns: 100.0, common: Some(THREADS), ..NATIVE },
            // h200-0beefa6.txt, "ns of CPU per launch" (2,850).
            Mode::Mps => {
                let common = Some(Common {
                    chain_ns: 0.0,
                    kernel_ns: MPS_KERNEL_NS,
                    other_ns: 0.0,
                    longest: 1,
                    by_host: false,
                    slow: MPS_SLOW,
                    engines: 1,
                    locked: 0.0,
                });
                Submission { launch_ns: 2850.0, start_ns: 1000.0, common, ..NATIVE }
            }
            // h200-0beefa6.txt: 455 ns of CPU a launch; "W2 n=8", N = 1 and 100: 2.1 and 0.39 µs a
            // kernel, of chains of up to 48 (one-context-h200, E4); "W2 n=1 N=1": 9 µs.
            Mode::Cumux | Mode::CumuxOwn => {
                let (engines, locked) = (host.engines.max(1), if host.lanes >= host.engines { LOCKED_CARRIED } else { LOCKED });
                let common =
                    Some(Common { chain_ns: 1750.0, kernel_ns: 350.0, other_ns: OTHER_KERNEL_NS, longest: 48, by_host: true, slow: 1.0, engines, locked });
                Submission { launch_ns: 455.0, start_ns: 2200.0, notify_ns: 2200.0, between_ns: 400.0, slowest: SLOW_SUBMISSION, common }
            }
        }
    }

    /// Memory that it takes of the machine besides what programs ask for.
    #[must_use]
    pub fn overhead_mib(self, clients: u32) -> u64 {
        let clients = u64::from(clients);
        match self {
            Mode::Exclusive | Mode::TimeSliced | Mode::CumuxOwn => clients * u64::from(CONTEXT_MIB),
            Mode::Streams => u64::from(CONTEXT_MIB),
            Mode::Mps => clients * u64::from(MPS_CLIENT_MIB),
            // The executor's context and that of its standby.
            Mode::Cumux => 2 * u64::from(CONTEXT_MIB) + clients * u64::from(CUMUX_CLIENT_MIB),
        }
    }

    /// How many times longer a processor takes for everything, where so many programs keep theirs
    /// busy beside the threads of the way itself. A processor whose sibling in the same core works,
    /// too, is slower ([`SIBLING_COST`]); where there are more threads than processors, each gets
    /// its part of the time.
    #[must_use]
    pub fn crowding(self, clients: u32, host: ServedHost) -> f64 {
        let (polling, processors) = (host.polling(), host.processors);
        let own = match self {
            Mode::Cumux => polling,
            Mode::CumuxOwn => clients.saturating_mul(polling),
            Mode::Exclusive | Mode::Streams | Mode::TimeSliced | Mode::Mps => 0,
        };
        let threads = clients.saturating_add(own);
        let others = f64::from(clients.saturating_sub(1)) + POLLING_LOAD * f64::from(own);
        let sibling_works = (others / f64::from(processors.saturating_sub(1).max(1))).min(1.0).sqrt();
        (f64::from(threads) / f64::from(processors.max(1))).max(1.0) / (1.0 - SIBLING_COST * sibling_works)
    }

    /// How many times longer the host takes in its slow times than in the mean, at least.
    #[must_use]
    pub fn unsteadiness(self, clients: u32, host: ServedHost) -> f64 {
        let disturbed = match (self, clients) {
            (Mode::Cumux, 1) => 1.0,
            (_, 1) => DISTURBED_ALONE,
            (Mode::Mps, _) => DISTURBED_MPS,
            _ => DISTURBED,
        };
        disturbed * self.overfull(clients, host)
    }

    /// Active threads for each processor, at least 1.
    fn overfull(self, clients: u32, host: ServedHost) -> f64 {
        let own = if self == Mode::Cumux { host.polling() } else { 0 };
        (f64::from(clients.saturating_add(own)) / f64::from(host.processors.max(1))).max(1.0)
    }

    /// How many times longer launches and notices take in slow times, at most. `tiny` through
    /// cumux, 16 programs on 16 processors, on four machines (benches/results/lab): p99 1.8 to 2.2
    /// times the mean.
    #[must_use]
    pub fn slowest_submission(self, clients: u32, host: ServedHost) -> f64 {
        SLOW_SUBMISSION * self.overfull(clients, host)
    }

    /// Most programs on one machine.
    #[must_use]
    pub fn most_clients(self) -> u32 {
        match self {
            Mode::Exclusive => 1,
            Mode::Mps => MPS_CLIENTS,
            Mode::Streams => crate::profile::MOST_STREAMS,
            Mode::TimeSliced | Mode::Cumux | Mode::CumuxOwn => CUMUX_CLIENTS,
        }
    }

    /// What it keeps apart when several share.
    #[must_use]
    pub fn isolation(self) -> Isolation {
        match self {
            Mode::Exclusive => Isolation::Hard,
            Mode::TimeSliced | Mode::Cumux | Mode::CumuxOwn => Isolation::Faults,
            Mode::Mps | Mode::Streams => Isolation::None,
        }
    }

    /// What a fault of one program takes down.
    #[must_use]
    pub fn fault(self) -> &'static str {
        match self {
            Mode::Exclusive | Mode::TimeSliced | Mode::CumuxOwn => "the faulting program",
            Mode::Streams => "all: they are one process",
            Mode::Mps => "all clients of the server",
            Mode::Cumux => "the faulting program; the others pause (0.1 to 2 s on a real card)",
        }
    }

    /// What must be restarted to change it.
    #[must_use]
    pub fn change(self) -> &'static str {
        match self {
            Mode::Exclusive => "the program that moves",
            Mode::Streams => "the process, so all",
            Mode::TimeSliced => "nothing on the machine; under Kubernetes the device plugin",
            Mode::Mps => "a client, to change its percentage or memory limit",
            Mode::Cumux | Mode::CumuxOwn => "nothing: set-share and move act on running programs",
        }
    }

    /// What breaks where it was the wrong choice.
    #[must_use]
    pub fn breaks(self) -> &'static str {
        match self {
            Mode::Exclusive => "most of each card stays idle",
            Mode::Streams => "the programs must become one; one fault or leak is everybody's",
            Mode::TimeSliced => "one program works at a time: every request waits for the turns of the others, and each context takes half a gigabyte",
            Mode::Mps => "one fault ends every program of the server, and no memory is limited unless a limit is set for each client",
            Mode::Cumux => {
                "on a real card a stray write can reach another program's memory, and a kernel that overwrites its own return address can end those with kernels on the card"
            }
            Mode::CumuxOwn => "programs share by time as without it, and each executor takes half a gigabyte",
        }
    }
}
