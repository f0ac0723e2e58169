//! The images that the modules of sessions were made of, by content.
//!
//! An image is here as long as a session has a module of it, or a standby needs it to load modules
//! in advance. The keeper has it under each of those sessions: so it goes with the last of them,
//! whoever ends it.
//!
//! A session that has no module of an image any more leaves it *spare*: the keeper still has it
//! under that session. A program that loads and unloads one image all the time asks the keeper for
//! nothing. There are few spare images at a time ([`Images::take_excess`]).

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The images of an executor, and the turn of who asks the keeper about them.
#[derive(Default)]
pub struct KeptImages {
    /// Held by who asks the keeper to keep or drop an image, until `images` says so, too.
    pub calls: Mutex<()>,
    /// Never held during a call of the keeper.
    pub images: Mutex<Images>,
}

/// Images that stay spare, of all sessions together: number and bytes.
const MOST_SPARE: usize = 16;
const MOST_SPARE_BYTES: u64 = 16 << 20;

/// Most images with which one that is brought is compared.
const MOST_COMPARED: usize = 16;

struct Stored {
    file: Arc<OwnedFd>,
    bytes: u64,
    /// How many modules of each session were made of it; 0 where it is spare.
    users: BTreeMap<u32, usize>,
}

/// The images of an executor, by their names.
#[derive(Default)]
pub struct Images {
    stored: HashMap<String, Stored>,
    /// Sessions with their spare images, the oldest first, and their bytes.
    spare: VecDeque<(u32, String)>,
    spare_bytes: u64,
}

impl Images {
    /// The file of an image.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Arc<OwnedFd>> {
        self.stored.get(name).map(|stored| stored.file.clone())
    }

    /// Some of the images of so many bytes, with their names.
    #[must_use]
    pub fn of_length(&self, bytes: u64) -> Vec<(String, Arc<OwnedFd>)> {
        let fitting = self.stored.iter().filter(|(_, stored)| stored.bytes == bytes);
        fitting.map(|(name, stored)| (name.clone(), stored.file.clone())).take(MOST_COMPARED).collect()
    }

    /// Whether the keeper has an image under a session.
    #[must_use]
    pub fn is_kept(&self, session: u32, name: &str) -> bool {
        self.stored.get(name).is_some_and(|stored| stored.users.contains_key(&session))
    }

    /// An image of so many bytes that nobody uses yet; the file of one that is known stays.
    pub fn learn(&mut self, name: &str, file: Arc<OwnedFd>, bytes: u64) {
        self.stored.entry(name.to_owned()).or_insert_with(|| Stored { file, bytes, users: BTreeMap::new() });
    }

    /// A session has so many more modules of an image. Nothing if the image is not known.
    pub fn add_user(&mut self, session: u32, name: &str, modules: usize) {
        let Some(stored) = self.stored.get_mut(name).filter(|_| modules > 0) else { return };
        let had = stored.users.insert(session, modules);
        match had {
            None => {}
            Some(0) => {
                self.spare_bytes -= stored.bytes;
                self.spare.retain(|(other, spare)| (*other, spare.as_str()) != (session, name));
            }
            Some(had) => *stored.users.entry(session).or_default() += had,
        }
    }

    /// A session has one module of an image less.
    pub fn remove_user(&mut self, session: u32, name: &str) {
        let Some(stored) = self.stored.get_mut(name) else { return };
        let Some(modules) = stored.users.get_mut(&session).filter(|modules| **modules > 0) else { return };
        *modules -= 1;
        if *modules == 0 {
            self.spare_bytes += stored.bytes;
            self.spare.push_back((session, name.to_owned()));
        }
    }

    /// True if there are too many spare images.
    #[must_use]
    pub fn has_excess(&self) -> bool {
        self.spare.len() > MOST_SPARE || self.spare_bytes > MOST_SPARE_BYTES
    }

    /// Forgets all spare images if there are too many. The keeper need not have them any more.
    pub fn take_excess(&mut self) -> Vec<(u32, String)> {
        if !self.has_excess() {
            return Vec::new();
        }
        self.spare_bytes = 0;
        let taken: Vec<(u32, String)> = std::mem::take(&mut self.spare).into();
        for (session, name) in &taken {
            if let Some(stored) = self.stored.get_mut(name) {
                stored.users.remove(session);
                if stored.users.is_empty() {
                    self.stored.remove(name);
                }
            }
        }
        taken
    }

    /// A session is not here any more.
    pub fn forget_session(&mut self, session: u32) {
        let (stored, bytes) = (&self.stored, &mut self.spare_bytes);
        self.spare.retain(|(other, name)| {
            let stays = *other != session;
            *bytes -= if stays { 0 } else { stored.get(name).map_or(0, |stored| stored.bytes) };
            stays
        });
        self.stored.retain(|_, stored| stored.users.remove(&session).is_none() || !stored.users.is_empty());
    }

    /// Drops those that the keeper has under no session, but for these.
    pub fn retain_used(&mut self, wanted: &HashSet<&str>) {
        self.stored.retain(|name, stored| !stored.users.is_empty() || wanted.contains(name.as_str()));
    }

    /// Every session with every image that the keeper has under it.
    pub fn kept(&self) -> impl Iterator<Item = (u32, &str, &Arc<OwnedFd>)> {
        self.stored.iter().flat_map(|(name, stored)| stored.users.keys().map(move |session| (*session, name.as_str(), &stored.file)))
    }

    /// Drops all.
    #[cfg(test)]
    pub fn clear(&mut self) {
        *self = Images::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file() -> Arc<OwnedFd> {
        Arc::new(cumux_ring::create("image", 1).unwrap())
    }

    #[test]
    fn an_image_is_here_as_long_as_somebody_needs_it() {
        let mut images = Images::default();
        images.learn("a", file(), 1);
        images.learn("b", file(), 1);
        images.add_user(1, "a", 2);
        images.add_user(2, "a", 1);
        images.add_user(3, "nobody knows it", 1);
        assert!(images.is_kept(1, "a") && !images.is_kept(3, "a"));
        images.retain_used(&HashSet::from(["b"]));
        assert!(images.find("b").is_some(), "a standby needs it");
        images.retain_used(&HashSet::new());
        assert!(images.find("a").is_some() && images.find("b").is_none());
        images.remove_user(1, "a");
        assert!(images.spare.is_empty(), "it has another module of it");
        images.remove_user(1, "a");
        assert!(images.is_kept(1, "a") && images.spare.len() == 1, "the second module was the last");
        images.forget_session(1);
        assert!(!images.is_kept(1, "a") && images.find("a").is_some() && images.spare.is_empty(), "another session has one");
        images.forget_session(2);
        assert!(images.find("a").is_none() && images.kept().next().is_none());
    }

    #[test]
    fn images_of_one_length_are_found_and_not_too_many() {
        let mut images = Images::default();
        (0..100).for_each(|number| images.learn(&format!("{number}"), file(), 5 + number % 2));
        let found = images.of_length(6);
        assert_eq!(found.len(), MOST_COMPARED);
        assert!(found.iter().all(|(name, _)| name.parse::<u64>().unwrap() % 2 == 1) && images.of_length(7).is_empty());
    }

    #[test]
    fn few_images_are_spare_and_one_that_is_used_again_is_not() {
        let mut images = Images::default();
        for number in 0..=MOST_SPARE {
            let name = format!("{number}");
            images.learn(&name, file(), 1);
            images.add_user(7, &name, 1);
            assert!(images.take_excess().is_empty());
            images.remove_user(7, &name);
        }
        assert!(images.has_excess());
        images.add_user(7, "3", 1);
        assert!(!images.has_excess() && images.take_excess().is_empty());
        images.remove_user(7, "3");
        images.add_user(7, "0", 1);
        images.learn("large", file(), MOST_SPARE_BYTES);
        images.add_user(8, "large", 1);
        images.remove_user(8, "large");
        let taken = images.take_excess();
        assert_eq!(taken.len(), MOST_SPARE + 1);
        assert!(taken.contains(&(8, "large".to_owned())) && !taken.contains(&(7, "0".to_owned())));
        assert!(images.is_kept(7, "0") && images.find("3").is_none() && images.spare_bytes == 0);
    }

    proptest! {
        /// Whatever is done, the images that the keeper has are those with modules and those that
        /// are spare, and the bytes of the latter are counted right.
        #[test]
        fn what_is_spare_is_what_is_kept_without_modules(steps in prop::collection::vec((0..200_u32, 0..3_u32, 0..40_u32), 1..300)) {
            let (file, mut images, mut modules) = (file(), Images::default(), BTreeMap::<(u32, String), usize>::new());
            for (step, session, number) in steps {
                let name = number.to_string();
                match step {
                    0..100 => {
                        images.learn(&name, file.clone(), u64::from(number) << 16);
                        images.add_user(session, &name, 1);
                        *modules.entry((session, name)).or_default() += 1;
                    }
                    100..180 => {
                        images.remove_user(session, &name);
                        modules.entry((session, name)).and_modify(|count| *count = count.saturating_sub(1));
                    }
                    180..183 => {
                        images.forget_session(session);
                        modules.retain(|(other, _), _| *other != session);
                    }
                    _ => {
                        for taken in images.take_excess() {
                            prop_assert_eq!(modules.remove(&taken), Some(0));
                        }
                        prop_assert!(!images.has_excess());
                    }
                }
                let kept: BTreeMap<(u32, String), usize> =
                    images.stored.iter().flat_map(|(name, stored)| stored.users.iter().map(|(session, modules)| ((*session, name.clone()), *modules))).collect();
                prop_assert_eq!(&kept, &modules);
                let mut spare: Vec<_> = kept.into_iter().filter(|(_, modules)| *modules == 0).map(|(key, _)| key).collect();
                spare.sort();
                let bytes: u64 = spare.iter().map(|(_, name)| images.stored[name].bytes).sum();
                let mut listed: Vec<_> = images.spare.iter().cloned().collect();
                listed.sort();
                prop_assert_eq!((listed, images.spare_bytes), (spare, bytes));
            }
        }
    }
}
