//! Arrays, texture objects and surface objects of a card's clients.
//!
//! A client names what is its own: arrays by its numbers, memory by addresses that it may read. The
//! handles of objects are the driver's, and one table has those of all clients. A kernel that uses
//! a handle which its client was not given is not stopped, as with addresses.

use super::Card;
use crate::context::{CardArray, ContextClient, ObjectKind, Unused};
use crate::driver::{CardAddress, Shown};
use crate::quiet::NotQuiet;
use cumux_abi::CUarray_format;
use cumux_device::{ArrayWish, ClientId, DeviceError, ObjectWish, Resource, Textures};
use cumux_ranges::Access;
use cumux_wire::texture::Channel;
use std::sync::Arc;

/// An array of a client, held while the driver is given its handle.
type Held = Option<Arc<CardArray>>;

impl Textures for Card {
    fn create_array(&self, client: ClientId, array: u32, wish: &ArrayWish) -> Result<(), DeviceError> {
        self.require_context()?;
        let owner = self.client(client)?;
        if owner.textures.read().arrays.contains_key(&array) {
            return Err(DeviceError::Invalid(format!("client {client} has an array {array} already")));
        }
        let create = || {
            // Memory that nobody uses any more may be needed.
            self.discards.destroy_all();
            CardArray::create(&self.shared.driver, wish, &self.discards)
        };
        let made = self.check_loss(self.shared.gate.run_quietly(Some(&owner.counts), create).map_err(NotQuiet::into_error)?)?;
        self.check_loss(made.scrub(&self.extents))?;
        owner.textures.write().arrays.insert(array, Arc::new(made));
        self.require_open(client, &owner)
    }

    fn destroy_array(&self, client: ClientId, array: u32) {
        let Ok(owner) = self.client(client) else { return };
        // A separate statement, so that the lock is released before the array is dropped.
        let gone = owner.textures.write().arrays.remove(&array);
        drop(gone);
    }

    fn create_object(&self, client: ClientId, wish: &ObjectWish) -> Result<u64, DeviceError> {
        self.require_context()?;
        let owner = self.client(client)?;
        let (shown, _held) = self.check_loss(find_shown(&owner, &wish.resource))?;
        let driver = &self.shared.driver;
        let create = || match &wish.texture {
            Some(texture) => driver.create_texture(&shown, texture, wish.view.as_ref()),
            None => driver.create_surface(&shown),
        };
        let made = self.shared.gate.run_quietly(Some(&owner.counts), create).map_err(NotQuiet::into_error)?;
        let made = made.map_err(|error| self.extents.describe_failure("a texture or surface object", error));
        let handle = self.check_loss(made)?;
        let kind = if wish.texture.is_some() { ObjectKind::Texture } else { ObjectKind::Surface };
        owner.textures.write().objects.insert(handle, kind);
        self.require_open(client, &owner).map(|()| handle)
    }

    fn destroy_object(&self, client: ClientId, handle: u64) {
        let Ok(owner) = self.client(client) else { return };
        let gone = owner.textures.write().objects.remove(&handle);
        if let Some(kind) = gone {
            self.discards.put(Unused::Object(handle, kind));
        }
    }
}

impl Card {
    /// Discards what was just made if the client was closed meanwhile: nothing else would.
    fn require_open(&self, client: ClientId, owner: &ContextClient) -> Result<(), DeviceError> {
        if self.client(client).is_ok_and(|known| std::ptr::eq(&raw const *known, owner)) {
            return Ok(());
        }
        self.discard_textures(owner);
        Err(DeviceError::Invalid(format!("client {client} was closed while the driver made something for it")))
    }

    /// Discards everything that the driver has made for a client.
    pub(super) fn discard_textures(&self, owner: &ContextClient) {
        let textures = std::mem::take(&mut *owner.textures.write());
        for (handle, kind) in &textures.objects {
            self.discards.put(Unused::Object(*handle, *kind));
        }
        drop(textures.arrays);
    }
}

/// Finds what an object of a client shows. The array must be held until the object is made.
fn find_shown(owner: &ContextClient, resource: &Resource) -> Result<(Shown, Held), DeviceError> {
    let find = |array: u32| {
        let found = owner.textures.read().arrays.get(&array).cloned();
        found.ok_or_else(|| DeviceError::Invalid(format!("client {} has no array {array}", owner.id)))
    };
    match *resource {
        Resource::Array { array, level } => {
            let array = find(array)?;
            let level = array.levels.get(level as usize).copied();
            let level = level.ok_or_else(|| DeviceError::Invalid("the array has no such level".into()))?;
            Ok((Shown::Array(level), Some(array)))
        }
        Resource::Mipmapped { array } => {
            let array = find(array)?;
            let mipmapped = array.mipmapped.ok_or_else(|| DeviceError::Invalid("the array has no levels".into()))?;
            Ok((Shown::Mipmapped(mipmapped), Some(array)))
        }
        Resource::Linear { address, format, channels, bytes } => {
            let address = find_texels(owner, address, bytes)?;
            Ok((Shown::Linear { address, format, channels, bytes }, None))
        }
        Resource::Pitched { address, format, channels, size } => {
            let [width, height, pitch] = size;
            let texel = Channel::of(CUarray_format(format)).map_or(0, |channel| u64::from(channel.bytes()) * u64::from(channels));
            let row = width.checked_mul(texel).filter(|row| *row > 0 && height > 0);
            let bytes = row.and_then(|row| pitch.checked_mul(height - 1)?.checked_add(row));
            let bytes = bytes.ok_or_else(|| DeviceError::Invalid("a texture without texels".into()))?;
            let address = find_texels(owner, address, bytes)?;
            Ok((Shown::Pitched { address, format, channels, size }, None))
        }
    }
}

/// Finds memory that a texture shows: all of it is the client's, and the card reaches it.
fn find_texels(owner: &ContextClient, address: u64, bytes: u64) -> Result<CardAddress, DeviceError> {
    let found = owner.permissions.read().translate(address, bytes, Access::Read);
    let found = found.map_err(|at| DeviceError::Invalid(format!("a texture shows {at:#x}, which is no memory of client {}", owner.id)))?;
    let window = owner.window.read().clone();
    if let Some(window) = window.filter(|window| window.contains(found, bytes) && !window.is_registered(found, bytes)) {
        window.register(found, bytes)?;
    }
    Ok(found)
}
