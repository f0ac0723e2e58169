//! Arrays, and texture and surface objects, of a device whose driver makes them.

use crate::error::DeviceError;
use crate::ids::ClientId;
use cumux_wire::record::{ArrayWish, ObjectWish};

/// Makes arrays and objects, where the device says so
/// ([`makes_textures`](crate::Capabilities::makes_textures)). What is made is of use in this
/// process alone, and goes with its client. Other devices execute texture instructions on
/// descriptions in the client's memory ([`cumux_wire::texture`]), or not at all.
///
/// Copies to and from arrays are work of a stream ([`crate::Work::ArrayCopy`]).
pub trait Textures {
    /// Makes an array of zeros, with a number that the client has chosen. It may take long: no
    /// thread that others wait for calls this.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for a number in use or an impossible array,
    /// [`DeviceError::OutOfMemory`] when the card is full.
    fn create_array(&self, client: ClientId, array: u32, wish: &ArrayWish) -> Result<(), DeviceError> {
        let _ = (client, array, wish);
        Err(DeviceError::NotSupported("arrays of its own".into()))
    }

    /// Destroys an array of which no work is under way. Objects of it are of no use any more.
    fn destroy_array(&self, client: ClientId, array: u32) {
        let _ = (client, array);
    }

    /// Makes a texture or surface object of what is the client's. Returns the handle that kernels
    /// get. It may take long, as [`Textures::create_array`].
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] for what is not the client's, and for an impossible object.
    fn create_object(&self, client: ClientId, wish: &ObjectWish) -> Result<u64, DeviceError> {
        let _ = (client, wish);
        Err(DeviceError::NotSupported("texture objects of its own".into()))
    }

    /// Destroys an object that no work under way uses.
    fn destroy_object(&self, client: ClientId, handle: u64) {
        let _ = (client, handle);
    }
}
