//! What many objects take of memory.

use std::{path::Path, time::Instant};

use crate::{
    Error, Program, Scratch, Storage,
    connection::Target,
    requests::{MAPS, create},
};

const OBJECTS: usize = 100_000;
const CLIENTS: usize = 64;

pub(crate) async fn measure(program: &Path) -> Result<(), Error> {
    println!(
        "{:12} {:>10} {:>12} {:>10} {:>14} {:>8}",
        "", "before MB", "100,000 MB", "seconds", "bytes/object", "ratio"
    );
    for (name, storage) in [("in memory", Storage::Memory), ("durable", Storage::Disk)] {
        let scratch = Scratch::new("memory")?;
        let running = Program::start(program, &scratch.0, storage)?;
        let (before, _) = running.memory()?;
        let target = Target::of_kubeconfig(&running.kubeconfig)?;
        let began = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for client in 0..CLIENTS {
            let mut connection = target.connect().await?;
            tasks.spawn(async move {
                for number in (client..OBJECTS).step_by(CLIENTS) {
                    connection.send(create(&format!("map-{number}"))?).await?;
                }
                Ok::<_, Error>(())
            });
        }
        while let Some(outcome) = tasks.join_next().await {
            outcome??;
        }
        let seconds = began.elapsed().as_secs_f64();
        let (after, _) = running.memory()?;
        let path = format!("{MAPS}/map-0");
        let one =
            http::Request::get(path).header("host", "localhost").body(http_body_util::Full::default())?;
        let size = target.connect().await?.send(one).await?.len();
        let per_object = (after - before) * 1024.0 * 1024.0 / OBJECTS as f64;
        let ratio = per_object / size as f64;
        println!("{name:12} {before:10.1} {after:12.1} {seconds:10.1} {per_object:14.0} {ratio:8.2}");
    }
    println!("ratio: to the bytes of one object as its readers get it");
    Ok(())
}
