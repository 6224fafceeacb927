//! The bodies of requests, in bounded memory.

use std::sync::Arc;

use axum::{body::Body, http::StatusCode};
use futures::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// An object has at most 1.5 MiB in etcd, and a review holds two of them as JSON; a conversion holds a page
/// of a list.
const BODY_LIMIT: usize = 32 << 20;

/// What all requests together may hold: every client that reaches the port can send bodies.
const TOTAL_KIB: usize = 256 << 10;

/// The memory for the bodies of requests in progress. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct BodyMemory {
    free_kib: Arc<Semaphore>,
}

/// Why a body is not accepted.
pub(super) type Rejection = (StatusCode, String);

/// A request's share of the memory, until it is dropped.
#[derive(Debug)]
pub(super) struct Share(Option<OwnedSemaphorePermit>);

impl Default for BodyMemory {
    fn default() -> Self {
        Self::new(TOTAL_KIB)
    }
}

impl BodyMemory {
    fn new(kib: usize) -> Self {
        Self { free_kib: Arc::new(Semaphore::new(kib)) }
    }

    /// Reads a body. What has arrived counts, not what was announced: an announcement costs a client nothing.
    pub(super) async fn read(&self, body: Body) -> Result<(Vec<u8>, Share), Rejection> {
        let (mut bytes, mut share) = (Vec::new(), Share(None));
        let mut chunks = body.into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| {
                (StatusCode::BAD_REQUEST, format!("cannot read the request body: {error}"))
            })?;
            let length = bytes.len() + chunk.len();
            if length > BODY_LIMIT {
                let text = format!("the request body has more than {} MiB", BODY_LIMIT >> 20);
                return Err((StatusCode::PAYLOAD_TOO_LARGE, text));
            }
            self.extend(&mut share, length.div_ceil(1024))?;
            bytes.extend_from_slice(&chunk);
        }
        Ok((bytes, share))
    }

    fn extend(&self, share: &mut Share, kib: usize) -> Result<(), Rejection> {
        let held = share.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let exhausted = || {
            let text = "too many large requests at a time; try again";
            (StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
        };
        let more = u32::try_from(kib.saturating_sub(held)).map_err(|_| exhausted())?;
        let permit = Arc::clone(&self.free_kib).try_acquire_many_owned(more).map_err(|_| exhausted())?;
        match &mut share.0 {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(memory: &BodyMemory, length: usize) -> Result<(Vec<u8>, Share), StatusCode> {
        let chunks = vec![b' '; length];
        let chunks: Vec<_> =
            chunks.chunks(1000).map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec())).collect();
        let body = Body::from_stream(futures::stream::iter(chunks));
        memory.read(body).await.map_err(|(status, _)| status)
    }

    #[tokio::test]
    async fn bodies_beyond_the_memory_are_refused_until_others_are_done() {
        let memory = BodyMemory::new(10);
        let (bytes, first) = read(&memory, 6 << 10).await.unwrap();
        assert_eq!(bytes.len(), 6 << 10);
        assert_eq!(read(&memory, 5 << 10).await.unwrap_err(), StatusCode::SERVICE_UNAVAILABLE);
        let (_, second) = read(&memory, 4 << 10).await.expect("a refused body holds nothing");
        drop((first, second));
        assert!(read(&memory, 10 << 10).await.is_ok());
        assert_eq!(memory.free_kib.available_permits(), 10);
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_refused() {
        let memory = BodyMemory::default();
        assert!(read(&memory, BODY_LIMIT).await.is_ok());
        assert_eq!(read(&memory, BODY_LIMIT + 1).await.unwrap_err(), StatusCode::PAYLOAD_TOO_LARGE);
    }
}
