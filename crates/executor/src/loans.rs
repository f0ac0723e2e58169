//! What clients have lent each other: what it is, who has lent it, and who has opened it. Pure
//! bookkeeping; docs/decisions/0118 says what follows from it.
//!
//! Invariants: a loan without its owner has a borrower; of a loan whose owner is not there, or has
//! given up what only its borrowers keep, one borrower is charged.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Names a loan, and is the right to open it: random, and told to nobody but its owner.
pub type Token = [u64; 2];

/// A token that nobody can guess.
///
/// # Errors
/// When the system has no random numbers.
pub fn new_token() -> Result<Token, rustix::io::Errno> {
    let mut words = [0; 2];
    for word in &mut words {
        let mut bytes = [0; 8];
        if rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())? != bytes.len() {
            return Err(rustix::io::Errno::AGAIN);
        }
        *word = u64::from_ne_bytes(bytes);
    }
    Ok(words)
}

/// What is lent.
#[derive(Debug, Clone)]
pub enum Thing {
    /// An allocation in a mapped extent.
    Allocation {
        kind: u32,
        address: u64,
        bytes: u64,
        /// Address and length of its extent, and what names that extent among all that were ever
        /// mapped there.
        extent: (u64, u64),
        mark: Token,
    },
    /// Physical memory, which each client maps where it likes.
    Physical { bytes: u64, file: Arc<OwnedFd> },
}

/// Something that is lent, and what it costs.
#[derive(Debug, Clone)]
pub struct Lent {
    pub thing: Thing,
    /// The device's place in the server's list.
    pub device_index: u32,
    /// What its owner is charged for it.
    pub charged: u64,
    /// The owner's group, none if it belongs to none. Memory is not lent out of a group.
    pub group: Option<String>,
}

/// Called with the address of an allocation that its owner has freed, once nobody has it open any
/// more. With no lock held.
pub type GiveBack = Arc<dyn Fn(u64) + Send + Sync>;

/// Who lends, and how it is told that it has something back.
#[derive(Clone)]
pub struct Lender {
    pub client: u32,
    pub give_back: GiveBack,
}

/// What has become of who has lent it.
#[derive(Clone)]
enum Owner {
    /// It has it.
    Has(Lender),
    /// It has freed it. The addresses stay taken and charged until nobody has it open.
    Freed(Lender),
    /// It has ended, or has not come yet after a takeover, or has given up physical memory.
    Absent,
}

impl Owner {
    fn is(&self, client: u32) -> bool {
        matches!(self, Owner::Has(lender) | Owner::Freed(lender) if lender.client == client)
    }
}

struct Loan {
    lent: Lent,
    owner: Owner,
    borrowers: Vec<u32>,
    /// The borrower that is charged.
    payer: Option<u32>,
}

/// Bytes of a device go from one account to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    pub from: Option<u32>,
    pub to: Option<u32>,
    pub device_index: u32,
    pub bytes: u64,
}

/// Why something is not lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoanError {
    #[error("nobody here lends it: who made the handle has ended or has freed the memory, is served by another server, or has an executor of its own")]
    Unknown,
    #[error("a process cannot open what it has lent itself")]
    Own,
    #[error("its owner belongs to another group")]
    OtherGroup,
}

/// What follows when somebody lets go.
#[derive(Default)]
pub struct Consequences {
    pub transfers: Vec<Transfer>,
    /// Addresses that their owners get back, and how they are told.
    pub returned: Vec<(u64, GiveBack)>,
}

/// Everything that is lent in an executor.
#[derive(Default)]
pub struct Loans {
    by_token: BTreeMap<Token, Loan>,
}

impl Loan {
    fn transfer(&self, from: Option<u32>, to: Option<u32>) -> Transfer {
        Transfer { from, to, device_index: self.lent.device_index, bytes: self.lent.charged }
    }

    fn address(&self) -> u64 {
        match self.lent.thing {
            Thing::Allocation { address, .. } => address,
            Thing::Physical { .. } => 0,
        }
    }
}

impl Loans {
    /// From now on who knows the token can open it. Its owner lends it, or has come back after a
    /// takeover: a borrower that was charged meanwhile is not any more.
    pub fn lend(&mut self, token: Token, lent: Lent, lender: Lender) -> Option<Transfer> {
        let loan = self.by_token.entry(token).or_insert_with(|| Loan { lent, owner: Owner::Absent, borrowers: Vec::new(), payer: None });
        loan.owner = Owner::Has(lender);
        let payer = loan.payer.take()?;
        Some(loan.transfer(Some(payer), None))
    }

    /// Its owner has freed it. Whether somebody has it open: then the owner hears when that is
    /// over.
    pub fn free(&mut self, token: Token) -> bool {
        let Some(loan) = self.by_token.get_mut(&token) else { return false };
        if loan.borrowers.is_empty() {
            self.by_token.remove(&token);
            return false;
        }
        if let Owner::Has(lender) = &loan.owner {
            loan.owner = Owner::Freed(lender.clone());
        }
        true
    }

    /// The borrower has it open from now on; whether it had not before.
    ///
    /// # Errors
    /// [`LoanError`].
    pub fn borrow(&mut self, token: Token, borrower: u32, group: Option<&str>, fits: impl Fn(&Lent) -> bool) -> Result<(Lent, bool), LoanError> {
        let loan = self.by_token.get_mut(&token).filter(|loan| fits(&loan.lent)).ok_or(LoanError::Unknown)?;
        if loan.borrowers.contains(&borrower) {
            return Ok((loan.lent.clone(), false));
        }
        match &loan.owner {
            Owner::Has(lender) if lender.client == borrower => return Err(LoanError::Own),
            Owner::Has(_) => {}
            Owner::Freed(_) | Owner::Absent => return Err(LoanError::Unknown),
        }
        if loan.lent.group.as_deref() != group {
            return Err(LoanError::OtherGroup);
        }
        loan.borrowers.push(borrower);
        Ok((loan.lent.clone(), true))
    }

    /// A borrower has come back after a takeover.
    pub fn rejoin(&mut self, token: Token, lent: Lent, borrower: u32) {
        let loan = self.by_token.entry(token).or_insert_with(|| Loan { lent, owner: Owner::Absent, borrowers: Vec::new(), payer: None });
        if !loan.borrowers.contains(&borrower) {
            loan.borrowers.push(borrower);
        }
    }

    /// A client lets go of it, as its borrower or as the owner of physical memory.
    pub fn leave(&mut self, token: Token, client: u32) -> Consequences {
        let mut consequences = Consequences::default();
        let Some(loan) = self.by_token.get_mut(&token) else { return consequences };
        loan.borrowers.retain(|borrower| *borrower != client);
        if loan.owner.is(client) {
            loan.owner = Owner::Absent;
        }
        let paid = loan.payer.take_if(|payer| *payer == client);
        match (&loan.owner, loan.borrowers.first().copied()) {
            (Owner::Absent, Some(heir)) if loan.payer.is_none() => {
                loan.payer = Some(heir);
                consequences.transfers.push(loan.transfer(paid, Some(heir)));
            }
            (_, _) => consequences.transfers.extend(paid.map(|payer| loan.transfer(Some(payer), None))),
        }
        if loan.borrowers.is_empty() {
            match loan.owner.clone() {
                Owner::Has(_) => {}
                Owner::Freed(lender) => {
                    consequences.returned.push((loan.address(), lender.give_back));
                    self.by_token.remove(&token);
                }
                Owner::Absent => {
                    self.by_token.remove(&token);
                }
            }
        }
        consequences
    }

    /// A client has ended.
    pub fn forget_client(&mut self, client: u32) -> Consequences {
        let concerns = |loan: &Loan| loan.borrowers.contains(&client) || loan.owner.is(client);
        let tokens: Vec<Token> = self.by_token.iter().filter(|(_, loan)| concerns(loan)).map(|(token, _)| *token).collect();
        let mut all = Consequences::default();
        for token in tokens {
            let one = self.leave(token, client);
            all.transfers.extend(one.transfers);
            all.returned.extend(one.returned);
        }
        all
    }

    /// Somebody has come after a takeover: what has no owner is charged to a borrower. `all_here`:
    /// everybody has come, and what an owner has freed and nobody has open goes back to it.
    pub fn settle(&mut self, all_here: bool) -> Consequences {
        let mut consequences = Consequences::default();
        for loan in self.by_token.values_mut() {
            if matches!(loan.owner, Owner::Absent) && loan.payer.is_none() && !loan.borrowers.is_empty() {
                loan.payer = loan.borrowers.first().copied();
                consequences.transfers.push(loan.transfer(None, loan.payer));
            }
        }
        if all_here {
            let idle = |loan: &Loan| loan.borrowers.is_empty() && matches!(loan.owner, Owner::Freed(_));
            for (_, loan) in self.by_token.extract_if(.., |_, loan| idle(loan)) {
                if let Owner::Freed(lender) = &loan.owner {
                    consequences.returned.push((loan.address(), lender.give_back.clone()));
                }
            }
        }
        consequences
    }

    /// An owner that has freed something has come back after a takeover. It gets it back when
    /// nobody has it open: [`Loans::settle`] says when that can be known.
    pub fn freed_before(&mut self, token: Token, lent: Lent, lender: Lender) -> Option<Transfer> {
        let transfer = self.lend(token, lent, lender.clone());
        if let Some(loan) = self.by_token.get_mut(&token) {
            loan.owner = Owner::Freed(lender);
        }
        transfer
    }

    /// Whether anybody but this client has a part in it.
    pub fn is_shared(&self, token: Token, client: u32) -> bool {
        self.by_token.get(&token).is_some_and(|loan| {
            let anothers = !matches!(loan.owner, Owner::Absent) && !loan.owner.is(client);
            anothers || loan.borrowers.iter().any(|borrower| *borrower != client)
        })
    }

    /// A client goes to another executor. Whether it can: nobody shares anything with it. Then
    /// nothing of its can be opened here any more.
    pub fn take_leave(&mut self, client: u32) -> bool {
        if self.by_token.values().any(|loan| loan.borrowers.contains(&client) || (loan.owner.is(client) && !loan.borrowers.is_empty())) {
            return false;
        }
        self.by_token.retain(|_, loan| !loan.owner.is(client));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    const TOKEN: Token = [7, 8];

    fn lent() -> Lent {
        let thing = Thing::Allocation { kind: 0, address: 4096, bytes: 100, extent: (0, 1 << 21), mark: [1, 1] };
        Lent { thing, device_index: 0, charged: 512, group: None }
    }

    fn lender() -> Lender {
        Lender { client: 1, give_back: Arc::new(|_| ()) }
    }

    fn move_of(from: Option<u32>, to: Option<u32>) -> Transfer {
        Transfer { from, to, device_index: 0, bytes: 512 }
    }

    #[test]
    fn who_has_it_open_keeps_it_and_pays_when_its_owner_has_gone() {
        let mut loans = Loans::default();
        loans.lend(TOKEN, lent(), lender());
        assert_eq!(loans.borrow(TOKEN, 1, None, |_| true).unwrap_err(), LoanError::Own);
        assert_eq!(loans.borrow([7, 9], 2, None, |_| true).unwrap_err(), LoanError::Unknown);
        assert_eq!(loans.borrow(TOKEN, 2, Some("others"), |_| true).unwrap_err(), LoanError::OtherGroup);
        assert_eq!(loans.borrow(TOKEN, 2, None, |_| false).unwrap_err(), LoanError::Unknown, "another kind");
        assert!(loans.borrow(TOKEN, 2, None, |_| true).unwrap().1 && loans.borrow(TOKEN, 3, None, |_| true).unwrap().1);
        assert!(!loans.borrow(TOKEN, 2, None, |_| true).unwrap().1, "it has it already");
        assert!(!loans.take_leave(1) && !loans.take_leave(2) && loans.take_leave(4));
        assert_eq!(loans.forget_client(1).transfers, [move_of(None, Some(2))]);
        assert_eq!(loans.borrow(TOKEN, 4, None, |_| true).unwrap_err(), LoanError::Unknown, "its owner has gone");
        assert_eq!(loans.leave(TOKEN, 2).transfers, [move_of(Some(2), Some(3))]);
        assert_eq!(loans.forget_client(3).transfers, [move_of(Some(3), None)]);
        assert!(loans.by_token.is_empty());
    }

    #[test]
    fn what_was_freed_goes_back_when_the_last_one_closes_it() {
        let returned: Arc<Mutex<Vec<u64>>> = Arc::default();
        let list = returned.clone();
        let told = Lender { client: 1, give_back: Arc::new(move |address| list.lock().push(address)) };
        let mut loans = Loans::default();
        loans.lend(TOKEN, lent(), told.clone());
        assert!(!loans.free(TOKEN), "nobody has it open");
        loans.lend(TOKEN, lent(), told);
        loans.borrow(TOKEN, 2, None, |_| true).unwrap();
        assert!(loans.free(TOKEN));
        assert_eq!(loans.borrow(TOKEN, 3, None, |_| true).unwrap_err(), LoanError::Unknown, "it was freed");
        let Consequences { transfers, returned: now } = loans.leave(TOKEN, 2);
        assert_eq!(transfers, [], "its owner was charged all the time");
        now.into_iter().for_each(|(address, tell)| tell(address));
        assert_eq!(*returned.lock(), [4096]);
    }

    #[test]
    fn after_a_takeover_they_come_in_any_order() {
        let mut loans = Loans::default();
        loans.rejoin(TOKEN, lent(), 2);
        assert_eq!(loans.settle(false).transfers, [move_of(None, Some(2))], "its owner may come later or not at all");
        assert_eq!(loans.lend(TOKEN, lent(), lender()), Some(move_of(Some(2), None)));
        assert_eq!(loans.settle(true).transfers, []);
        let mut loans = Loans::default();
        loans.freed_before(TOKEN, lent(), lender());
        assert!(loans.settle(false).returned.is_empty() && loans.settle(true).returned.len() == 1, "no borrower is left");
        loans.freed_before(TOKEN, lent(), lender());
        loans.rejoin(TOKEN, lent(), 2);
        assert!(loans.settle(true).returned.is_empty());
    }
}
