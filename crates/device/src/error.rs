//! Why a device refuses a request.

/// Why a device refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The card is full, or the client's limit is reached.
    #[error("out of device memory: {0}")]
    OutOfMemory(String),
    /// An argument has an impossible value; the text says which.
    #[error("{0}")]
    Invalid(String),
    /// An image that cannot be loaded.
    #[error("{text}")]
    Image {
        /// The `CUresult`.
        result: u32,
        /// The reason, with line and column where the image is PTX.
        text: String,
    },
    /// The device lacks this ability.
    #[error("not supported by this device: {0}")]
    NotSupported(String),
    /// The kernel or the driver refuses.
    #[error("the operating system refused: {0}")]
    System(String),
    /// The device has let go of this client: it goes on in another executor, which does this again.
    #[error("the client goes on in another process: {0}")]
    LetGo(String),
    /// The device could not be opened. The process serves its other devices.
    #[error("the device cannot be used: {0}")]
    Unavailable(String),
    /// The device is lost; the executor must be replaced.
    #[error("the device is lost: {0}")]
    Lost(String),
}

impl DeviceError {
    /// The `CUresult` for the client's call. The one place where device errors become result codes.
    #[must_use]
    pub fn result(&self) -> u32 {
        use cumux_wire::result;
        match self {
            DeviceError::OutOfMemory(_) => result::OUT_OF_MEMORY,
            DeviceError::Invalid(_) => result::INVALID_VALUE,
            DeviceError::Image { result, .. } => *result,
            DeviceError::NotSupported(_) => result::NOT_SUPPORTED,
            DeviceError::System(_) => result::UNKNOWN,
            DeviceError::Unavailable(_) => result::DEVICE_UNAVAILABLE,
            DeviceError::Lost(_) | DeviceError::LetGo(_) => result::LOST,
        }
    }
}
