//! Arrays, and texture and surface objects, that a device's driver makes (a real card).
//!
//! They are the driver's, and of use in this process alone: a successor could not give an object
//! the handle that kernels and data of the client have. So a client that has any is not resumable.
//! It is told with an error when its executor has been replaced, and it does not move while it has
//! them.
//!
//! Making one may take long, because the driver may wait for kernels: it is done in the background.
//! Destroying one is a barrier, like freeing memory.

use crate::background;
use crate::objects::Change;
use crate::session::{Inner, Session};
use crate::shared::{answer, answer_with};
use cumux_device::{ArrayWish, DeviceError, ObjectWish};
use cumux_ring::page::Answer;
use cumux_wire::record::{Header, Op};
use cumux_wire::result;
use std::sync::Arc;

/// Arrays of a client at most, and objects. A card has tables for all clients together.
const MOST: usize = 1 << 16;

impl Session {
    /// Makes an array or an object. The answer comes when it is made.
    pub(crate) fn create_texture(self: &Arc<Self>, inner: &mut Inner, end: u64, header: Header, op: &Op) {
        let given = match *op {
            Op::ArrayCreate { device, array, wish } => {
                if self.device_index(device).is_none() || inner.objects.arrays.contains_key(&array) {
                    return self.refuse_texture(inner, end, &header, result::INVALID_VALUE);
                }
                let has_room = inner.objects.arrays.len() < MOST;
                has_room && background::run_request(self, inner, header, end, move |session| session.create_array(device, array, &wish))
            }
            Op::ObjectCreate { device, wish } => {
                if self.device_index(device).is_none() {
                    return self.refuse_texture(inner, end, &header, result::INVALID_VALUE);
                }
                let has_room = inner.objects.texture_objects.len() < MOST;
                has_room && background::run_request(self, inner, header, end, move |session| session.create_object(device, &wish))
            }
            _ => return self.refuse_texture(inner, end, &header, result::INVALID_VALUE),
        };
        if !given {
            self.refuse_texture(inner, end, &header, result::OUT_OF_MEMORY);
        }
    }

    fn refuse_texture(&self, inner: &mut Inner, end: u64, header: &Header, code: u32) {
        self.commit(inner, Change::Nothing, end, Some((header, answer(code))));
    }

    /// Charges an array, and has the device make it.
    fn create_array(&self, device: u32, array: u32, wish: &ArrayWish) -> (Change, Answer) {
        let bytes = wish.charged_bytes();
        let device_index = self.device_index(device).unwrap_or(u32::MAX);
        let create = || {
            self.lock_then_deliver(|inner| if inner.phase.is_closed() || inner.phase.is_elsewhere() { Err(result::LOST) } else { self.charge(device, bytes) })?;
            self.shared.cards.create_array(self.client(), device_index, array, wish).map_err(|error| {
                self.lock_then_deliver(|inner| {
                    if !inner.phase.is_closed() {
                        self.refund(device, bytes);
                    }
                });
                self.tell_refused(&format!("an array of {bytes} bytes"), &error)
            })
        };
        match self.shared.departures.retry(create) {
            Ok(()) => {
                self.tell_textures_end();
                (Change::Array { array, device, bytes }, answer(result::SUCCESS))
            }
            Err(code) => (Change::Nothing, answer(code)),
        }
    }

    fn create_object(&self, device: u32, wish: &ObjectWish) -> (Change, Answer) {
        let device_index = self.device_index(device).unwrap_or(u32::MAX);
        match self.shared.cards.create_object(self.client(), device_index, wish) {
            Ok(handle) => {
                self.tell_textures_end();
                (Change::TextureObject { device, handle }, answer_with(result::SUCCESS, handle, 0))
            }
            Err(error) => (Change::Nothing, answer(self.tell_refused("a texture or surface object", &error))),
        }
    }

    /// The code for the client. The reason is in the log.
    fn tell_refused(&self, what: &str, error: &DeviceError) -> u32 {
        if !matches!(error, DeviceError::Lost(_) | DeviceError::LetGo(_)) {
            tracing::info!("session {}: {what} is refused: {error}", self.config.id);
        }
        error.result()
    }

    /// Says once that the client ends with this executor.
    fn tell_textures_end(&self) {
        self.told_of_textures.call_once(|| {
            let (pid, program) = (self.config.pid, &self.config.program);
            tracing::warn!(
                "client process {pid} ({program}) would end with an error if this executor were replaced while the client has arrays, texture objects or surface objects: \
                 they are the driver's, and of use in this process alone"
            );
        });
    }

    /// Destroys an array. Nothing that was pushed before is under way any more.
    pub(crate) fn destroy_array(&self, inner: &mut Inner, array: u32) {
        let Some((device, bytes)) = inner.objects.arrays.get(&array).copied() else { return };
        self.shared.cards.destroy_array(self.client(), self.device_index(device).unwrap_or(u32::MAX), array);
        self.refund(device, bytes);
        self.commit(inner, Change::ArrayGone { array }, 0, None);
    }

    /// Destroys an object, as [`Session::destroy_array`].
    pub(crate) fn destroy_object(&self, inner: &mut Inner, device: u32, handle: u64) {
        if !inner.objects.texture_objects.contains(&(device, handle)) {
            return;
        }
        self.shared.cards.destroy_object(self.client(), self.device_index(device).unwrap_or(u32::MAX), handle);
        self.commit(inner, Change::TextureObjectGone { device, handle }, 0, None);
    }
}
