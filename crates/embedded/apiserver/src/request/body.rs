//! Response bodies: whole or streamed.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream::BoxStream};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyStream;
use hyper::body::Incoming;

use crate::status::Failure;

/// The body of a response.
pub enum ResponseBody {
    /// All of it; `None` once it was sent.
    Whole(Option<Bytes>),
    /// A long body, in pieces that are made as they are sent. After an empty one, the sender yields to other tasks.
    Chunked(Box<dyn Iterator<Item = Bytes> + Send>),
    /// Pieces as they happen, until the stream ends; the client notices if that is before the end of the body.
    Stream(BoxStream<'static, Result<Bytes, Failure>>),
}

impl ResponseBody {
    /// A body that is known.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()).filter(|bytes: &Bytes| !bytes.is_empty()))
    }

    /// A body that comes in pieces.
    pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::Stream(pieces.map(Ok).boxed())
    }

    /// A body that comes from another server.
    pub(crate) fn forwarded(body: Incoming) -> Self {
        let pieces = BodyStream::new(body).filter_map(async |frame| match frame {
            Ok(frame) => frame.into_data().ok().map(Ok),
            Err(error) => Some(Err(Failure::internal(error))),
        });
        Self::Stream(pieces.boxed())
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(bytes) => f.debug_tuple("Whole").field(&bytes.as_ref().map(Bytes::len)).finish(),
            Self::Chunked(_) => f.write_str("Chunked"),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Chunked(pieces) => match pieces.next() {
                // Making a piece takes its time, in which others wait.
                Some(bytes) if bytes.is_empty() => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                piece => Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes)))),
            },
            Self::Stream(pieces) => pieces.poll_next_unpin(context).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Chunked(_) | Self::Stream(_) => SizeHint::default(),
        }
    }
}
