//! An image whose kernels are loaded one by one, when clients are about to launch them.
//!
//! What is not loaded costs nothing: memory of the card, time to load it, and time that the driver
//! takes to announce a fault (decision 0119). Only images that all clients can share are divided:
//! nothing in them can change, so it does not matter that each excerpt has its own copy of what is
//! neither code nor parameter.

use cumux_device::DeviceError;
use cumux_fatbin::cubin::{Division, Undivided};
use cumux_wire::result;
use parking_lot::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::collections::HashMap;

/// Bytes of the smallest image that is divided. Each kernel that is loaded by itself needs a quiet
/// card once more.
const LEAST_BYTES: usize = 512 << 10;

/// An image that is divided.
pub(super) struct DividedImage {
    image: Vec<u8>,
    division: Division,
    /// The index in the division of each kernel, in the driver's order.
    functions: Vec<usize>,
    /// Held by the thread that loads a kernel of it. Lock 1 of the crate's order.
    loading: Mutex<()>,
}

impl DividedImage {
    /// Divides machine code that is worth it, and can be divided.
    pub(super) fn of(image: Cow<'_, [u8]>) -> Option<DividedImage> {
        if image.len() < LEAST_BYTES {
            return None;
        }
        let division = Division::read(&image).inspect_err(|why| tracing::debug!("an image of {} bytes is loaded as a whole: {why}", image.len())).ok()?;
        (division.functions().len() > 1).then(|| DividedImage { image: image.into_owned(), division, functions: Vec::new(), loading: Mutex::default() })
    }

    /// The size of the image.
    pub(super) fn bytes(&self) -> usize {
        self.image.len()
    }

    /// The image without code.
    pub(super) fn outline(&self) -> Result<Vec<u8>, DeviceError> {
        self.division.outline(&self.image).map_err(damaged)
    }

    /// Notes the order of the kernels.
    ///
    /// # Errors
    /// The division does not know one of them.
    pub(super) fn number_functions<'a>(&mut self, kernels: impl Iterator<Item = &'a str>) -> Result<(), DeviceError> {
        let names = self.division.functions();
        let indices: HashMap<&str, usize> = names.iter().map(String::as_str).zip(0..).collect();
        let find =
            |name: &str| indices.get(name).copied().ok_or_else(|| DeviceError::Invalid(format!("the outline has a kernel {name} that its image has not")));
        self.functions = kernels.map(find).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The image with the code of one kernel, by its place in the driver's order.
    pub(super) fn excerpt(&self, kernel: usize) -> Result<Vec<u8>, DeviceError> {
        let function = self.functions.get(kernel).copied().unwrap_or(usize::MAX);
        self.division.excerpt(&self.image, function).map_err(damaged)
    }

    /// Waits until no other thread loads a kernel of this image.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.loading.lock()
    }
}

fn damaged(why: Undivided) -> DeviceError {
    DeviceError::Image { result: result::INVALID_IMAGE, text: why.to_string() }
}
