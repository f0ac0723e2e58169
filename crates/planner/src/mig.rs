//! Multi-Instance GPU: which instances a card can have beside each other.

mod search;
pub(crate) mod tables;

use std::fmt;

/// A profile of an instance, as the card's table lists it.
#[derive(Debug, PartialEq, Eq)]
pub struct Profile {
    /// As `nvidia-smi` writes it: `3g.40gb`, `1g.10gb+me`.
    pub name: &'static str,
    /// Compute slices.
    pub compute: u32,
    /// Memory slices.
    pub size: u32,
    /// The memory slices at which an instance may begin.
    pub starts: &'static [u32],
    /// Most instances of this profile on a card.
    pub most: u32,
    /// Number of the GPU instance profile, where it is known.
    pub id: Option<u32>,
    seen_multiprocessors: Option<u32>,
    seen_memory_mib: Option<u32>,
}

impl Profile {
    /// Multiprocessors of an instance on a card with `all` of them. Where nobody has read it from a
    /// card, it is estimated: an eighth (a quarter on small grids) for each compute slice, rounded
    /// down to an even number.
    #[must_use]
    pub fn multiprocessors(&self, table: &Table, all: u32) -> u32 {
        let slices = if table.compute == 7 { 8 } else { table.compute };
        self.seen_multiprocessors.unwrap_or(if self.compute == table.compute { all } else { all * self.compute / slices / 2 * 2 })
    }

    /// Memory of an instance on a card with `all` MiB. Where nobody has read it from a card, it is
    /// estimated carefully: 91 % of the part of the memory slices, as little as the H200 gives.
    #[must_use]
    pub fn memory_mib(&self, table: &Table, all: u32) -> u32 {
        let part = u64::from(all) * u64::from(self.size) / u64::from(table.grid);
        let part = if self.size == table.grid { part } else { part * 91 / 100 };
        self.seen_memory_mib.unwrap_or(part as u32)
    }

    /// True if multiprocessors or memory are estimates.
    #[must_use]
    pub fn is_estimated(&self) -> bool {
        self.seen_multiprocessors.is_none() || self.seen_memory_mib.is_none()
    }

    /// True if the instance has media engines that only one instance can have.
    #[must_use]
    pub fn has_media(&self) -> bool {
        self.name.contains("+me")
    }

    fn takes_all_media(&self) -> bool {
        self.name.ends_with("+me.all")
    }

    fn is_without_media(&self) -> bool {
        self.name.ends_with("-me")
    }

    /// True for a profile without `+me`, `-me` or `+gfx`.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        !self.name.contains(['+', '-'])
    }
}

/// What a card offers.
#[derive(Debug)]
pub struct Table {
    /// Memory slices.
    pub grid: u32,
    /// Compute slices.
    pub compute: u32,
    /// The profiles.
    pub profiles: &'static [Profile],
    /// Where the table is from.
    pub source: &'static str,
}

/// An instance at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instance {
    /// What it is.
    pub profile: &'static Profile,
    /// Its first memory slice.
    pub start: u32,
}

impl Instance {
    fn overlaps(&self, other: &Self) -> bool {
        self.start < other.start + other.profile.size && other.start < self.start + self.profile.size
    }
}

/// Instances beside each other on one card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Geometry {
    /// The instances; no two lie on the same slice.
    pub instances: Vec<Instance>,
}

impl Geometry {
    /// The names of its profiles, the largest first, with how often each occurs.
    #[must_use]
    pub fn counts(&self) -> Vec<(&'static str, u32)> {
        let mut sorted: Vec<&'static Profile> = self.instances.iter().map(|instance| instance.profile).collect();
        sorted.sort_by_key(|profile| (std::cmp::Reverse((profile.compute, profile.size)), profile.name));
        let mut counts: Vec<(&'static str, u32)> = Vec::new();
        for profile in sorted {
            match counts.last_mut() {
                Some((name, count)) if *name == profile.name => *count += 1,
                _ => counts.push((profile.name, 1)),
            }
        }
        counts
    }
}

impl fmt::Display for Geometry {
    /// `3g.40gb + 2x 2g.20gb`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.counts().iter().map(|(name, count)| if *count == 1 { (*name).to_owned() } else { format!("{count}x {name}") }).collect();
        f.write_str(&words.join(" + "))
    }
}

/// Why there are no such instances.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MigError {
    /// The card has no such profile.
    #[error("there is no MIG profile \"{name}\" on this card; it has {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The instances cannot be there together.
    #[error("{names} cannot be on one card: {reason}")]
    Impossible {
        /// What was asked for.
        names: String,
        /// The rule that forbids it.
        reason: String,
    },
}

impl Table {
    /// The profile of this name.
    ///
    /// # Errors
    /// [`MigError::Unknown`], which lists the profiles.
    pub fn profile(&self, name: &str) -> Result<&'static Profile, MigError> {
        self.profiles
            .iter()
            .find(|profile| profile.name == name)
            .ok_or_else(|| MigError::Unknown { name: name.to_owned(), known: self.profiles.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ") })
    }

    /// Places the named instances, or says why that is impossible. Every placement is tried.
    ///
    /// # Errors
    /// [`MigError`].
    pub fn place<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Geometry, MigError> {
        let profiles = names.into_iter().map(|name| self.profile(name)).collect::<Result<Vec<_>, _>>()?;
        search::place(self, &profiles)
    }

    /// All geometries of the card, each set of profiles once.
    #[must_use]
    pub fn geometries(&'static self) -> Vec<Geometry> {
        search::all(self)
    }

    /// The geometries of plain profiles to which no plain instance can be added.
    #[must_use]
    pub fn full_geometries(&'static self) -> Vec<Geometry> {
        let plain: Vec<Geometry> = self.geometries().into_iter().filter(|geometry| geometry.instances.iter().all(|it| it.profile.is_plain())).collect();
        let can_grow = |geometry: &Geometry| {
            self.profiles.iter().filter(|profile| profile.is_plain()).any(|more| {
                let larger: Vec<&'static Profile> = geometry.instances.iter().map(|it| it.profile).chain([more]).collect();
                search::place(self, &larger).is_ok()
            })
        };
        plain.into_iter().filter(|geometry| !can_grow(geometry)).collect()
    }
}
