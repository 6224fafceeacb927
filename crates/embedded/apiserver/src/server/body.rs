//! Bodies of requests, from the connection to memory.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::{decode::BODY_AT_MOST, status::Failure};

/// A body that takes longer to arrive is not waited for.
const DEADLINE: Duration = Duration::from_mins(1);
/// How much of a body that is too large is read and forgotten. Most clients do not read the response before they have
/// sent all; one whose connection is closed meanwhile would not see why.
const FORGOTTEN_AT_MOST: usize = 4 * BODY_AT_MOST;
/// How much is read of the body of a request that is forbidden.
const SKIPPED_AT_MOST: usize = 64 << 10;
/// How long either may take.
const FORGETTING: Duration = Duration::from_secs(5);

/// A body to its end, if it is not too large.
pub(super) async fn read<B: Body<Data = Bytes> + Unpin>(body: B) -> Result<Bytes, Failure>
where
    B::Error: std::fmt::Display,
{
    let late = || Failure::new(408, "Timeout", "the body of the request took too long to arrive");
    tokio::time::timeout(DEADLINE, collect(body)).await.unwrap_or_else(|_| Err(late()))
}

async fn collect<B: Body<Data = Bytes> + Unpin>(mut body: B) -> Result<Bytes, Failure>
where
    B::Error: std::fmt::Display,
{
    let (mut pieces, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::bad_request(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length > BODY_AT_MOST {
            drop(pieces);
            let _ = tokio::time::timeout(FORGETTING, forget(body, FORGOTTEN_AT_MOST)).await;
            return Err(Failure::too_large(BODY_AT_MOST));
        }
        pieces.push(data);
    }
    Ok(match pieces.len() {
        // Most bodies are one piece, and need no copy.
        0 | 1 => pieces.pop().unwrap_or_default(),
        _ => pieces.concat().into(),
    })
}

/// Reads the body of a request that is refused, unless it is long; whether it was read to its end, so that the
/// connection can be used again.
pub(super) async fn skip<B: Body<Data = Bytes> + Unpin>(body: B) -> bool {
    if body.size_hint().lower() > SKIPPED_AT_MOST as u64 {
        return false;
    }
    tokio::time::timeout(FORGETTING, forget(body, SKIPPED_AT_MOST)).await.unwrap_or(false)
}

/// Reads and forgets up to so many bytes; whether that was all.
async fn forget<B: Body<Data = Bytes> + Unpin>(mut body: B, most: usize) -> bool {
    let mut left = most;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let length = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(length) else { return false };
        left = rest;
    }
    true
}
