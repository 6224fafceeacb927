//! Compression of long responses.

use std::io::Write as _;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Method, Response, header, request::Parts};

use crate::request::body::ResponseBody;

/// Shorter responses cost more to compress than to send.
const FROM: usize = 128 << 10;

/// The response to a read, compressed if it is long and the client accepts gzip. Watches never are: each of
/// their events has to arrive at once.
pub(crate) async fn compress(parts: &Parts, response: Response<ResponseBody>) -> Response<ResponseBody> {
    let is_long = match response.body() {
        ResponseBody::Whole(bytes) => bytes.as_ref().is_some_and(|bytes| bytes.len() > FROM),
        ResponseBody::Chunked(_) => true,
        ResponseBody::Stream(_) => false,
    };
    if !is_long
        || parts.method != Method::GET
        || !accepts_gzip(&parts.headers)
        || response.headers().contains_key(header::CONTENT_ENCODING)
    {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let packed = match body {
        ResponseBody::Whole(Some(bytes)) => {
            let plain = bytes.clone();
            // Megabytes take milliseconds; other requests need not wait for them.
            let Ok(Some(packed)) = tokio::task::spawn_blocking(move || gzip(&plain)).await else {
                return Response::from_parts(head, ResponseBody::whole(bytes));
            };
            ResponseBody::whole(packed)
        }
        ResponseBody::Chunked(pieces) => ResponseBody::Chunked(Box::new(Packed::new(pieces))),
        other => return Response::from_parts(head, other),
    };
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, packed)
}

/// A long body that is compressed as it is sent.
struct Packed<I> {
    pieces: I,
    /// Nothing at the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<I> Packed<I> {
    fn new(pieces: I) -> Self {
        Self { pieces, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
    }
}

impl<I: Iterator<Item = Bytes>> Iterator for Packed<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let encoder = self.encoder.as_mut()?;
        let Some(piece) = self.pieces.next() else {
            return self.encoder.take()?.finish().ok().map(Bytes::from);
        };
        // Writing into memory cannot fail. Often nothing comes out yet.
        let _ = encoder.write_all(&piece);
        Some(std::mem::take(encoder.get_mut()).into())
    }
}

fn gzip(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        parts.next() == Some("gzip") && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00"))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http::Request;
    use http_body_util::BodyExt as _;

    use super::*;

    async fn packed(accept: &str, method: &str, length: usize) -> Option<Vec<u8>> {
        packed_body(accept, method, ResponseBody::whole(vec![b'a'; length])).await
    }

    async fn packed_body(accept: &str, method: &str, body: ResponseBody) -> Option<Vec<u8>> {
        let request = Request::builder().method(method).header("accept-encoding", accept);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let response = Response::new(body);
        let response = compress(&parts, response).await;
        let is_packed = response.headers().get("content-encoding").is_some_and(|value| value == "gzip");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        is_packed.then(|| {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
            assert!(bytes.len() < plain.len() / 10);
            plain
        })
    }

    #[tokio::test]
    async fn what_is_made_while_it_is_sent_is_compressed_piece_by_piece() {
        let chunks = || std::iter::repeat_n(Bytes::from_static(&[b'a'; 1000]), 500);
        let body = ResponseBody::Chunked(Box::new(chunks()));
        assert_eq!(packed_body("gzip", "GET", body).await, Some(vec![b'a'; 500_000]));
        let body = ResponseBody::Chunked(Box::new(chunks()));
        assert_eq!(packed_body("identity", "GET", body).await, None);
    }

    #[tokio::test]
    async fn long_reads_are_compressed_for_those_who_ask() {
        assert_eq!(packed("deflate, gzip;q=0.5", "GET", FROM + 1).await, Some(vec![b'a'; FROM + 1]));
        assert_eq!(packed("gzip", "GET", FROM).await, None, "not long enough");
        assert_eq!(packed("gzip", "POST", FROM + 1).await, None, "not a read");
        assert_eq!(packed("identity", "GET", FROM + 1).await, None);
        assert_eq!(packed("gzip;q=0", "GET", FROM + 1).await, None);
    }
}
