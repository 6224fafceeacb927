//! From the start of the process to its first answer, and what it takes of memory then.

use std::{path::Path, time::Duration};

use crate::{Error, Program, Scratch, Storage};

const TIMES: usize = 5;
/// After this long the start has finished.
const SETTLED: Duration = Duration::from_secs(10);

pub(crate) fn measure(program: &Path) -> Result<(), Error> {
    println!(
        "{:12} {:>9} {:>9} {:>9} {:>10} {:>10} {:>8}",
        "", "ready ms", "least", "most", "idle MB", "peak MB", "ratio"
    );
    let mut reference = None;
    for (name, storage, is_restart) in [
        ("in memory", Storage::Memory, false),
        ("first start", Storage::Disk, false),
        ("restart", Storage::Disk, true),
    ] {
        let mut times = Vec::new();
        let mut memory = (0.0, 0.0);
        for round in 0..TIMES {
            let scratch = Scratch::new(&format!("start-{round}"))?;
            if is_restart {
                drop(Program::start(program, &scratch.0, storage)?);
            }
            let running = Program::start(program, &scratch.0, storage)?;
            times.push(running.ready_after.as_secs_f64() * 1000.0);
            if round == 0 {
                std::thread::sleep(SETTLED);
                memory = running.memory()?;
            }
        }
        times.sort_by(f64::total_cmp);
        let (least, median, most) = (times[0], times[TIMES / 2], times[TIMES - 1]);
        let reference = *reference.get_or_insert(median);
        let ratio = median / reference;
        println!(
            "{name:12} {median:9.0} {least:9.0} {most:9.0} {:10.1} {:10.1} {ratio:8.2}",
            memory.0, memory.1
        );
    }
    Ok(())
}
