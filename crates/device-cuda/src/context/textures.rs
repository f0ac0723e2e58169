//! Arrays, texture objects and surface objects of clients.
//!
//! The driver may wait for kernels when it makes or destroys one. So both happen at a quiet moment
//! ([`Gate`]). What is no longer used waits for one in [`Discards`]. No client leaves for its sake.

use super::extents::{Extents, failure};
use crate::driver::{Array, ArrayCopy, ArrayCopyEnd, Driver, MipmappedArray};
use crate::helpers::Helpers;
use crate::quiet::Gate;
use cumux_device::{ArrayWish, DeviceError};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// With so many unused objects, a quiet moment is requested to destroy them. An array has memory,
/// and does not wait for more of them.
const UNUSED_OBJECTS: usize = 32;

/// What a kernel does with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    /// It samples a texture.
    Texture,
    /// It reads and writes a surface.
    Surface,
}

/// What the driver has made for a client.
#[derive(Default)]
pub(crate) struct ClientTextures {
    /// Arrays, by the client's numbers.
    pub arrays: FxHashMap<u32, Arc<CardArray>>,
    /// Objects, by the driver's numbers, which kernels get.
    pub objects: FxHashMap<u64, ObjectKind>,
}

/// An array. Its handles are discarded when it is dropped.
pub(crate) struct CardArray {
    /// What it was made as.
    pub wish: ArrayWish,
    /// Its levels; one, the array itself, without mipmaps.
    pub levels: Vec<Array>,
    /// The handle of all levels.
    pub mipmapped: Option<MipmappedArray>,
    discards: Arc<Discards>,
}

impl CardArray {
    /// Makes an array with undefined contents. The caller is in a quiet moment.
    ///
    /// # Errors
    /// A sentence: the card is full, or the driver has no such arrays.
    pub(crate) fn create(driver: &Driver, wish: &ArrayWish, discards: &Arc<Discards>) -> Result<CardArray, DeviceError> {
        let made = match wish.levels {
            0 => driver.create_array(wish).map(|array| (vec![array], None)),
            _ => driver.create_mipmapped(wish).map(|(mipmapped, levels)| (levels, Some(mipmapped))),
        };
        let (levels, mipmapped) = made.map_err(|error| failure(driver, &format!("an array of {:?} texels", wish.size), error))?;
        Ok(CardArray { wish: *wish, levels, mipmapped, discards: discards.clone() })
    }

    /// Sets all its bytes to zero: memory from the driver may hold what was another client's.
    ///
    /// # Errors
    /// The driver's, as a sentence.
    pub(crate) fn scrub(&self, extents: &Extents) -> Result<(), DeviceError> {
        let room = extents.granule();
        let pieces = |(level, array): (u32, &Array)| cut_zeros(self.wish.level_bytes(level), room).map(|(at, extent)| (*array, at, extent)).collect::<Vec<_>>();
        let all: Vec<_> = (0..).zip(&self.levels).flat_map(pieces).collect();
        extents.copy_zeros(|zeros| {
            let copy = |(array, at, extent): &(Array, [u64; 3], [u64; 3])| ArrayCopy {
                target: ArrayCopyEnd::Array { array: *array, at: *at },
                source: ArrayCopyEnd::Memory { address: zeros, pitch: extent[0], rows: extent[1] },
                extent: *extent,
            };
            all.iter().map(copy).collect()
        })
    }
}

impl Drop for CardArray {
    fn drop(&mut self) {
        self.discards.put(match (self.mipmapped, self.levels.first()) {
            (Some(mipmapped), _) => Unused::Mipmapped(mipmapped),
            (None, Some(array)) => Unused::Array(*array),
            (None, None) => return,
        });
    }
}

/// Cuts all bytes of a level into boxes of so many bytes at most, as large as can be: where each
/// begins, and its extent. A row may be longer than that.
fn cut_zeros([row, rows, slices]: [u64; 3], room: u64) -> impl Iterator<Item = ([u64; 3], [u64; 3])> {
    // A part of a row is a whole number of texels, because both are powers of two.
    let width = row.min(room);
    let height = if row > room { 1 } else { (room / row).clamp(1, rows) };
    let depth = if height < rows { 1 } else { (room / (row * rows)).clamp(1, slices) };
    let step = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    (0..slices).step_by(step(depth)).flat_map(move |z| {
        (0..rows)
            .step_by(step(height))
            .flat_map(move |y| (0..row).step_by(step(width)).map(move |x| ([x, y, z], [width.min(row - x), height.min(rows - y), depth.min(slices - z)])))
    })
}

/// A handle that nobody uses any more.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unused {
    /// An array without mipmaps.
    Array(Array),
    /// A mipmapped array.
    Mipmapped(MipmappedArray),
    /// A texture or surface object.
    Object(u64, ObjectKind),
}

/// Handles that wait for a quiet moment to be destroyed.
pub(crate) struct Discards {
    driver: Arc<Driver>,
    gate: Arc<Gate>,
    helpers: Arc<Helpers>,
    /// Lock 8 of the crate's order, held alone.
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    unused: Vec<Unused>,
    /// A helper has been asked to destroy them.
    is_ordered: bool,
}

impl Discards {
    /// Nothing waits.
    pub(crate) fn new(driver: &Arc<Driver>, gate: &Arc<Gate>, helpers: &Arc<Helpers>) -> Discards {
        Discards { driver: driver.clone(), gate: gate.clone(), helpers: helpers.clone(), waiting: Mutex::default() }
    }

    /// Has a handle destroyed at a quiet moment.
    pub(crate) fn put(self: &Arc<Self>, unused: Unused) {
        let orders = {
            let mut waiting = self.waiting.lock();
            waiting.unused.push(unused);
            let is_due = !matches!(unused, Unused::Object(..)) || waiting.unused.len() >= UNUSED_OBJECTS;
            is_due && !std::mem::replace(&mut waiting.is_ordered, true)
        };
        if orders {
            let discards = self.clone();
            self.helpers.run(move || {
                // Where the card does not become quiet, they wait until the next one is unused, or
                // their memory is needed.
                if discards.gate.run_if_quiet(|| discards.destroy_all()).is_none() {
                    discards.waiting.lock().is_ordered = false;
                }
            });
        }
    }

    /// Waits for a quiet moment and destroys everything that waits, because memory is needed. False
    /// if nothing waits, or no such moment came.
    pub(crate) fn destroy_quietly(&self) -> bool {
        !self.waiting.lock().unused.is_empty() && self.gate.run_quietly(None, || self.destroy_all()).is_ok()
    }

    /// Destroys everything that waits. The caller is in a quiet moment.
    pub(crate) fn destroy_all(&self) {
        for unused in std::mem::take(&mut *self.waiting.lock()).unused {
            match unused {
                Unused::Array(array) => self.driver.destroy_array(array),
                Unused::Mipmapped(mipmapped) => self.driver.destroy_mipmapped(mipmapped),
                Unused::Object(object, ObjectKind::Texture) => self.driver.destroy_texture(object),
                Unused::Object(object, ObjectKind::Surface) => self.driver.destroy_surface(object),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_cover_every_byte_once_in_boxes_that_fit() {
        for (level, room, count) in [
            ([64, 1, 1], 1024, 1),
            ([64, 16, 1], 1024, 1),
            ([64, 17, 1], 1024, 2),
            ([64, 17, 3], 1024, 6),
            ([64, 4, 9], 1024, 3),
            ([4096, 3, 2], 1024, 24),
            ([48, 1, 100], 1024, 5),
        ] {
            let boxes: Vec<_> = cut_zeros(level, room).collect();
            let mut seen = vec![false; level.iter().product::<u64>() as usize];
            for (at, extent) in &boxes {
                assert!(extent.iter().product::<u64>() <= room, "{at:?} {extent:?}");
                for z in at[2]..at[2] + extent[2] {
                    for y in at[1]..at[1] + extent[1] {
                        for x in at[0]..at[0] + extent[0] {
                            let place = &mut seen[((z * level[1] + y) * level[0] + x) as usize];
                            assert!(!std::mem::replace(place, true), "twice");
                        }
                    }
                }
            }
            assert!(seen.iter().all(|byte| *byte), "{level:?}");
            assert_eq!(boxes.len(), count, "{level:?}");
        }
    }
}
