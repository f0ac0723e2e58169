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

#[derive(Debug)]
struct Queue<W> {
    /// Its first work is under way.
    busy: bool,
    items: VecDeque<Item<W>>,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Queue { busy: false, items: VecDeque::new() }
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
    /// Lines whose first item may be able to begin.
    due: VecDeque<Line>,
    streams: HashSet<u64>,
    events: HashMap<u64, Event>,
    /// Handles and single launches are numbered together.
    next: u64,
}

impl<W> Default for Family<W> {
    fn default() -> Self {
        let (lines, tail, due) = (HashMap::new(), Queue::default(), VecDeque::new());
        Family { lines, tail, due, streams: HashSet::new(), events: HashMap::new(), next: FIRST_HANDLE }
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
            _ => Err(errors::INVALID_HANDLE),
        }
    }

    pub(super) fn create_stream(&mut self) -> u64 {
        let stream = self.next_number();
        self.streams.insert(stream);
        stream
    }

    /// # Errors
    /// There is no such stream.
    pub(super) fn destroy_stream(&mut self, stream: u64) -> Result<(), u32> {
        if self.streams.remove(&stream) { Ok(()) } else { Err(errors::INVALID_HANDLE) }
    }

    pub(super) fn create_event(&mut self) -> u64 {
        let event = self.next_number();
        self.events.insert(event, Event::default());
        event
    }

    /// # Errors
    /// There is no such event.
    pub(super) fn destroy_event(&mut self, event: u64) -> Result<(), u32> {
        // Who waits for it goes on all the same.
        if self.events.remove(&event).is_none() {
            return Err(errors::INVALID_HANDLE);
        }
        self.due.extend(self.lines.keys().copied());
        Ok(())
    }

    /// # Errors
    /// There is no such event, or the line has no order that an event could have.
    pub(super) fn record(&mut self, line: Line, event: u64) -> Result<(), u32> {
        if matches!(line, Line::Single(_) | Line::Tail) {
            return Err(errors::INVALID_VALUE);
        }
        let found = self.events.get_mut(&event).ok_or(errors::INVALID_HANDLE)?;
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
        let number = self.events.get(&event).ok_or(errors::INVALID_HANDLE)?.recorded;
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
        let queue = self.lines.entry(line).or_default();
        queue.items.push_back(item);
        if !queue.busy {
            self.due.push_back(line);
        }
    }

    /// The next work that may begin. It is under way until [`ended`](Self::ended) says otherwise.
    /// `blocks_done`: those of the grid are.
    pub(super) fn take(&mut self, blocks_done: bool) -> Option<(Line, W)> {
        while let Some(line) = self.due.pop_front() {
            if let Some(work) = self.take_of(line) {
                return Some((line, work));
            }
        }
        if !blocks_done || !self.lines.is_empty() || self.tail.busy {
            return None;
        }
        match self.tail.items.pop_front()? {
            Item::Work(work) => {
                self.tail.busy = true;
                Some((Line::Tail, work))
            }
            Item::Record(..) | Item::Await(..) => None,
        }
    }

    /// The work at the head of a line, if it may begin.
    fn take_of(&mut self, line: Line) -> Option<W> {
        loop {
            let queue = self.lines.get_mut(&line).filter(|queue| !queue.busy)?;
            match queue.items.pop_front() {
                Some(Item::Work(work)) => {
                    queue.busy = true;
                    return Some(work);
                }
                Some(Item::Record(event, number)) => {
                    if let Some(event) = self.events.get_mut(&event) {
                        event.happened = event.happened.max(number);
                    }
                    self.due.extend(self.lines.iter().filter(|(_, queue)| matches!(queue.items.front(), Some(Item::Await(..)))).map(|(line, _)| *line));
                }
                Some(Item::Await(event, number)) => {
                    if self.events.get(&event).is_some_and(|event| event.happened < number) {
                        queue.items.push_front(Item::Await(event, number));
                        return None;
                    }
                }
                None => {
                    self.lines.remove(&line);
                    return None;
                }
            }
        }
    }

    /// The work that was under way in a line is over.
    pub(super) fn ended(&mut self, line: Line) {
        match self.lines.get_mut(&line) {
            _ if line == Line::Tail => self.tail.busy = false,
            Some(queue) => {
                queue.busy = false;
                self.due.push_back(line);
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
        self.lines.is_empty() && self.tail.items.is_empty() && !self.tail.busy
    }

    /// Whether something may be able to begin.
    pub(super) fn is_due(&self, blocks_done: bool) -> bool {
        !self.due.is_empty() || (blocks_done && self.lines.is_empty() && !self.tail.busy && !self.tail.items.is_empty())
    }

    /// Gives up all work that is not under way. Returns how much that was.
    pub(super) fn abandon(&mut self) -> usize {
        let mut count = 0;
        for queue in self.lines.values_mut().chain([&mut self.tail]) {
            count += queue.items.iter().filter(|item| matches!(item, Item::Work(_))).count();
            queue.items.clear();
        }
        self.lines.retain(|_, queue| queue.busy);
        count
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
        let stream = family.create_stream();
        for (block, stream, work) in [(0, TAIL, "t1"), (0, DEFAULT, "a1"), (0, 1, "a2"), (1, DEFAULT, "b1"), (0, stream, "s1"), (1, stream, "s2"), (1, TAIL, "t2")] {
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
        let event = family.create_event();
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
        // An event that is destroyed holds nobody.
        family.record(other, event).unwrap();
        family.wait_for(line, event).unwrap();
        family.push(line, "third");
        assert_eq!(begin(&mut family, false), []);
        family.destroy_event(event).unwrap();
        assert_eq!(begin(&mut family, false), [(line, "third")]);
        family.ended(line);
        family.ended(other);
        assert!(begin(&mut family, true).is_empty() && family.is_over());
    }

    #[test]
    fn handles_of_nobody_are_refused() {
        let mut family = Family::<()>::default();
        assert_eq!(family.line(0, 0x1001), Err(errors::INVALID_HANDLE));
        let (stream, event) = (family.create_stream(), family.create_event());
        assert!(family.line(0, stream).is_ok() && family.line(0, event).is_err());
        assert_eq!((family.destroy_stream(stream), family.destroy_stream(stream)), (Ok(()), Err(errors::INVALID_HANDLE)));
        assert_eq!((family.record(Line::Tail, event), family.wait_for(Line::Single(1), event)), (Err(errors::INVALID_VALUE), Err(errors::INVALID_VALUE)));
        assert_eq!((family.record(Line::OfBlock(0), stream), family.destroy_event(stream)), (Err(errors::INVALID_HANDLE), Err(errors::INVALID_HANDLE)));
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
        assert_eq!(family.abandon(), 3);
        assert!(!family.is_over());
        family.ended(line);
        assert!(family.take(true).is_none() && family.is_over());
    }
}
