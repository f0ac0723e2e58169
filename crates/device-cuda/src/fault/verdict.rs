//! Whose kernel has broken the context, and how that was found out. Pure.
//!
//! Two kinds of evidence. *Stillness*: the card holds a faulting kernel until the driver begins to
//! handle the fault, 40 ms and more later, so at the driver's message the culprit's stream has not
//! moved for that long, while short kernels of others have. *Code*: the core dump says in which
//! function an exception occurred, or, for a trap, which kernels were on the card. Both were
//! measured (`docs/decisions/0112`).
//!
//! The dump is asked first, because it names the code. Stillness decides between clients that run
//! the same code, and decides alone where no dump can be had in time.

use super::dump::Dump;
use super::{CudaError, Suspects};
use crate::fault::Blame;
use cumux_device::ClientId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Milliseconds for which the culprit's stream has not moved at the driver's message, at least.
pub(crate) const STILL_MS: u64 = 40;

/// A kernel that was launched at least once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownKernel {
    /// The kernel's name in its image.
    pub name: Arc<str>,
    /// The driver's handle of the kernel.
    pub handle: u64,
    /// The driver's handle of its module.
    pub module: u64,
    /// True if the kernel may fail an assertion.
    pub asserts: bool,
    /// Who has launched it, of the clients whom the engine serves.
    pub launchers: Launchers,
}

/// Who has launched a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Launchers {
    /// This client alone.
    One(ClientId),
    /// Several clients.
    Several,
}

/// A kernel in flight when the driver announced the fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlyingKernel {
    /// Its client.
    pub client: ClientId,
    /// The client's number for the launch.
    pub token: u64,
    /// What is known of the kernel.
    pub kernel: KnownKernel,
    /// True if nothing in its driver stream is before it but kernels with the same fence. Only such
    /// a kernel can have begun.
    pub may_run: bool,
    /// Milliseconds for which its driver stream had not moved.
    pub still_ms: u64,
    /// True if its fence has not been reached yet.
    pub unfinished: bool,
}

/// What decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The dump names a function, and one client was running it.
    Code,
    /// The dump names a function that nobody had in flight any more when the driver reported the
    /// fault. The culprit is who alone has ever launched it; with several, it is not known.
    CodeOfThePast,
    /// Several clients were running the function that the dump names, and the stream of one of them
    /// had not moved.
    CodeAndStillness,
    /// The stream of one client had not moved.
    Stillness,
    /// All work but that of one client has been completed.
    Unfinished,
    /// Several clients can have caused the fault, and nothing tells them apart.
    CannotTell,
    /// The fault was another card's, and the driver has broken this card's context, too.
    AnotherCard,
}

impl Rule {
    /// How the verdict was reached, as the end of a sentence.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Rule::Code => "the core dump names the kernel",
            Rule::CodeOfThePast => "the core dump names the kernel, which had seemed to be completed",
            Rule::CodeAndStillness => "the core dump names the kernel, and of the clients that ran it only this one's stream stood still",
            Rule::Stillness => "its stream alone stood still before the fault was reported",
            Rule::Unfinished => "all other clients' work was completed",
            Rule::CannotTell => "the card does not say whose kernel it was",
            Rule::AnotherCard => "it was a kernel on another card",
        }
    }
}

/// Who has broken the context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The culprit, or all clients that can have been it.
    pub suspects: Suspects,
    /// What decided.
    pub rule: Rule,
    /// The error, if the dump says.
    pub error: Option<CudaError>,
}

impl Verdict {
    /// The verdict of a card whose context was broken by another card's fault.
    pub(crate) fn of_another_card(error: Option<CudaError>) -> Verdict {
        Verdict { suspects: Suspects::default(), rule: Rule::AnotherCard, error }
    }

    /// The same where an engine was silent, whose clients' kernels are missing: nothing is certain.
    pub(crate) fn of_some(self) -> Verdict {
        Verdict { rule: Rule::CannotTell, ..self }
    }

    /// True if all others are innocent: there is exactly one suspect, or the culprit is none of the
    /// clients that have kernels in flight.
    pub(crate) fn is_certain(&self) -> bool {
        match self.rule {
            Rule::CannotTell => false,
            Rule::CodeOfThePast | Rule::AnotherCard => true,
            Rule::Code | Rule::CodeAndStillness | Rule::Stillness | Rule::Unfinished => self.suspects.len() == 1,
        }
    }
}

/// Decides by what is known now. `known`: all kernels that were launched, of all engines; `None` if
/// an engine was silent, whose kernels are missing among `flying`, too. `asserted`: the driver has
/// printed a failed assertion.
pub(crate) fn decide(flying: &[FlyingKernel], known: Option<&[KnownKernel]>, dump: Option<&Dump>, asserted: bool) -> Verdict {
    let error = dump.map(|dump| if asserted { CudaError::ASSERT } else { dump.error() }).or(asserted.then_some(CudaError::ASSERT));
    let running: Vec<&FlyingKernel> = flying.iter().filter(|kernel| kernel.may_run && (error != Some(CudaError::ASSERT) || kernel.kernel.asserts)).collect();
    let verdict = |kernels: &[&FlyingKernel], rule| Verdict { suspects: accuse(kernels), rule, error };
    let coded: Vec<&FlyingKernel> = dump.map_or_else(Vec::new, |dump| running.iter().copied().filter(|flying| is_named(dump, &flying.kernel)).collect());
    if clients(&coded) == 1 {
        return verdict(&coded, Rule::Code);
    }
    if let Some(known) = known
        && let Some(dump) = dump.filter(|dump| coded.is_empty() && names_a_place(dump))
    {
        // Its fence was reached before the driver's message. That was seen, though rarely, with
        // stores whose fault was found when the warp had ended. Nobody in flight runs that code.
        let mut suspects = Suspects::default();
        for (client, kernel) in list_sole_launchers(dump, known) {
            suspects.entry(client).or_default().add_kernel(&kernel.name, Blame::Possible);
        }
        return Verdict { suspects, rule: Rule::CodeOfThePast, error };
    }
    // A dump that names no code says nothing about who it was.
    let (named, candidates) = if coded.is_empty() { (false, running) } else { (true, coded) };
    let still: Vec<&FlyingKernel> = candidates.iter().copied().filter(|kernel| kernel.still_ms >= STILL_MS).collect();
    if clients(&still) == 1 {
        return verdict(&still, if named { Rule::CodeAndStillness } else { Rule::Stillness });
    }
    let candidates = if still.is_empty() { candidates } else { still };
    let unfinished: Vec<&FlyingKernel> = candidates.iter().copied().filter(|kernel| kernel.unfinished).collect();
    if clients(&unfinished) == 1 {
        return verdict(&unfinished, Rule::Unfinished);
    }
    verdict(&candidates, Rule::CannotTell)
}

fn clients(kernels: &[&FlyingKernel]) -> usize {
    kernels.iter().map(|kernel| kernel.client).collect::<BTreeSet<_>>().len()
}

fn accuse(kernels: &[&FlyingKernel]) -> Suspects {
    let mut suspects = Suspects::default();
    for kernel in kernels {
        suspects.entry(kernel.client).or_default().add_kernel(&kernel.kernel.name, Blame::Possible);
    }
    suspects
}

/// True if the dump says that an exception occurred in this kernel, or, without exceptions, that
/// the kernel was on the card. A function that is no kernel may be called by any kernel of its
/// module.
fn is_named(dump: &Dump, kernel: &KnownKernel) -> bool {
    if dump.exceptions.is_empty() {
        return dump.resident.contains(&kernel.handle);
    }
    dump.exceptions.iter().any(|exception| match exception.pc.and_then(|pc| dump.place_of(pc)) {
        Some(place) => place.module == kernel.module && (place.function == *kernel.name || !place.is_kernel),
        None => exception.kernels.contains(&kernel.handle),
    })
}

/// True if the dump says in which function an exception occurred.
fn names_a_place(dump: &Dump) -> bool {
    dump.exceptions.iter().any(|exception| exception.pc.and_then(|pc| dump.place_of(pc)).is_some())
}

/// The one client that has ever launched the code that the dump names, with its kernels; nothing if
/// several have. The code is the kernel itself, or any of its module that can have called the
/// function.
fn list_sole_launchers<'a>(dump: &Dump, known: &'a [KnownKernel]) -> Vec<(ClientId, &'a KnownKernel)> {
    let places: Vec<_> = dump.exceptions.iter().filter_map(|exception| dump.place_of(exception.pc?)).collect();
    let is_meant = |kernel: &&KnownKernel| places.iter().any(|place| kernel.module == place.module && (place.function == *kernel.name || !place.is_kernel));
    let meant = known.iter().filter(is_meant).map(|kernel| match kernel.launchers {
        Launchers::One(client) => Some((client, kernel)),
        Launchers::Several => None,
    });
    let launched: Vec<_> = meant.collect::<Option<_>>().unwrap_or_default();
    let clients: BTreeSet<ClientId> = launched.iter().map(|(client, _)| *client).collect();
    if clients.len() > 1 { Vec::new() } else { launched }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::dump::Exception;
    use proptest::prelude::*;

    fn kernel(client: ClientId, handle: u64, still_ms: u64) -> FlyingKernel {
        let kernel = KnownKernel { name: format!("k{handle}").into(), handle, module: handle / 16, asserts: false, launchers: Launchers::One(client) };
        FlyingKernel { client, token: 1, kernel, may_run: true, still_ms, unfinished: false }
    }

    fn trap_in(handles: &[u64]) -> Dump {
        let mut dump = Dump::default();
        dump.resident.extend(handles);
        dump
    }

    fn decide_now(flying: &[FlyingKernel], dump: Option<&Dump>, asserted: bool) -> Verdict {
        decide(flying, Some(&[]), dump, asserted)
    }

    fn named(verdict: &Verdict) -> Vec<ClientId> {
        verdict.suspects.keys().copied().collect()
    }

    #[test]
    fn stillness_decides_without_a_dump() {
        let verdict = decide_now(&[kernel(1, 16, 3), kernel(2, 32, 55), kernel(3, 48, 39)], None, false);
        assert_eq!((named(&verdict), verdict.rule, verdict.error), (vec![2], Rule::Stillness, None));
        assert!(verdict.is_certain() && !verdict.of_some().is_certain(), "an engine may have had another one");
        let queued = FlyingKernel { may_run: false, ..kernel(3, 48, 99) };
        assert_eq!(named(&decide_now(&[kernel(2, 32, 55), queued], None, false)), [2], "what waits in its stream has not begun");
    }

    #[test]
    fn the_dump_outweighs_stillness() {
        let all = [kernel(1, 16, 80), kernel(2, 32, 55)];
        let verdict = decide_now(&all, Some(&trap_in(&[32])), false);
        assert_eq!((named(&verdict), verdict.rule, verdict.error), (vec![2], Rule::Code, Some(CudaError::LAUNCH_FAILED)));
        let same = [kernel(1, 16, 3), kernel(2, 16, 55)];
        let verdict = decide_now(&same, Some(&trap_in(&[16])), false);
        assert_eq!((named(&verdict), verdict.rule), (vec![2], Rule::CodeAndStillness));
        let silent = decide_now(&all[1..], Some(&trap_in(&[999])), false);
        assert_eq!((named(&silent), silent.rule), (vec![2], Rule::Stillness), "a dump that names nobody in flight");
        let exception = Exception { sm: 1, code: 6, pc: None, kernels: vec![16] };
        let mut dump = trap_in(&[16, 32]);
        dump.exceptions.push(exception);
        let verdict = decide_now(&all, Some(&dump), false);
        assert_eq!((named(&verdict), verdict.error), (vec![1], Some(CudaError::MISALIGNED_ADDRESS)));
    }

    fn fault_at(pc: u64) -> Dump {
        let mut dump = Dump::default();
        dump.exceptions.push(Exception { sm: 1, code: 14, pc: Some(pc), kernels: Vec::new() });
        dump.add_function(0x1000..0x1100, 1, "k16", true);
        dump.add_function(0x1100..0x1200, 1, "helper", false);
        dump.add_function(0x2000..0x2100, 2, "k32", true);
        dump
    }

    #[test]
    fn who_runs_other_code_than_the_dump_names_is_innocent() {
        let others = [kernel(2, 32, 80), kernel(3, 48, 55), kernel(4, 64, 90)];
        let known: Vec<KnownKernel> = others.iter().chain([&kernel(1, 16, 0)]).map(|flying| flying.kernel.clone()).collect();
        let verdict = decide(&others, Some(&known), Some(&fault_at(0x1010)), false);
        assert_eq!((named(&verdict), verdict.rule, verdict.error), (vec![1], Rule::CodeOfThePast, Some(CudaError::ILLEGAL_ADDRESS)));
        assert!(verdict.is_certain());
        let unknown = decide(&others, Some(&known[..3]), Some(&fault_at(0x1010)), false);
        assert!(unknown.suspects.is_empty() && unknown.is_certain(), "its client has gone, and so has what was known of it");
        let called = decide(&others, Some(&known), Some(&fault_at(0x1110)), false);
        assert_eq!(named(&called), [1], "any kernel of the module can have called the function");
        let two = [kernel(1, 16, 0).kernel, kernel(9, 16, 0).kernel];
        let shared = [KnownKernel { launchers: Launchers::Several, ..two[0].clone() }];
        for launched_by_several in [&two[..], &shared] {
            let verdict = decide(&others, Some(launched_by_several), Some(&fault_at(0x1010)), false);
            assert!(verdict.suspects.is_empty() && verdict.is_certain(), "one of them is innocent: {verdict:?}");
        }
        let silent = decide(&others, None, Some(&fault_at(0x1010)), false);
        assert_eq!((named(&silent), silent.rule), (vec![2, 3, 4], Rule::CannotTell), "whom the silent engine serves may run that code");
        let running = decide(&others, Some(&known), Some(&fault_at(0x2010)), false);
        assert_eq!((named(&running), running.rule), (vec![2], Rule::Code));
        let nowhere = decide(&others[..1], Some(&known), Some(&fault_at(0x9000)), false);
        assert_eq!((named(&nowhere), nowhere.rule), (vec![2], Rule::Stillness), "no function is known to lie there");
    }

    #[test]
    fn who_alone_is_not_finished_is_the_culprit() {
        let open = FlyingKernel { unfinished: true, ..kernel(2, 32, 60) };
        let verdict = decide_now(&[kernel(1, 16, 60), open.clone()], None, false);
        assert_eq!((named(&verdict), verdict.rule), (vec![2], Rule::Unfinished));
        let verdict = decide_now(&[FlyingKernel { client: 1, ..open.clone() }, open], None, false);
        assert_eq!((named(&verdict), verdict.rule, verdict.is_certain()), (vec![1, 2], Rule::CannotTell, false));
    }

    #[test]
    fn an_assertion_accuses_only_who_asserts() {
        let mut asserting = kernel(2, 32, 55);
        asserting.kernel.asserts = true;
        let verdict = decide_now(&[kernel(1, 16, 80), asserting], None, true);
        assert_eq!((named(&verdict), verdict.error), (vec![2], Some(CudaError::ASSERT)));
    }

    proptest! {
        #[test]
        fn nobody_without_a_kernel_that_may_run_is_accused(
            flying in proptest::collection::vec((1_u32..6, 1_u64..64, 0_u64..90, any::<bool>(), any::<bool>(), any::<bool>()), 0..12),
            resident in proptest::collection::vec(1_u64..64, 0..4),
            with_dump in any::<bool>(),
            asserted in any::<bool>(),
        ) {
            let flying: Vec<FlyingKernel> = flying
                .into_iter()
                .map(|(client, handle, still_ms, may_run, unfinished, asserts)| {
                    let mut flying = FlyingKernel { may_run, unfinished, ..kernel(client, handle, still_ms) };
                    flying.kernel.asserts = asserts;
                    flying
                })
                .collect();
            let dump = trap_in(&resident);
            let verdict = decide_now(&flying, with_dump.then_some(&dump), asserted);
            for client in named(&verdict) {
                prop_assert!(flying.iter().any(|kernel| kernel.client == client && kernel.may_run));
            }
            let candidates: BTreeSet<ClientId> = flying.iter().filter(|kernel| kernel.may_run && (!asserted || kernel.kernel.asserts)).map(|kernel| kernel.client).collect();
            prop_assert_eq!(verdict.suspects.is_empty(), candidates.is_empty());
        }

        /// With a dump that names a place: the culprit ran that code now or, if nobody does, alone
        /// in the past. Who never ran it is accused by nothing but a dump that cannot be read.
        #[test]
        fn a_named_place_accuses_only_who_has_launched_its_code(
            flying in proptest::collection::vec((1_u32..5, 1_u64..5, 0_u64..90, any::<bool>(), any::<bool>()), 0..8),
            past in proptest::collection::vec((1_u32..5, 1_u64..5, any::<bool>()), 0..8),
            place in 1_u64..5,
            answered in any::<bool>(),
        ) {
            let code = |client, number: u64| FlyingKernel { unfinished: true, ..kernel(client, number * 16, 0) };
            let flying: Vec<FlyingKernel> = flying
                .into_iter()
                .map(|(client, number, still_ms, may_run, unfinished)| FlyingKernel { still_ms, may_run, unfinished, ..code(client, number) })
                .collect();
            let past = past.into_iter().map(|(client, number, several)| {
                let launchers = if several { Launchers::Several } else { Launchers::One(client) };
                KnownKernel { launchers, ..code(client, number).kernel }
            });
            let known: Vec<KnownKernel> = flying.iter().map(|flying| flying.kernel.clone()).chain(past).collect();
            let mut dump = Dump::default();
            dump.exceptions.push(Exception { sm: 1, code: 14, pc: Some(place << 12), kernels: Vec::new() });
            for number in 1..5 {
                dump.add_function(number << 12..(number << 12) + 256, number, &format!("k{}", number * 16), true);
            }
            let verdict = decide(&flying, answered.then_some(&known[..]), Some(&dump), false);
            let ran_now: BTreeSet<ClientId> = flying.iter().filter(|flying| flying.may_run && flying.kernel.module == place).map(|flying| flying.client).collect();
            let launchers: Vec<Launchers> = known.iter().filter(|kernel| kernel.module == place).map(|kernel| kernel.launchers).collect();
            if !ran_now.is_empty() {
                prop_assert!(named(&verdict).iter().all(|client| ran_now.contains(client)) && !verdict.suspects.is_empty());
            } else if answered {
                prop_assert_eq!(verdict.rule, Rule::CodeOfThePast);
                for client in named(&verdict) {
                    prop_assert!(launchers.iter().all(|launcher| *launcher == Launchers::One(client)));
                }
            } else {
                prop_assert!(verdict.rule != Rule::CodeOfThePast && !verdict.is_certain() || verdict.suspects.len() == 1);
            }
        }
    }
}
