//! The streams of a card.

use super::Card;
use crate::context::{ClientStream, Urgency};
use crate::engine::{Message, carry, put_down};
use cumux_device::{Carried, ClientId, DeviceError, Queues, StreamId, Work};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The priority of streams that yield to others.
const LEAST_URGENT: i32 = 0;

impl Queues for Card {
    fn create_stream(&self, client: ClientId, priority: i32) -> Result<StreamId, DeviceError> {
        self.create_stream_in(client, 0, priority)
    }

    fn create_stream_in(&self, client: ClientId, partition: u32, priority: i32) -> Result<StreamId, DeviceError> {
        let client = self.client(client)?;
        let (least, greatest) = self.shared.driver.priorities();
        let id = StreamId(self.next_stream.fetch_add(1, Ordering::Relaxed));
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
        mailbox.send_all(work.drain(..).map(|(token, work)| Message::Submit(stream, token, work)));
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
