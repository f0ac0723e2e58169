//! The streams of a card.
#![expect(clippy::disallowed_types, reason = "numbers streams and counts those that have gone, from any thread")]

use super::Card;
use crate::context::{ClientStream, Urgency};
use crate::engine::{Message, carry, put_down};
use cumux_device::{Carried, ClientId, DeviceError, Queues, StreamId, Work};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The priority of streams that yield to others.
const LEAST_URGENT: i32 = 0;

/// From so many pieces of work on, a list of them goes to the engine as one message. Its memory is
/// freed by another thread than the one that had it, which costs as much as moving some pieces.
const TOGETHER: usize = 8;

/// The number of the next stream, of all cards of the process: none has two meanings.
static NEXT_STREAM: AtomicU32 = AtomicU32::new(1);

/// Streams of which a thread remembers the engine.
const REMEMBERED: usize = 64;

/// How many streams of a card have gone: what a thread remembers holds as long as none has since.
#[derive(Debug, Default)]
pub(super) struct Gone(AtomicU64);

impl Gone {
    /// Streams were taken out of the list of all.
    pub(super) fn note(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// A stream, its card, how many streams of that had gone, and its engine.
#[derive(Clone, Copy)]
struct Known {
    card: usize,
    gone: u64,
    stream: StreamId,
    engine: usize,
}

thread_local! {
    /// Streams that this thread has submitted work to: a lane does so again and again, and the list
    /// of all streams has one lock for all lanes.
    static KNOWN: [Cell<Option<Known>>; REMEMBERED] = const { [const { Cell::new(None) }; REMEMBERED] };
}

impl Card {
    /// The number of the engine that runs a stream's work.
    fn engine_of(&self, stream: StreamId) -> Result<usize, DeviceError> {
        self.require_context()?;
        let (card, gone) = (std::ptr::from_ref(self).addr(), self.gone.0.load(Ordering::Acquire));
        let is_it = |known: &Known| known.card == card && known.gone == gone && known.stream == stream;
        KNOWN.with(|known| {
            let place = &known[stream.0 as usize % REMEMBERED];
            if let Some(known) = place.get().filter(is_it) {
                return Ok(known.engine);
            }
            let engine = self.streams.read().get(&stream).map(|stream| stream.client.engine);
            let engine = engine.ok_or_else(|| DeviceError::Invalid(format!("there is no stream {}", stream.0)))?;
            place.set(Some(Known { card, gone, stream, engine }));
            Ok(engine)
        })
    }
}

impl Queues for Card {
    fn create_stream(&self, client: ClientId, priority: i32) -> Result<StreamId, DeviceError> {
        self.create_stream_in(client, 0, priority)
    }

    fn create_stream_in(&self, client: ClientId, partition: u32, priority: i32) -> Result<StreamId, DeviceError> {
        let client = self.client(client)?;
        let (least, greatest) = self.shared.driver.priorities();
        let id = StreamId(NEXT_STREAM.fetch_add(1, Ordering::Relaxed));
        let priority = match client.urgency {
            Urgency::Normal => priority,
            Urgency::BelowNormal => LEAST_URGENT,
        };
        let stream = Arc::new(ClientStream::new(id, client, partition, priority.clamp(greatest.min(least), least.max(greatest))));
        self.shared.mailboxes.of(stream.client.engine).send(Message::AddStream(stream.clone()));
        self.streams.write().insert(id, stream);
        Ok(id)
    }

    fn destroy_stream(&self, stream: StreamId) {
        let gone = self.streams.write().remove(&stream);
        self.gone.note();
        if let Some(gone) = gone {
            self.shared.mailboxes.of(gone.client.engine).send(Message::RemoveStream(stream));
        }
    }

    fn submit(&self, stream: StreamId, token: u64, work: Work) -> Result<(), DeviceError> {
        self.shared.mailboxes.of(self.engine_of(stream)?).send(Message::Submit(stream, token, work));
        Ok(())
    }

    fn submit_all(&self, stream: StreamId, work: &mut Vec<(u64, Work)>) -> Result<(), DeviceError> {
        let mailbox = self.shared.mailboxes.of(self.engine_of(stream)?);
        if work.len() < TOGETHER {
            mailbox.send_all(work.drain(..).map(|(token, work)| Message::Submit(stream, token, work)));
        } else {
            let next = Vec::with_capacity(work.len());
            mailbox.send(Message::SubmitAll(stream, std::mem::replace(work, next)));
        }
        Ok(())
    }

    fn carry(&self, lane: usize, moved: bool) -> Carried {
        match self.seats.get(lane) {
            Some(seat) if self.carried => carry(seat, &self.shared.mailboxes, lane, moved),
            _ => Carried::Nothing,
        }
    }

    fn put_down(&self) {
        put_down();
    }
}
