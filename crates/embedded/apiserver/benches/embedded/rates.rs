//! Requests per second over HTTPS. Every client has a connection of its own and waits for each answer.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use crate::{Error, Program, Scratch, Storage, bare, connection::Target, requests::Operation};

const ROUND: Duration = Duration::from_secs(3);

pub(crate) async fn measure(program: &Path) -> Result<(), Error> {
    let scratch = [Scratch::new("rates-memory")?, Scratch::new("rates-disk")?];
    let memory = Program::start(program, &scratch[0].0, Storage::Memory)?;
    let disk = Program::start(program, &scratch[1].0, Storage::Disk)?;
    let other = std::env::var_os("KUBECONFIG_UNDER_TEST");
    let mut targets = vec![
        ("bare", bare::serve().await?),
        ("in memory", Target::of_kubeconfig(&memory.kubeconfig)?),
        ("durable", Target::of_kubeconfig(&disk.kubeconfig)?),
    ];
    if let Some(path) = other {
        targets.push(("other", Target::of_kubeconfig(Path::new(&path))?));
    }
    print!("{:18} {:>7}", "per second", "clients");
    for (name, _) in &targets {
        print!("{name:>11}");
    }
    for (name, _) in targets.iter().skip(1) {
        print!("{:>16}", format!("{name}/bare"));
    }
    println!();
    for clients in [1, 64] {
        for operation in Operation::ALL {
            let mut rates = Vec::new();
            for (_, target) in &targets {
                rates.push(rate(target, operation, clients).await?);
            }
            let reference = rates[0];
            print!("{:18} {clients:>7}", operation.name());
            for rate in &rates {
                print!("{rate:11.0}");
            }
            for rate in rates.iter().skip(1) {
                print!("{:16.2}", rate / reference);
            }
            println!();
        }
    }
    Ok(())
}

async fn rate(target: &Target, operation: Operation, clients: usize) -> Result<f64, Error> {
    let mut connections = Vec::new();
    for client in 0..clients {
        let mut connection = target.connect().await?;
        if let Some(request) = operation.preparation(&name(clients, client))? {
            connection.send(request).await?;
        }
        connections.push(connection);
    }
    let mut tasks = tokio::task::JoinSet::new();
    let began = Instant::now();
    for (client, mut connection) in connections.into_iter().enumerate() {
        let client = name(clients, client);
        tasks.spawn(async move {
            let mut count = 0;
            while began.elapsed() < ROUND {
                connection.send(operation.request(&client, count)?).await?;
                count += 1;
            }
            Ok::<_, Error>(count)
        });
    }
    let mut total = 0;
    while let Some(outcome) = tasks.join_next().await {
        total += outcome??;
    }
    Ok(total as f64 / began.elapsed().as_secs_f64())
}

fn name(clients: usize, client: usize) -> String {
    format!("of-{clients}-{client}")
}
