//! What clients lend each other: `cuIpc…`, and memory that is exported and imported.
//!
//! The borrower has the owner's extent at the owner's address, and may touch the allocation alone.
//! It has a descriptor of the extent in the keeper itself, so whoever of the two lives longer loses
//! nothing. docs/decisions/0118 has the reasons.

use crate::error::ExecutorError;
use crate::heap::Heap;
use crate::loans::{self, Consequences, GiveBack, Lender, Lent, LoanError, Thing, Token};
use crate::memory::{ExtentNote, borrowed_key, physical_key};
use crate::objects::{Borrowed, Change, LentOut, SharedPhysical};
use crate::session::{Inner, Session};
use crate::shared::{answer, result_of};
use cumux_ring::page::Answer;
use cumux_wire::layout;
use cumux_wire::record::event_cell;
use cumux_wire::result;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Allocations that a client may lend, and that it may have open of others. Each takes room in the
/// journal.
const MOST: usize = 16_384;

/// An answer of words.
fn words(words: [u64; 3]) -> Answer {
    Answer { result: result::SUCCESS, words: [words[0], words[1], words[2], 0, 0, 0] }
}

/// What a client is told that wants to open something which it does not get.
fn code_of(error: LoanError) -> u32 {
    match error {
        LoanError::Unknown => result::INVALID_HANDLE,
        LoanError::Own => result::INVALID_CONTEXT,
        LoanError::OtherGroup => result::NOT_PERMITTED,
    }
}

impl Session {
    fn group_name(&self) -> Option<String> {
        self.config.group.as_ref().map(|membership| membership.group.clone())
    }

    /// How this session is told that it has something back: on another thread, since whoever tells
    /// it holds the lock of another session.
    fn lender(self: &Arc<Self>) -> Lender {
        let (own, shared) = (Arc::downgrade(self), Arc::downgrade(&self.shared));
        let give_back: GiveBack = Arc::new(move |address| {
            let (Some(session), Some(shared)) = (own.upgrade(), shared.upgrade()) else { return };
            if !shared.workers.run_soon(move || session.lock_then_deliver(|inner| session.end_keeping(inner, address))) {
                tracing::warn!("the system has no thread to free {address:#x}, which stays taken until its client ends");
            }
        });
        Lender { client: self.client(), give_back }
    }

    /// An allocation of this client as a loan.
    fn as_loan(&self, inner: &Inner, address: u64, bytes: u64, lent: LentOut) -> Option<Lent> {
        let extent = inner.memory.heap.extent_of(address)?;
        let thing = Thing::Allocation { kind: lent.kind, address, bytes, extent, mark: lent.mark };
        let charged = Heap::rounded(bytes)?;
        Some(Lent { thing, device_index: layout::arena_device(address), charged, group: self.group_name() })
    }

    /// Lends an allocation of the client.
    pub(crate) fn lend(self: &Arc<Self>, inner: &Inner, address: u64, kind: u32) -> (Change, Answer) {
        let refused = |code| (Change::Nothing, answer(code));
        let Some(bytes) = inner.objects.allocations.get(&address).copied() else { return refused(result::INVALID_VALUE) };
        if let Some(known) = inner.objects.lent.get(&address) {
            let told = if known.kind == kind { words([known.token[0], known.token[1], bytes]) } else { answer(result::INVALID_VALUE) };
            return (Change::Nothing, told);
        }
        if inner.objects.lent.len() >= MOST {
            return refused(result::OUT_OF_MEMORY);
        }
        let (Ok(token), Ok(fresh)) = (loans::new_token(), loans::new_token()) else { return refused(result::UNKNOWN) };
        let mark = inner.memory.heap.extent_of(address).and_then(|(extent, _)| self.shared.extents.lock().mark(extent, fresh));
        let Some(mark) = mark else { return refused(result::INVALID_VALUE) };
        let out = LentOut { token, kind, mark };
        let Some(loan) = self.as_loan(inner, address, bytes, out) else { return refused(result::INVALID_VALUE) };
        self.shared.loans.lock().lend(token, loan, self.lender());
        (Change::Lend { address, lent: out }, words([token[0], token[1], bytes]))
    }

    /// Opens an allocation that another client has lent.
    pub(crate) fn borrow(&self, inner: &mut Inner, token: Token, kind: u32) -> (Change, Answer) {
        let refused = |code| (Change::Nothing, answer(code));
        if inner.objects.borrowed.len() >= MOST {
            return refused(result::OUT_OF_MEMORY);
        }
        let group = self.group_name();
        let fits = |lent: &Lent| matches!(lent.thing, Thing::Allocation { kind: known, .. } if known == kind);
        let borrowed = self.shared.loans.lock().borrow(token, self.client(), group.as_deref(), fits);
        let (lent, is_new) = match borrowed {
            Ok(borrowed) => borrowed,
            Err(error) => {
                tracing::info!("session {}: memory of another client cannot be opened: {error}", self.config.id);
                return refused(code_of(error));
            }
        };
        let Thing::Allocation { address, bytes, extent, mark, .. } = lent.thing else { return refused(result::INVALID_HANDLE) };
        let Some(ordinal) = self.config.parts.iter().position(|part| part.device == lent.device_index) else {
            self.leave_loan(token);
            return refused(result::INVALID_DEVICE);
        };
        if is_new && let Err(error) = self.hold_extent(inner, extent, mark) {
            tracing::warn!("session {}: memory of another client cannot be opened: {error}", self.config.id);
            self.leave_loan(token);
            return refused(result_of(&error));
        }
        let told = words([address, bytes, ordinal as u64]);
        if !is_new {
            return (Change::Nothing, told);
        }
        self.shared.cards.allow(self.client(), address, bytes, true);
        let borrowed = Borrowed { token, kind, device_index: lent.device_index, bytes, charged: lent.charged, extent, mark };
        (Change::Borrow { address, borrowed }, told)
    }

    fn leave_loan(&self, token: Token) {
        let consequences = self.shared.loans.lock().leave(token, self.client());
        self.shared.settle_loans(consequences);
    }

    /// One more thing in an extent of another client is open. The client has the extent from now
    /// on, and its successors will.
    fn hold_extent(&self, inner: &mut Inner, (address, bytes): (u64, u64), mark: Token) -> Result<(), ExecutorError> {
        if let Some((_, _, count)) = inner.memory.borrowed.get_mut(&address) {
            *count += 1;
            return Ok(());
        }
        let joined = self.shared.extents.lock().join(address, bytes, mark, self.client());
        let (file, note) = joined.ok_or_else(|| ExecutorError::Damaged(format!("the extent at {address:#x} has gone")))?;
        let kept = self.shared.keep(self.config.id, &borrowed_key(address), &note.text(), &[file.as_fd()]);
        let owner = layout::arena_device(address);
        let shared = kept.and_then(|()| Ok(self.shared.cards.share_extent(self.client(), owner, address, file.as_fd(), bytes)?));
        if let Err(error) = shared {
            // Its owner has it, too. A successor must not find what was not opened.
            self.shared.extents.lock().leave(address, self.client());
            self.shared.drop_kept(self.config.id, &borrowed_key(address));
            return Err(error);
        }
        inner.memory.borrowed.insert(address, (file, note, 1));
        Ok(())
    }

    /// Gives back what the client has open of another. Its work is over.
    pub(crate) fn end_borrowing(&self, inner: &mut Inner, address: u64) {
        let Some(borrowed) = inner.objects.borrowed.get(&address).copied() else { return };
        self.shared.cards.revoke(self.client(), address);
        // Before the keeper drops the extent: a successor must not look for it.
        self.commit(inner, Change::Return { address }, 0, None);
        let (extent, bytes) = borrowed.extent;
        if let Some((_, _, count)) = inner.memory.borrowed.get_mut(&extent) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                inner.memory.borrowed.remove(&extent);
                let unmapped = self.shared.leave_extent(self.client(), extent, bytes);
                if let Err(error) = &unmapped {
                    tracing::warn!("session {}: an extent could not be unmapped: {error}", self.config.id);
                }
                self.shared.drop_kept(self.config.id, &borrowed_key(extent));
                if unmapped.unwrap_or(true) {
                    self.shared.arena.lock().release(extent, bytes);
                }
            }
        }
        self.leave_loan(borrowed.token);
        self.note_memory(inner);
    }

    /// Lends physical memory of the client.
    pub(crate) fn lend_physical(self: &Arc<Self>, inner: &Inner, handle: u32) -> (Change, Answer) {
        let refused = |code| (Change::Nothing, answer(code));
        let (Some((device, bytes)), Some(file)) = (inner.objects.physical.get(&handle), inner.memory.physical.get(&handle)) else {
            return refused(result::INVALID_VALUE);
        };
        match inner.objects.shared_physical.get(&handle) {
            Some(known) if known.borrowed => return refused(result::INVALID_VALUE),
            Some(known) => return (Change::Nothing, words([known.token[0], known.token[1], *bytes])),
            None => {}
        }
        let Ok(token) = loans::new_token() else { return refused(result::UNKNOWN) };
        let Some(loan) = self.physical_loan(*device, *bytes, file) else { return refused(result::INVALID_VALUE) };
        self.shared.loans.lock().lend(token, loan, self.lender());
        let shared = SharedPhysical { token, borrowed: false };
        (Change::SharePhysical { handle, shared }, words([token[0], token[1], *bytes]))
    }

    fn physical_loan(&self, device: u32, bytes: u64, file: &Arc<OwnedFd>) -> Option<Lent> {
        let thing = Thing::Physical { bytes, file: file.clone() };
        Some(Lent { thing, device_index: self.device_index(device)?, charged: bytes, group: self.group_name() })
    }

    /// Opens physical memory that another client has lent, under a handle of this client.
    pub(crate) fn borrow_physical(&self, inner: &mut Inner, handle: u32, token: Token) -> (Change, Answer) {
        let refused = |code| (Change::Nothing, answer(code));
        let known = |shared: &SharedPhysical| shared.borrowed && shared.token == token;
        // What is open already has a handle, which the client is to use.
        if inner.objects.physical.contains_key(&handle) || inner.objects.shared_physical.values().any(known) {
            return refused(result::INVALID_VALUE);
        }
        let group = self.group_name();
        let borrowed = self.shared.loans.lock().borrow(token, self.client(), group.as_deref(), |lent| matches!(lent.thing, Thing::Physical { .. }));
        let lent = match borrowed {
            Ok((lent, _)) => lent,
            Err(error) => {
                tracing::info!("session {}: memory of another client cannot be opened: {error}", self.config.id);
                return refused(code_of(error));
            }
        };
        let Thing::Physical { bytes, file } = lent.thing else { return refused(result::INVALID_HANDLE) };
        let ordinal = self.config.parts.iter().position(|part| part.device == lent.device_index);
        let Some(device) = ordinal.and_then(|ordinal| u32::try_from(ordinal).ok()) else {
            self.leave_loan(token);
            return refused(result::INVALID_DEVICE);
        };
        if let Err(error) = self.shared.keep(self.config.id, &physical_key(handle), &bytes.to_string(), &[file.as_fd()]) {
            self.leave_loan(token);
            return refused(result_of(&error));
        }
        inner.memory.physical.insert(handle, file);
        (Change::BorrowPhysical { handle, device, bytes, token }, words([bytes, u64::from(device), 0]))
    }

    /// Looks at the cell of an event that several clients use. Records are numbered here, because
    /// only here they all come together.
    pub(crate) fn event_cell(&self, inner: &Inner, address: u64, action: u32) -> Answer {
        if !address.is_multiple_of(8) || !self.may_touch(&inner.objects, address, event_cell::BYTES) {
            return answer(result::INVALID_VALUE);
        }
        let step = || {
            let mut word = [0; 8];
            self.shared.cards.read(self.client(), address, &mut word)?;
            let mut recorded = u64::from_le_bytes(word);
            match action {
                event_cell::CLEAR => {
                    recorded = 0;
                    self.shared.cards.write(self.client(), address, &[0; event_cell::BYTES as usize])?;
                }
                event_cell::RECORD => {
                    recorded = recorded.wrapping_add(1);
                    self.shared.cards.write(self.client(), address, &recorded.to_le_bytes())?;
                }
                _ => {}
            }
            self.shared.cards.read(self.client(), address + event_cell::place_of(recorded), &mut word)?;
            let reached = recorded == 0 || u64::from_le_bytes(word).wrapping_sub(recorded).cast_signed() >= 0;
            Ok::<_, cumux_device::DeviceError>(words([recorded, u64::from(reached), 0]))
        };
        step().unwrap_or_else(|error| answer(error.result()))
    }

    // ---- takeover

    /// The mark of an extent, by what the client has lent of it.
    pub(crate) fn mark_of(&self, inner: &Inner, extent: u64, bytes: u64) -> Option<Token> {
        let inside = extent..extent.saturating_add(bytes);
        let lent = inner.objects.lent.range(inside.clone()).next().map(|(_, lent)| lent.mark);
        lent.or_else(|| inner.objects.kept.range(inside).next().map(|(_, (_, lent))| lent.mark))
    }

    /// Maps an extent, or joins it where another client has it mapped already.
    pub(crate) fn restore_extent(&self, address: u64, note: ExtentNote, file: OwnedFd, mark: Option<Token>) -> Result<Arc<OwnedFd>, ExecutorError> {
        let (cards, owner, bytes) = (&self.shared.cards, layout::arena_device(address), note.bytes);
        let joined = mark.and_then(|mark| self.shared.extents.lock().join(address, bytes, mark, self.client()));
        if let Some((known, _)) = joined {
            if let Err(error) = cards.share_extent(self.client(), owner, address, known.as_fd(), bytes) {
                self.shared.extents.lock().leave(address, self.client());
                return Err(error.into());
            }
            return Ok(known);
        }
        if !self.shared.arena.lock().claim(address, bytes) {
            return Err(ExecutorError::Damaged(format!("the extent at {address:#x} overlaps another")));
        }
        let is_mapped = note.name.is_some_and(|name| cards.adopt_extent(name, address, bytes));
        let mapped = if is_mapped { Ok(()) } else { cards.map(owner, address, file.as_fd(), 0, bytes) };
        let shared =
            mapped.and_then(|()| cards.share_extent(self.client(), owner, address, file.as_fd(), bytes).inspect_err(|_| drop(cards.unmap(address, bytes))));
        if let Err(error) = shared {
            self.shared.arena.lock().release(address, bytes);
            return Err(error.into());
        }
        let file = Arc::new(file);
        self.shared.extents.lock().add(address, note, file.clone(), mark, self.client());
        Ok(file)
    }

    /// Everything that it had lent and borrowed is so again. Its extents are mapped.
    pub(crate) fn restore_loans(self: &Arc<Self>, inner: &mut Inner) -> Result<(), ExecutorError> {
        let mut transfers = Vec::new();
        for (address, lent) in &inner.objects.lent {
            let Some(bytes) = inner.objects.allocations.get(address) else { continue };
            if let Some(loan) = self.as_loan(inner, *address, *bytes, *lent) {
                transfers.extend(self.shared.loans.lock().lend(lent.token, loan, self.lender()));
            }
        }
        for (address, (bytes, lent)) in inner.objects.kept.clone() {
            if !self.restore_slice(inner, 0, address, bytes) {
                return Err(ExecutorError::Damaged(format!("the allocation at {address:#x} cannot be restored")));
            }
            if let Some(loan) = self.as_loan(inner, address, bytes, lent) {
                transfers.extend(self.shared.loans.lock().freed_before(lent.token, loan, self.lender()));
            }
        }
        for (address, borrowed) in inner.objects.borrowed.clone() {
            let Borrowed { token, kind, device_index, bytes, charged, extent, mark } = borrowed;
            let held = inner.memory.borrowed.get_mut(&extent.0).map(|(_, _, count)| *count += 1);
            held.ok_or_else(|| ExecutorError::Damaged(format!("the extent at {:#x}, of another client, is not in the keeper", extent.0)))?;
            self.shared.cards.allow(self.client(), address, bytes, true);
            let thing = Thing::Allocation { kind, address, bytes, extent, mark };
            self.shared.loans.lock().rejoin(token, Lent { thing, device_index, charged, group: self.group_name() }, self.client());
        }
        for (handle, shared) in inner.objects.shared_physical.clone() {
            let (Some((device, bytes)), Some(file)) = (inner.objects.physical.get(&handle), inner.memory.physical.get(&handle)) else { continue };
            let Some(loan) = self.physical_loan(*device, *bytes, file) else { continue };
            if shared.borrowed {
                self.shared.loans.lock().rejoin(shared.token, loan, self.client());
            } else {
                transfers.extend(self.shared.loans.lock().lend(shared.token, loan, self.lender()));
            }
        }
        self.shared.settle_loans(Consequences { transfers, returned: Vec::new() });
        Ok(())
    }
}
