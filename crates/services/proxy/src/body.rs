//! Bodies of requests: complete in memory, because they may have to be sent again, and so bounded.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// All bodies together. Beyond that, requests are refused until others are done.
const TOTAL: usize = 256 << 20;

/// The unit in which memory is reserved.
const PAGE: usize = 16 << 10;

/// How long the next part of a body may take.
const STALL: Duration = Duration::from_secs(30);

/// The memory that bodies may take.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Semaphore>);

/// A body, and the memory reserved for it.
pub(crate) struct Buffered {
    pub(crate) bytes: Bytes,
    _reserved: Option<OwnedSemaphorePermit>,
}

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the request body is larger than {} MiB", .0 >> 20)]
    TooLarge(usize),
    #[error("request bodies take all the memory that they may; try again")]
    Busy,
    #[error("the request body did not arrive in time")]
    Stalled,
    #[error("Failed to read request body")]
    Broken,
}

impl BodyError {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Stalled => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::BAD_REQUEST,
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(TOTAL / PAGE)))
    }
}

impl Memory {
    /// Reads a body of at most `limit` bytes.
    pub(crate) async fn read<B>(&self, mut body: B, limit: usize) -> Result<Buffered, BodyError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        if body.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
            return Err(BodyError::TooLarge(limit));
        }
        let mut bytes = BytesMut::new();
        let mut reserved: Option<OwnedSemaphorePermit> = None;
        loop {
            let frame = tokio::time::timeout(STALL, body.frame()).await.map_err(|_| BodyError::Stalled)?;
            let Some(frame) = frame else { break };
            let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
            if bytes.len() + data.len() > limit {
                return Err(BodyError::TooLarge(limit));
            }
            let needed = (bytes.len() + data.len()).div_ceil(PAGE);
            let missing =
                needed.saturating_sub(reserved.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
            if missing > 0 {
                let missing = u32::try_from(missing).map_err(|_| BodyError::TooLarge(limit))?;
                let more =
                    Arc::clone(&self.0).try_acquire_many_owned(missing).map_err(|_| BodyError::Busy)?;
                match &mut reserved {
                    Some(reserved) => reserved.merge(more),
                    None => reserved = Some(more),
                }
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Buffered { bytes: bytes.freeze(), _reserved: reserved })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};

    use super::*;

    fn chunks(count: usize) -> impl Body<Data = Bytes, Error = std::io::Error> + Unpin {
        let chunk = Bytes::from(vec![0; 1 << 20]);
        let frames = std::iter::repeat_n(chunk, count).map(|chunk| Ok(http_body::Frame::data(chunk)));
        StreamBody::new(futures::stream::iter(frames))
    }

    #[tokio::test]
    async fn bodies_are_limited_alone_and_together() {
        let memory = Memory::default();
        let error = memory.read(Full::new(Bytes::from("12345")), 4).await.err();
        assert_eq!(error, Some(BodyError::TooLarge(4)));
        let error = memory.read(chunks(3), 2 << 20).await.err();
        assert_eq!(error, Some(BodyError::TooLarge(2 << 20)));
        let first = memory.read(chunks(200), TOTAL).await.ok();
        assert_eq!(memory.read(chunks(100), TOTAL).await.err(), Some(BodyError::Busy));
        assert!(first.is_some_and(|first| first.bytes.len() == 200 << 20));
        assert!(memory.read(chunks(100), TOTAL).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_is_given_up() {
        let body =
            StreamBody::new(futures::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>());
        assert_eq!(Memory::default().read(body, 10).await.err(), Some(BodyError::Stalled));
    }
}
