//! The images of modules, as the keeper has them: what [`Images`](crate::images) knows, and the
//! calls that go with it.
//!
//! Calls to the keeper are made one after the other, under a lock of their own: who only says that
//! a module has gone, as the intake thread does for all clients, waits for none of them.

use crate::error::ExecutorError;
use crate::images::KeptImages;
use crate::shared::Shared;
use cumux_device::ImageHash;
use cumux_ring::FileError;
use cumux_ring::file::Constant;
use std::collections::HashSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

/// Session number under which executors of earlier programs have kept images.
const IMAGES: u32 = u32::MAX;
/// What the keeper's keys of images begin with.
pub const IMAGE_KEY: &str = "image-";

impl Shared {
    /// A session is about to have a module of an image, whose file is one that nobody can change.
    /// Keeper and successors have it from now on; returns its name.
    ///
    /// # Errors
    /// When the keeper refuses.
    pub fn store_image(&self, session: u32, hash: ImageHash, file: &Arc<OwnedFd>) -> Result<String, ExecutorError> {
        let name = hash.to_hex();
        self.with_patience(|| {
            let KeptImages { calls, images } = &self.images;
            let _calls = calls.lock();
            let known = {
                let mut images = images.lock();
                if images.is_kept(session, &name) {
                    images.add_user(session, &name, 1);
                    return Ok(());
                }
                images.find(&name)
            };
            // Another session may have brought it before.
            let file = known.unwrap_or_else(|| file.clone());
            self.keep_image(session, &name, &file)?;
            let bytes = length(&file)?;
            let mut images = images.lock();
            images.learn(&name, file, bytes);
            images.add_user(session, &name, 1);
            Ok(())
        })
        .map(|()| name)
    }

    /// A session has a module of this image no more. Does not wait for the keeper.
    pub fn drop_image(self: &Arc<Self>, session: u32, name: &str) {
        let has_excess = {
            let mut images = self.images.images.lock();
            images.remove_user(session, name);
            images.has_excess()
        };
        if has_excess {
            let shared = self.clone();
            if !self.workers.run_soon(move || shared.drop_spare_images()) {
                self.drop_spare_images();
            }
        }
    }

    /// Has the keeper drop the images of which no session has a module, if they are too many.
    fn drop_spare_images(&self) {
        let _calls = self.images.calls.lock();
        let excess = self.images.images.lock().take_excess();
        for (session, name) in excess {
            self.drop_kept(session, &image_key(&name));
        }
    }

    /// A session is restored that has so many modules of this image. `kept` is the file that the
    /// keeper has under it; without one it gets what is known here.
    pub fn restore_image(&self, session: u32, name: &str, modules: usize, kept: Option<OwnedFd>) {
        let KeptImages { calls, images } = &self.images;
        let _calls = calls.lock();
        let known = {
            let images = images.lock();
            if images.is_kept(session, name) {
                return;
            }
            images.find(name)
        };
        match (kept, known) {
            (Some(file), _) => {
                let bytes = length(&file).unwrap_or(0);
                images.lock().learn(name, Arc::new(file), bytes);
            }
            (None, Some(file)) => {
                if let Err(error) = self.keep_image(session, name, &file) {
                    tracing::warn!("the keeper has not taken an image of session {session}: {error}");
                }
            }
            (None, None) => {}
        }
        images.lock().add_user(session, name, modules);
    }

    /// A session is not here any more.
    pub fn forget_images_of(&self, session: u32) {
        self.images.images.lock().forget_session(session);
    }

    /// Drops the images that the keeper has under no session here, but for these.
    pub fn drop_unused_images(&self, wanted: &HashSet<&str>) {
        self.images.images.lock().retain_used(wanted);
    }

    /// The bytes of an image that was stored for one of these sessions, here or by another
    /// executor; `None` if nobody has it, or it has more than `most` bytes.
    ///
    /// # Errors
    /// When the keeper does not answer, or the image cannot be read.
    pub fn read_image(&self, name: &str, sessions: &[u32], most: u64) -> Result<Option<Box<dyn AsRef<[u8]>>>, ExecutorError> {
        let mut found = self.images.images.lock().find(name);
        // Executors of earlier programs have stored them for nobody.
        for session in sessions.iter().chain(&[IMAGES]) {
            if found.is_some() {
                break;
            }
            let items = self.ask_keeper(|keeper| keeper.list(*session))?;
            let mut images = self.images.images.lock();
            for item in items {
                if let (Some(known), Some(file)) = (item.key.strip_prefix(IMAGE_KEY), item.descriptors.into_iter().next()) {
                    let bytes = length(&file)?;
                    images.learn(known, Arc::new(file), bytes);
                }
            }
            found = images.find(name);
        }
        let Some(file) = found else { return Ok(None) };
        let bytes = length(&file)?;
        if bytes > most {
            return Ok(None);
        }
        match Constant::of(&file) {
            Ok(image) => Ok(Some(Box::new(image))),
            // As executors of earlier programs have stored it.
            Err(FileError::Writable) => read_whole(&file, name, bytes).map(|image| Some(Box::new(image) as Box<dyn AsRef<[u8]>>)),
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets what is stored; the keeper's copies are the caller's to drop.
    #[cfg(test)]
    pub fn forget_images(&self) {
        self.images.images.lock().clear();
    }

    /// Gives a new keeper the images of all sessions.
    ///
    /// # Errors
    /// When it does not take them.
    pub fn rekeep_images(&self) -> Result<(), ExecutorError> {
        let KeptImages { calls, images } = &self.images;
        let _calls = calls.lock();
        let kept: Vec<(u32, String, Arc<OwnedFd>)> = images.lock().kept().map(|(session, name, file)| (session, name.to_owned(), file.clone())).collect();
        kept.iter().try_for_each(|(session, name, file)| self.keep_image(*session, name, file))
    }

    fn keep_image(&self, session: u32, name: &str, file: &OwnedFd) -> Result<(), ExecutorError> {
        self.keep(session, &image_key(name), &length(file)?.to_string(), &[file.as_fd()])
    }
}

fn image_key(name: &str) -> String {
    format!("{IMAGE_KEY}{name}")
}

/// The bytes of a file.
fn length(file: &OwnedFd) -> Result<u64, ExecutorError> {
    Ok(u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0))
}

fn read_whole(file: &OwnedFd, name: &str, bytes: u64) -> Result<Vec<u8>, ExecutorError> {
    let mut image = vec![0; usize::try_from(bytes).unwrap_or(0)];
    let mut at = 0;
    while at < image.len() {
        match rustix::io::pread(file, &mut image[at..], at as u64)? {
            0 => return Err(ExecutorError::Damaged(format!("the stored image {name} is cut short"))),
            count => at += count,
        }
    }
    Ok(image)
}
