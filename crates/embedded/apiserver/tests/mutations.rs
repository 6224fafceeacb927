//! Valid requests, damaged at random: each is answered, soon, and every bad one with a Status that says why.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/requests.rs"]
mod requests;

use quintet_apiserver::{Api, Clock, Rng};
use requests::{answered, parse};

/// The requests of `tests/requests`, one of each kind.
fn valid() -> Vec<Vec<u8>> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/requests");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// An index into something of this length, or zero.
fn index(rng: &Rng, length: usize) -> usize {
    usize::try_from(rng.below(u64::try_from(length).unwrap())).unwrap()
}

/// Pieces that mean something to somebody.
const PIECES: [&[u8]; 20] = [
    b"null",
    b"-1",
    b"99999999999999999999",
    b"1e400",
    b"\"\"",
    b"{}",
    b"[]",
    b"[[[[[[[[",
    b"\"\\ud800\"",
    b"\xff\xfe",
    b"../..",
    b"%00",
    b"\0",
    b"$patch",
    b"9223372036854775807",
    b"k8s\0",
    b"&a [*a,*a]",
    b"self.all(x, self.all(y, true))",
    b"kube-system",
    b"\xf0\x9f\xa6\x80",
];

fn damage(text: &[u8], rng: &Rng) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..=index(rng, 3) {
        let at = index(rng, text.len() + 1);
        let end = (at + index(rng, 8)).min(text.len());
        match index(rng, 4) {
            0 => drop(text.drain(at..end)),
            1 => drop(text.splice(at..end, PIECES[index(rng, PIECES.len())].iter().copied())),
            2 => {
                let copy = text[at..end].repeat(1 + index(rng, 20));
                drop(text.splice(at..at, copy));
            }
            _ if at < text.len() => text[at] ^= 1 << index(rng, 8),
            _ => {}
        }
    }
    text
}

#[tokio::test]
async fn damaged_requests_are_answered() {
    let template = Api::in_memory(&[]).await.unwrap();
    let valid = valid();
    // More of them, or others: MUTATIONS=FIRST..LAST.
    let range = std::env::var("MUTATIONS").ok();
    let range = range.as_deref().and_then(|range| range.split_once(".."));
    let range =
        range.and_then(|(first, last)| Some(first.parse().ok()?..last.parse().ok()?)).unwrap_or(0..3000_u64);
    let mut api = template.fork(Clock::system(), Rng::seeded(0));
    for seed in range {
        if seed % 500 == 0 {
            api.stop().await;
            api = template.fork(Clock::system(), Rng::seeded(seed));
        }
        let rng = Rng::seeded(seed);
        let request = damage(&valid[index(&rng, valid.len())], &rng);
        if let Some(request) = parse(&request) {
            answered(&api, request, &format!("seed {seed}")).await;
        }
    }
}

#[tokio::test]
async fn the_requests_that_are_damaged_are_valid() {
    let api = Api::in_memory(&[]).await.unwrap();
    for request in valid() {
        let shown = String::from_utf8_lossy(&request).into_owned();
        let code = answered(&api, parse(&request).unwrap(), &shown).await;
        assert!(code < 400, "{code}: {shown}");
    }
}
