//! One change to many watchers: how many events arrive per second, and how long one takes.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::json;
use tokio::sync::mpsc;

use crate::{
    Error, Program, Scratch, Storage,
    connection::Target,
    requests::{MAPS, create, patch},
};

const CHANGES: usize = 2000;
/// Changes whose way is timed, one after the other.
const TIMED: usize = 300;

pub(crate) async fn measure(program: &Path) -> Result<(), Error> {
    println!(
        "{:>8} {:>12} {:>12} {:>8} {:>10} {:>10} {:>10}",
        "watchers", "changes/s", "events/s", "ratio", "p50 ms", "p99 ms", "most ms"
    );
    let mut reference = None;
    for watchers in [1, 100] {
        let scratch = Scratch::new("watch")?;
        let running = Program::start(program, &scratch.0, Storage::Memory)?;
        let target = Target::of_kubeconfig(&running.kubeconfig)?;
        let (events, mut seen) = mpsc::channel(4096);
        for _ in 0..watchers {
            let path = format!("{MAPS}?watch=true&resourceVersion=0");
            let request = Request::get(path).header("host", "localhost").body(Full::default())?;
            let mut connection = target.connect().await?;
            let body = connection.open(request).await?;
            let events = events.clone();
            tokio::spawn(async move {
                // The connection lives as long as its answer.
                let _connection = connection;
                follow(body, events).await;
            });
        }
        let mut writer = target.connect().await?;
        // Everybody has seen it: everybody watches.
        writer.send(create("changed")?).await?;
        await_events(&mut seen, "ADDED-", watchers).await?;

        let began = Instant::now();
        for number in 0..CHANGES {
            change(&mut writer, number).await?;
        }
        let written = began.elapsed();
        await_events(&mut seen, &format!("{}-", CHANGES - 1), watchers).await?;
        let arrived = began.elapsed();

        let mut delays = Vec::new();
        for number in CHANGES..CHANGES + TIMED {
            let began = Instant::now();
            change(&mut writer, number).await?;
            for delay in await_events(&mut seen, &format!("{number}-"), watchers).await? {
                delays.push(delay.duration_since(began).as_secs_f64() * 1000.0);
            }
        }
        delays.sort_by(f64::total_cmp);
        let at = |part: usize| delays[(delays.len() * part / 100).min(delays.len() - 1)];
        let changes = CHANGES as f64 / written.as_secs_f64();
        let rate = (CHANGES * watchers) as f64 / arrived.as_secs_f64();
        let ratio = rate / *reference.get_or_insert(rate);
        println!(
            "{watchers:8} {changes:12.0} {rate:12.0} {ratio:8.1} {:10.2} {:10.2} {:10.2}",
            at(50),
            at(99),
            at(100)
        );
    }
    println!(
        "changes one after the other by one client; ratio: to one watcher; ms from the request to the event"
    );
    Ok(())
}

async fn change(writer: &mut crate::connection::Connection, number: usize) -> Result<(), Error> {
    let change = json!({"data": {"n": format!("{number}-")}});
    writer.send(patch(&format!("{MAPS}/changed"), "application/merge-patch+json", &change)?).await.map(drop)
}

/// Reports what each event is of, and when it arrived.
async fn follow(mut body: Incoming, events: mpsc::Sender<(String, Instant)>) {
    let mut text = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let at = Instant::now();
        text.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let Some(mark) = mark(&line) else { continue };
            if events.send((mark, at)).await.is_err() {
                return;
            }
        }
    }
}

/// The number that a change wrote, or `ADDED-`. Not parsed: the clients must not be what is measured.
fn mark(line: &[u8]) -> Option<String> {
    let line = std::str::from_utf8(line).ok()?;
    if !line.contains(r#""name":"changed""#) {
        return None;
    }
    let rest = match line.split_once(r#""n":""#) {
        Some((_, rest)) => rest.split('"').next()?,
        None => "ADDED-",
    };
    Some(rest.to_owned())
}

/// Waits until every watcher has seen something; when each did.
async fn await_events(
    seen: &mut mpsc::Receiver<(String, Instant)>,
    wanted: &str,
    watchers: usize,
) -> Result<Vec<Instant>, Error> {
    let mut times = Vec::new();
    while times.len() < watchers {
        let next = tokio::time::timeout(Duration::from_secs(30), seen.recv()).await;
        let (mark, at) = next.map_err(|_| "a watcher saw nothing for 30 s")?.ok_or("all watchers ended")?;
        if mark == wanted {
            times.push(at);
        }
    }
    Ok(times)
}
