//! The images that the modules of sessions were made of, by content.
//!
//! An image is here as long as a session has a module of it, or a standby needs it to load modules
//! in advance. The keeper has it under each of those sessions: so it goes with the last of them,
//! whoever ends it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

struct Stored {
    file: Arc<OwnedFd>,
    /// How many modules of each session were made of it.
    users: BTreeMap<u32, usize>,
}

/// The images of an executor, by their names.
#[derive(Default)]
pub struct Images(HashMap<String, Stored>);

impl Images {
    /// The file of an image.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Arc<OwnedFd>> {
        self.0.get(name).map(|stored| stored.file.clone())
    }

    /// Whether a session has modules of an image.
    #[must_use]
    pub fn is_used(&self, session: u32, name: &str) -> bool {
        self.0.get(name).is_some_and(|stored| stored.users.contains_key(&session))
    }

    /// An image that nobody uses yet; the file of one that is known stays.
    pub fn learn(&mut self, name: &str, file: Arc<OwnedFd>) {
        self.0.entry(name.to_owned()).or_insert_with(|| Stored { file, users: BTreeMap::new() });
    }

    /// A session has so many more modules of an image. Nothing if the image is not known.
    pub fn add_user(&mut self, session: u32, name: &str, modules: usize) {
        if let Some(stored) = self.0.get_mut(name).filter(|_| modules > 0) {
            *stored.users.entry(session).or_default() += modules;
        }
    }

    /// A session has one module of an image less. Whether it was its last one.
    pub fn remove_user(&mut self, session: u32, name: &str) -> bool {
        let Some(stored) = self.0.get_mut(name) else { return false };
        let Some(modules) = stored.users.get_mut(&session) else { return false };
        *modules -= 1;
        let was_last = *modules == 0;
        if was_last {
            stored.users.remove(&session);
        }
        if stored.users.is_empty() {
            self.0.remove(name);
        }
        was_last
    }

    /// A session is not here any more.
    pub fn forget_session(&mut self, session: u32) {
        self.0.retain(|_, stored| stored.users.remove(&session).is_none() || !stored.users.is_empty());
    }

    /// Drops those that no session uses, but for these.
    pub fn retain_used(&mut self, wanted: &HashSet<&str>) {
        self.0.retain(|name, stored| !stored.users.is_empty() || wanted.contains(name.as_str()));
    }

    /// Every session with every image that it uses.
    pub fn uses(&self) -> impl Iterator<Item = (u32, &str, &Arc<OwnedFd>)> {
        self.0.iter().flat_map(|(name, stored)| stored.users.keys().map(move |session| (*session, name.as_str(), &stored.file)))
    }

    /// Drops all.
    #[cfg(test)]
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_here_as_long_as_somebody_needs_it() {
        let file = || Arc::new(cumux_ring::create("image", 1).unwrap());
        let mut images = Images::default();
        images.learn("a", file());
        images.learn("b", file());
        images.add_user(1, "a", 2);
        images.add_user(2, "a", 1);
        images.add_user(3, "nobody knows it", 1);
        assert!(images.is_used(1, "a") && !images.is_used(3, "a"));
        images.retain_used(&HashSet::from(["b"]));
        assert!(images.find("b").is_some(), "a standby needs it");
        images.retain_used(&HashSet::new());
        assert!(images.find("a").is_some() && images.find("b").is_none());
        assert!(!images.remove_user(1, "a") && images.remove_user(1, "a"), "the second module was the last");
        assert!(!images.remove_user(1, "a") && images.find("a").is_some(), "another session has one");
        images.forget_session(2);
        assert!(images.find("a").is_none() && images.uses().next().is_none());
    }
}
