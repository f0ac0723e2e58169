//! What a grid has launched from the device, and in which order it runs.
//!
//! Work of one line runs one after another. A line is the default stream of a block, a stream that
//! the grid has made, or a single launch that waits for nothing (`cudaStreamFireAndForget`). When
//! the grid's blocks are done and all lines are empty, its tail launches run, one after another.
//! Only then is the grid over (CUDA C++ Programming Guide, *CUDA Dynamic Parallelism*).

use std::collections::{HashMap, HashSet, VecDeque};

use crate::exec::request::errors;

/// A stream as kernels name it: the default one.
const DEFAULT: u64 = 0;
/// `cudaStreamLegacy` and `cudaStreamPerThread` are the default one, too.
const PER_THREAD: u64 = 2;
/// `cudaStreamTailLaunch`.
const TAIL: u64 = 3;
/// `cudaStreamFireAndForget`.
const FIRE_AND_FORGET: u64 = 4;
/// Handles of streams and events are larger.
const FIRST_HANDLE: u64 = 0x1000;
/// Streams and events that a grid may make, destroyed ones included: they are kept until it is
/// over.
const MOST_HANDLES: usize = 1 << 20;

/// Work that runs in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Line {
    /// The default stream of a block, by the block's number in the grid.
    OfBlock(u64),
    /// A stream that the grid has made.
    Stream(u64),
    /// A single launch, by a number of its own.
    Single(u64),
    /// What comes after the grid.
    Tail,
}

/// Something in a line.
#[derive(Debug)]
enum Item<W> {
    Work(W),
    /// The event has happened as often as this.
    Record(u64, u64),
    /// The line goes on when the event has happened as often as this.
    Await(u64, u64),
}

/// What the head of a line does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    /// Nothing, or it waits for an event.
    Idle,
    /// It is work that may begin.
    Ready,
    /// The work before it is under way.
    Busy,
}

#[derive(Debug)]
struct Queue<W> {
    head: Head,
    items: VecDeque<Item<W>>,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Queue { head: Head::Idle, items: VecDeque::new() }
    }
}

/// How often an event was recorded, and how often it has happened.
#[derive(Debug, Default)]
struct Event {
    recorded: u64,
    happened: u64,
}

/// The lines of a grid, with work of the type `W` in them.
#[derive(Debug)]
pub(super) struct Family<W> {
    /// Those that are not empty.
    lines: HashMap<Line, Queue<W>>,
    tail: Queue<W>,
    /// Lines whose head may begin, in the order in which they came to that.
    ready: VecDeque<Line>,
    streams: HashSet<u64>,
    events: HashMap<u64, Event>,
    /// Handles and single launches are numbered together.
    next: u64,
}

impl<W> Default for Family<W> {
    fn default() -> Self {
        let (lines, tail, ready) = (HashMap::new(), Queue::default(), VecDeque::new());
        Family { lines, tail, ready, streams: HashSet::new(), events: HashMap::new(), next: FIRST_HANDLE }
    }
}

impl<W> Family<W> {
    fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The line that a thread of a block means by a stream.
    ///
    /// # Errors
    /// The stream is none of the grid's.
    pub(super) fn line(&mut self, block: u64, stream: u64) -> Result<Line, u32> {
        match stream {
            DEFAULT..=PER_THREAD => Ok(Line::OfBlock(block)),
            TAIL => Ok(Line::Tail),
            FIRE_AND_FORGET => Ok(Line::Single(self.next_number())),
            _ if self.streams.contains(&stream) => Ok(Line::Stream(stream)),
            _ => Err(errors::INVALID_VALUE),
        }
    }

    /// # Errors
    /// The grid has made as many streams and events as it may.
    pub(super) fn create_stream(&mut self) -> Result<u64, u32> {
        let stream = self.new_handle()?;
        self.streams.insert(stream);
        Ok(stream)
    }

    /// A handle of its own: none is used again.
    fn new_handle(&mut self) -> Result<u64, u32> {
        if self.streams.len() + self.events.len() >= MOST_HANDLES {
            return Err(errors::MEMORY_ALLOCATION);
        }
        Ok(self.next_number())
    }

    /// A stream that is not used any more: a card takes work for it all the same.
    ///
    /// # Errors
    /// There is no such stream.
    pub(super) fn destroy_stream(&mut self, stream: u64) -> Result<(), u32> {
        if self.streams.contains(&stream) { Ok(()) } else { Err(errors::INVALID_VALUE) }
    }

    /// # Errors
    /// As [`create_stream`](Self::create_stream).
    pub(super) fn create_event(&mut self) -> Result<u64, u32> {
        let event = self.new_handle()?;
        self.events.insert(event, Event::default());
        Ok(event)
    }

    /// An event that is not used any more: who waits for it still does.
    ///
    /// # Errors
    /// There is no such event.
    pub(super) fn destroy_event(&mut self, event: u64) -> Result<(), u32> {
        if self.events.contains_key(&event) { Ok(()) } else { Err(errors::INVALID_VALUE) }
    }

    /// # Errors
    /// There is no such event, or the line has no order that an event could have.
    pub(super) fn record(&mut self, line: Line, event: u64) -> Result<(), u32> {
        if matches!(line, Line::Single(_) | Line::Tail) {
            return Err(errors::INVALID_VALUE);
        }
        let found = self.events.get_mut(&event).ok_or(errors::INVALID_VALUE)?;
        found.recorded += 1;
        let number = found.recorded;
        self.push_item(line, Item::Record(event, number));
        Ok(())
    }

    /// # Errors
    /// As [`record`](Self::record).
    pub(super) fn wait_for(&mut self, line: Line, event: u64) -> Result<(), u32> {
        if matches!(line, Line::Single(_) | Line::Tail) {
            return Err(errors::INVALID_VALUE);
        }
        let number = self.events.get(&event).ok_or(errors::INVALID_VALUE)?.recorded;
        self.push_item(line, Item::Await(event, number));
        Ok(())
    }

    pub(super) fn push(&mut self, line: Line, work: W) {
        self.push_item(line, Item::Work(work));
    }

    fn push_item(&mut self, line: Line, item: Item<W>) {
        if line == Line::Tail {
            self.tail.items.push_back(item);
            return;
        }
        self.lines.entry(line).or_default().items.push_back(item);
        self.advance(vec![line]);
    }

    /// Does what costs no time at the heads of lines: events happen, waits end, empty lines go.
    fn advance(&mut self, mut lines: Vec<Line>) {
        while let Some(line) = lines.pop() {
            let Some(queue) = self.lines.get_mut(&line).filter(|queue| queue.head == Head::Idle) else { continue };
            match queue.items.pop_front() {
                Some(work @ Item::Work(_)) => {
                    queue.items.push_front(work);
                    queue.head = Head::Ready;
                    self.ready.push_back(line);
                    continue;
                }
                Some(Item::Record(event, number)) => {
                    if let Some(event) = self.events.get_mut(&event) {
                        event.happened = event.happened.max(number);
                    }
                    lines.extend(self.lines.iter().filter(|(_, queue)| matches!(queue.items.front(), Some(Item::Await(..)))).map(|(line, _)| *line));
                }
                Some(Item::Await(event, number)) if self.events.get(&event).is_some_and(|event| event.happened < number) => {
                    queue.items.push_front(Item::Await(event, number));
                    continue;
                }
                Some(Item::Await(..)) => {}
                None => {
                    self.lines.remove(&line);
                    continue;
                }
            }
            lines.push(line);
        }
    }

    /// The next work that may begin. It is under way until [`ended`](Self::ended) says otherwise.
    /// `blocks_done`: those of the grid are.
    pub(super) fn take(&mut self, blocks_done: bool) -> Option<(Line, W)> {
        let (line, queue) = match self.ready.pop_front() {
            Some(line) => (line, self.lines.get_mut(&line)?),
            None if blocks_done && self.lines.is_empty() && self.tail.head != Head::Busy => (Line::Tail, &mut self.tail),
            None => return None,
        };
        let Some(Item::Work(work)) = queue.items.pop_front() else { return None };
        queue.head = Head::Busy;
        Some((line, work))
    }

    /// The work that was under way in a line is over.
    pub(super) fn ended(&mut self, line: Line) {
        match self.lines.get_mut(&line) {
            _ if line == Line::Tail => self.tail.head = Head::Idle,
            Some(queue) => {
                queue.head = Head::Idle;
                self.advance(vec![line]);
            }
            None => {}
        }
    }

    /// Whether nothing will follow the part of the tail that is under way.
    pub(super) fn is_last_tail(&self) -> bool {
        self.tail.items.is_empty()
    }

    /// Whether nothing is left.
    pub(super) fn is_over(&self) -> bool {
        self.lines.is_empty() && self.tail.items.is_empty() && self.tail.head != Head::Busy
    }

    /// Whether something may begin.
    pub(super) fn is_due(&self, blocks_done: bool) -> bool {
        !self.ready.is_empty() || (blocks_done && self.lines.is_empty() && self.tail.head != Head::Busy && !self.tail.items.is_empty())
    }

    /// Gives up all work that is not under way. Returns how much that was, and how much of it in
    /// the tail.
    pub(super) fn abandon(&mut self) -> (usize, usize) {
        let tail = std::mem::take(&mut self.tail.items).len();
        let mut count = tail;
        for queue in self.lines.values_mut() {
            count += queue.items.iter().filter(|item| matches!(item, Item::Work(_))).count();
            queue.items.clear();
        }
        self.lines.retain(|_, queue| queue.head == Head::Busy);
        self.ready.clear();
        (count, tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What begins now.
    fn begin(family: &mut Family<&'static str>, blocks_done: bool) -> Vec<(Line, &'static str)> {
        std::iter::from_fn(|| family.take(blocks_done)).collect()
    }

    #[test]
    fn each_line_is_one_after_another_and_the_tail_comes_last() {
        let mut family = Family::default();
        let stream = family.create_stream().unwrap();
        for (block, stream, work) in
            [(0, TAIL, "t1"), (0, DEFAULT, "a1"), (0, 1, "a2"), (1, DEFAULT, "b1"), (0, stream, "s1"), (1, stream, "s2"), (1, TAIL, "t2")]
        {
            let line = family.line(block, stream).unwrap();
            family.push(line, work);
        }
        let (line, other) = (family.line(0, FIRE_AND_FORGET).unwrap(), family.line(0, FIRE_AND_FORGET).unwrap());
        family.push(line, "f1");
        family.push(other, "f2");
        let begun = begin(&mut family, false);
        assert_eq!(begun.iter().map(|(_, work)| *work).collect::<Vec<_>>(), ["a1", "b1", "s1", "f1", "f2"]);
        for (line, _) in begun {
            family.ended(line);
        }
        let begun = begin(&mut family, true);
        assert_eq!(begun.iter().map(|(_, work)| *work).collect::<Vec<_>>(), ["a2", "s2"], "the tail waits for these");
        family.ended(begun[0].0);
        assert_eq!(begin(&mut family, true), []);
        family.ended(begun[1].0);
        assert_eq!(begin(&mut family, false), [], "the blocks are not done");
        assert!(family.is_due(true) && !family.is_over());
        assert_eq!(begin(&mut family, true), [(Line::Tail, "t1")]);
        assert!(!family.is_over());
        family.ended(Line::Tail);
        assert_eq!(begin(&mut family, true), [(Line::Tail, "t2")]);
        family.ended(Line::Tail);
        assert!(family.is_over() && family.take(true).is_none());
    }

    #[test]
    fn events_hold_other_lines() {
        let mut family = Family::default();
        let (line, other) = (family.line(0, 0).unwrap(), family.line(1, 0).unwrap());
        let event = family.create_event().unwrap();
        family.wait_for(other, event).unwrap();
        family.push(other, "not recorded yet: goes on");
        family.push(line, "first");
        family.record(line, event).unwrap();
        family.wait_for(other, event).unwrap();
        family.push(other, "second");
        let begun = begin(&mut family, false);
        assert_eq!(begun.len(), 2);
        family.ended(other);
        assert_eq!(begin(&mut family, false), []);
        family.ended(line);
        assert_eq!(begin(&mut family, false), [(other, "second")]);
        // An event that is destroyed meanwhile is waited for all the same.
        family.record(other, event).unwrap();
        family.wait_for(line, event).unwrap();
        family.destroy_event(event).unwrap();
        family.push(line, "third");
        assert_eq!(begin(&mut family, false), []);
        family.ended(other);
        assert_eq!(begin(&mut family, false), [(line, "third")]);
        family.ended(line);
        assert!(family.is_over() && begin(&mut family, true).is_empty());
    }

    #[test]
    fn handles_of_nobody_are_refused() {
        let mut family = Family::<()>::default();
        assert_eq!(family.line(0, 0x1001), Err(errors::INVALID_VALUE));
        let (stream, event) = (family.create_stream().unwrap(), family.create_event().unwrap());
        assert!(family.line(0, stream).is_ok() && family.line(0, event).is_err());
        assert_eq!((family.destroy_stream(stream), family.destroy_stream(event)), (Ok(()), Err(errors::INVALID_VALUE)));
        assert!(family.line(0, stream).is_ok(), "as on a card");
        assert_eq!((family.record(Line::Tail, event), family.wait_for(Line::Single(1), event)), (Err(errors::INVALID_VALUE), Err(errors::INVALID_VALUE)));
        assert_eq!((family.record(Line::OfBlock(0), stream), family.destroy_event(stream)), (Err(errors::INVALID_VALUE), Err(errors::INVALID_VALUE)));
    }

    #[test]
    fn what_is_given_up_is_counted() {
        let mut family = Family::default();
        let line = family.line(0, 0).unwrap();
        for work in ["under way", "waits", "waits, too"] {
            family.push(line, work);
        }
        family.push(Line::Tail, "tail");
        assert!(family.take(false).is_some());
        let ready = family.line(1, 0).unwrap();
        family.push(ready, "may begin");
        assert_eq!(family.abandon(), (4, 1));
        assert!(!family.is_over() && !family.is_due(true));
        family.ended(line);
        assert!(family.is_over() && family.take(true).is_none(), "over at once, though nobody asks for more");
    }
}
