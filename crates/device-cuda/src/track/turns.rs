//! Whose kernels may print.
//!
//! The driver has one buffer for the text that kernels print, and does not say whose text it is. So
//! the kernels of one client at a time may print: kernels of others that may print are held back
//! until those have ended and their text was fetched. Clients take turns in the order in which they
//! asked. There is one buffer for each card of the process, and one standard output for all, so the
//! turns are those of the process.
//!
//! ```text
//!         begin                     the text of its last kernel was fetched
//! Free ──────────▶ Held by a client ───────────────────────────────────────▶ Free
//!                                                        the first that waits is woken
//! ```

use cumux_device::ClientId;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Wakes the engine of a client whose turn it is.
type Wake = Arc<dyn Fn(ClientId) + Send + Sync>;

/// A client of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Printer {
    /// The number of the card's [`Printing`] in this process.
    card: u64,
    client: ClientId,
}

/// The client whose kernels may print.
struct Holder {
    printer: Printer,
    since: Instant,
    /// Its kernels whose text was not fetched yet. At least one.
    kernels: usize,
    notice: Notice,
}

/// Whether it was noticed that a client holds the turn for too long.
#[derive(PartialEq, Eq)]
enum Notice {
    Due,
    Given,
}

#[derive(Default)]
struct State {
    holder: Option<Holder>,
    /// Those that wait, each once, in the order in which they asked.
    waiting: VecDeque<(Printer, Wake)>,
    /// How many cards were opened.
    cards: u64,
}

/// The turns of a process. Lock 8 of the crate's order, held alone: engines are woken after it was
/// released.
static TURNS: Mutex<State> = Mutex::new(State { holder: None, waiting: VecDeque::new(), cards: 0 });

/// The turns of the process, as the engines of one card use them.
#[derive(Clone)]
pub(crate) struct Printing {
    turns: &'static Mutex<State>,
    card: u64,
    wake: Wake,
}

impl Printing {
    /// For the engines of a card. `wake` notifies the engine of a client whose turn it is.
    pub(crate) fn new(wake: Wake) -> Printing {
        Printing::with_turns(&TURNS, wake)
    }

    fn with_turns(turns: &'static Mutex<State>, wake: Wake) -> Printing {
        let mut state = turns.lock();
        state.cards += 1;
        Printing { turns, card: state.cards, wake }
    }

    fn printer(&self, client: ClientId) -> Printer {
        Printer { card: self.card, client }
    }

    /// Asks for the turn, for one kernel of this client. If the result is true, the kernel may be
    /// launched, and [`Printing::end`] is due once its text was fetched. Else the client's engine
    /// will be woken, and asks again or calls [`Printing::leave`].
    pub(crate) fn begin(&self, client: ClientId) -> bool {
        let printer = self.printer(client);
        let mut state = self.turns.lock();
        let State { holder, waiting, .. } = &mut *state;
        let is_next = waiting.front().is_none_or(|(first, _)| *first == printer);
        match holder {
            // Others wait: it asks again at the end of the queue.
            Some(holder) if holder.printer == printer && waiting.is_empty() => {
                holder.kernels += 1;
                true
            }
            None if is_next => {
                waiting.pop_front();
                *holder = Some(Holder { printer, since: Instant::now(), kernels: 1, notice: Notice::Due });
                true
            }
            _ => {
                if waiting.iter().all(|(waiter, _)| *waiter != printer) {
                    waiting.push_back((printer, self.wake.clone()));
                }
                false
            }
        }
    }

    /// The text of this many kernels of the client was fetched, or they were not launched after
    /// all.
    pub(crate) fn end(&self, client: ClientId, kernels: usize) {
        let mut state = self.turns.lock();
        let Some(holder) = state.holder.as_mut().filter(|holder| holder.printer == self.printer(client)) else { return };
        holder.kernels = holder.kernels.saturating_sub(kernels);
        if holder.kernels == 0 {
            state.holder = None;
        }
        wake_next(state);
    }

    /// The client does not wait any more.
    pub(crate) fn leave(&self, client: ClientId) {
        let mut state = self.turns.lock();
        let printer = self.printer(client);
        state.waiting.retain(|(waiter, _)| *waiter != printer);
        wake_next(state);
    }

    /// The client of this card that has held the turn for longer than this while others wait. It is
    /// returned once.
    pub(crate) fn notice_blocker(&self, longer_than: Duration) -> Option<ClientId> {
        let mut state = self.turns.lock();
        let State { holder, waiting, .. } = &mut *state;
        let blocks = |holder: &&mut Holder| {
            holder.printer.card == self.card && holder.notice == Notice::Due && !waiting.is_empty() && holder.since.elapsed() > longer_than
        };
        let holder = holder.as_mut().filter(blocks)?;
        holder.notice = Notice::Given;
        Some(holder.printer.client)
    }
}

/// Wakes the first client that waits, if the turn is free. It may be woken more than once.
fn wake_next(state: parking_lot::MutexGuard<'_, State>) {
    let next = if state.holder.is_none() { state.waiting.front().cloned() } else { None };
    drop(state);
    if let Some((printer, wake)) = next {
        wake(printer.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A card's turns among themselves, and who was woken.
    fn card(turns: &'static Mutex<State>) -> (Printing, crossbeam_channel::Receiver<ClientId>) {
        let (sender, woken) = crossbeam_channel::unbounded();
        (Printing::with_turns(turns, Arc::new(move |client| sender.send(client).expect("the test listens"))), woken)
    }

    fn turns() -> &'static Mutex<State> {
        Box::leak(Box::default())
    }

    #[test]
    fn one_client_at_a_time_prints_and_the_first_that_waits_is_next() {
        let (printing, woken) = card(turns());
        assert!(printing.begin(1) && printing.begin(1), "nobody else prints");
        assert!(!printing.begin(2) && !printing.begin(3) && !printing.begin(2));
        assert!(!printing.begin(1), "others wait, so it takes its turn after them");
        printing.end(1, 1);
        assert!(woken.is_empty(), "the text of one of its kernels is missing");
        printing.end(1, 1);
        assert_eq!(woken.try_recv(), Ok(2));
        assert!(!printing.begin(3), "2 is next");
        assert!(printing.begin(2));
        printing.end(2, 1);
        assert_eq!(woken.try_recv(), Ok(3));
        printing.leave(3);
        assert_eq!(woken.try_recv(), Ok(1), "3 has left");
        assert!(printing.begin(1));
        printing.end(1, 1);
        assert!(woken.is_empty() && printing.begin(5));
    }

    #[test]
    fn clients_of_two_cards_take_turns_too() {
        let turns = turns();
        let ((first, woken_first), (second, woken_second)) = (card(turns), card(turns));
        assert!(first.begin(1) && !second.begin(1), "the same number on another card is another client");
        second.end(1, 1);
        assert!(!second.begin(1), "it has not ended what it does not hold");
        first.end(1, 1);
        assert_eq!((woken_first.len(), woken_second.try_recv()), (0, Ok(1)));
        assert!(second.begin(1));
    }

    #[test]
    fn who_blocks_others_is_noticed_once_by_its_card() {
        let turns = turns();
        let ((printing, _), (other, _)) = (card(turns), card(turns));
        assert!(printing.begin(1));
        assert_eq!(printing.notice_blocker(Duration::ZERO), None, "nobody waits");
        assert!(!printing.begin(2));
        assert_eq!((printing.notice_blocker(Duration::MAX), other.notice_blocker(Duration::ZERO)), (None, None));
        assert_eq!((printing.notice_blocker(Duration::ZERO), printing.notice_blocker(Duration::ZERO)), (Some(1), None));
    }
}
