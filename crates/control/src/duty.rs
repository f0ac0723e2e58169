//! What a server is there for: whose programs, on which cards.
//!
//! Usually a user has one server, over all cards of the daemon. With `--per-card` programs that see
//! one card alone have a server of that card, whose end, fault or upgrade is felt by nobody on
//! another; programs that see several have one over all, because all that they do is in one order
//! (decision 0206). Pure.
//!
//! Cards are counted as the daemon counts them, also by programs and in limits. A server of one
//! card counts only its own: what is said to it is said in its numbers.

use cumux_wire::message::{DeviceFacts, Grant, GroupGrant};
use serde::{Deserialize, Serialize};

/// Which of the daemon's cards a server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// All of them.
    #[default]
    All,
    /// The one at this place in the daemon's list.
    Card(usize),
}

impl Reach {
    /// Of the server for a program that sees the devices at these places.
    #[must_use]
    pub(crate) fn of_program(devices: &[(u32, u64)]) -> Self {
        match devices {
            [(place, _)] => usize::try_from(*place).map_or(Self::All, Self::Card),
            _ => Self::All,
        }
    }

    /// Those of `all` that it means.
    #[must_use]
    pub(crate) fn among<T: Clone>(self, all: &[T]) -> Vec<T> {
        match self {
            Self::All => all.to_vec(),
            Self::Card(place) => all.get(place).cloned().into_iter().collect(),
        }
    }

    /// A place in a server's list as one in the daemon's.
    #[must_use]
    pub(crate) fn place_of(self, place: u32) -> u32 {
        match self {
            Self::All => place,
            Self::Card(at) => u32::try_from(at).unwrap_or(u32::MAX),
        }
    }

    /// What a program may use, in the server's numbers. Without devices if it may use none of the
    /// server's.
    pub(crate) fn narrow(self, grant: &mut Grant) {
        let Self::Card(at) = self else { return };
        let all = std::mem::take(&mut grant.devices);
        let own = all.iter().position(|(place, _)| usize::try_from(*place) == Ok(at));
        grant.devices = own.map(|own| (0, all[own].1)).into_iter().collect();
        grant.sms = own.and_then(|own| grant.sms.get(own).cloned()).into_iter().collect();
        if let Some(group) = &mut grant.group {
            self.narrow_group(group);
        }
    }

    /// A group's limits, in the server's numbers.
    pub(crate) fn narrow_group(self, group: &mut GroupGrant) {
        group.memory = self.among(&group.memory);
    }

    /// What is added to the name of the folder of a server.
    fn ending(self) -> Option<String> {
        match self {
            Self::All => None,
            Self::Card(place) => Some(format!("gpu-{place}")),
        }
    }
}

/// Whose programs on which cards: a user has at most one server for each reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duty {
    /// The user.
    pub uid: u32,
    /// The cards.
    pub reach: Reach,
}

impl Duty {
    /// The server of a user over all cards.
    #[must_use]
    pub fn of_all(uid: u32) -> Self {
        Self { uid, reach: Reach::All }
    }

    /// The folder of the server in the pipe directory; `None` for the pipe directory itself, where
    /// the daemon's own user has its server over all cards.
    #[must_use]
    pub(crate) fn folder(self, own: u32) -> Option<String> {
        match ((self.uid != own).then(|| format!("user-{}", self.uid)), self.reach.ending()) {
            (Some(user), Some(ending)) => Some(format!("{user}-{ending}")),
            (user, ending) => user.or(ending),
        }
    }

    /// The duty of the server that a folder of this name belongs to.
    #[must_use]
    pub(crate) fn of_folder(name: &str, own: u32) -> Option<Self> {
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| number.to_string() == text);
        let card = |text: &str| number(text).and_then(|place| usize::try_from(place).ok()).map(Reach::Card);
        if let Some(place) = name.strip_prefix("gpu-") {
            return Some(Self { uid: own, reach: card(place)? });
        }
        let user = name.strip_prefix("user-")?;
        match user.split_once("-gpu-") {
            Some((uid, place)) => Some(Self { uid: number(uid)?, reach: card(place)? }),
            None => Some(Self::of_all(number(user)?)),
        }
    }

    /// For people: ` of card 1`, and nothing for a server over all cards.
    #[must_use]
    pub(crate) fn of_card(self) -> String {
        match self.reach {
            Reach::All => String::new(),
            Reach::Card(place) => format!(" of card {place}"),
        }
    }
}

/// The cards as the daemon counts them, and those of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    /// Limits and programs name devices by their places in this list.
    pub(crate) counted: &'a [DeviceFacts],
    /// Whose places these are in the server's words.
    pub(crate) reach: Reach,
}

impl<'a> View<'a> {
    /// Of a server with these devices. Where the daemon does not know its cards, the server's own
    /// are all that can be counted.
    pub(crate) fn of(reach: Reach, all: &'a [DeviceFacts], its: &'a [DeviceFacts]) -> Self {
        match reach {
            Reach::Card(_) if !all.is_empty() => Self { counted: all, reach },
            _ => Self { counted: its, reach: Reach::All },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cumux_wire::share::Share;

    #[test]
    fn folders_have_names_that_are_read_back() {
        let all = [Duty::of_all(7), Duty { uid: 7, reach: Reach::Card(3) }, Duty { uid: 1000, reach: Reach::Card(11) }, Duty::of_all(1000)];
        let names: Vec<Option<String>> = all.iter().map(|duty| duty.folder(7)).collect();
        assert_eq!(names, [None, Some("gpu-3".into()), Some("user-1000-gpu-11".into()), Some("user-1000".into())]);
        for (duty, name) in all.iter().zip(&names) {
            assert!(name.as_ref().is_none_or(|name| Duty::of_folder(name, 7) == Some(*duty)), "{name:?}");
        }
        for name in ["", "user-", "user-x", "user-1-gpu-", "gpu-", "gpu-01", "user-+1", "user-1-gpu-x", "log", "user-1-", "gpu-1-gpu-2", "card-0"] {
            assert_eq!(Duty::of_folder(name, 7), None, "{name}");
        }
    }

    #[test]
    fn what_is_granted_is_said_in_the_numbers_of_the_server() {
        let group = GroupGrant { memory: vec![5, 6, 7], ..GroupGrant::default() };
        let grant = Grant { devices: vec![(2, 9)], sms: vec![vec![1, 2]], group: Some(group), ..grant() };
        let mut narrow = grant.clone();
        Reach::Card(2).narrow(&mut narrow);
        assert_eq!((narrow.devices, narrow.sms, narrow.group.unwrap().memory), (vec![(0, 9)], vec![vec![1, 2]], vec![7]));
        let mut none = grant.clone();
        Reach::Card(1).narrow(&mut none);
        assert!(none.devices.is_empty() && none.sms.is_empty());
        let mut same = grant.clone();
        Reach::All.narrow(&mut same);
        assert_eq!(same, grant);
        assert_eq!([Reach::of_program(&[(2, 9)]), Reach::of_program(&[]), Reach::of_program(&[(0, 0), (1, 0)])], [Reach::Card(2), Reach::All, Reach::All]);
        assert_eq!((Reach::All.place_of(3), Reach::Card(3).place_of(0)), (3, 3));
    }

    fn grant() -> Grant {
        Grant { share: Share::ALL, priority: 0, home: cumux_wire::message::Home::Shared, sms: Vec::new(), group: None, devices: Vec::new() }
    }
}
