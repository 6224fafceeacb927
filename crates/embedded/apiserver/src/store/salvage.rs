//! What can be saved of a data directory that is not complete.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::{
    StoreError,
    directory::{Directory, FIRST},
    log::{Record, read_records, read_scattered, record_rv, replay},
    state::State,
};

/// What a recovery kept and what it could not.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// Objects that are there.
    pub objects: usize,
    /// What is lost, in sentences. Empty if nothing was missing.
    pub losses: Vec<String>,
    /// Where the files are now that were there before; `None` if nothing was missing.
    pub kept: Option<PathBuf>,
}

impl Directory {
    /// Replaces what is there by a snapshot of all that can be read of it. The files are kept in a directory beside.
    pub(super) fn salvage(&self) -> Result<Salvaged, StoreError> {
        let mut state = State::new(FIRST - 1);
        let mut losses = Vec::new();
        let snapshots = self.files("snapshot-").map_err(self.failed("list"))?;
        let segments = self.files("log-").map_err(self.failed("list"))?;
        let snapshot_rv = self.salvage_snapshot(&mut state, snapshots.last(), &mut losses)?;
        if snapshot_rv.is_none() && segments.first().is_none_or(|(first, _)| *first > FIRST) {
            let since = segments.first().map_or(0, |(first, _)| *first);
            losses.push(format!(
                "there is no snapshot: objects that were not changed since version {since} are lost, and objects that \
                 were deleted before may be back"
            ));
        }
        for (_, path) in &segments {
            let bytes = fs::read(path).map_err(self.failed("read the log in"))?;
            let bad = read_scattered(&bytes, |record| {
                let rv = record_rv(&record);
                if rv <= state.rv {
                    return;
                }
                if rv > state.rv + 1 && (snapshot_rv.is_some() || state.rv >= FIRST) {
                    losses.push(format!(
                        "the changes of the versions {} to {} are lost",
                        state.rv + 1,
                        rv - 1
                    ));
                }
                replay(&mut state, record);
            });
            if bad > 0 {
                losses.push(format!("{bad} bytes of {} cannot be read", path.display()));
            }
        }
        // Clients must not see a version twice, whatever was lost at the end.
        let newest = segments.iter().chain(&snapshots).map(|(number, _)| *number).max().unwrap_or(0);
        let rv = state.rv.max(newest).max(self.newest().unwrap_or(0)) + GENEROUS;
        self.replace(&state, rv, losses)
    }

    fn salvage_snapshot(
        &self,
        state: &mut State,
        snapshot: Option<&(u64, PathBuf)>,
        losses: &mut Vec<String>,
    ) -> Result<Option<u64>, StoreError> {
        let Some((number, path)) = snapshot else { return Ok(None) };
        let mut is_whole = false;
        let file = File::open(path).map_err(self.failed("open the snapshot in"))?;
        read_records(file, |record| {
            match record {
                Record::End { .. } => is_whole = true,
                other => replay(state, other),
            }
            Ok(())
        })
        .map_err(self.failed("read the snapshot in"))?;
        if !is_whole {
            losses.push(format!("{} is damaged: some of its objects are lost", path.display()));
        }
        state.rebase(*number);
        Ok(Some(*number))
    }

    /// Keeps the files aside and replaces them by a snapshot of the state. Whenever this is interrupted, either is there.
    fn replace(&self, state: &State, rv: u64, losses: Vec<String>) -> Result<Salvaged, StoreError> {
        let failed = || self.failed("keep the files of");
        let kept = (1..=u32::MAX)
            .map(|number| self.path.join(format!("before-recovery-{number}")))
            .find(|path| !path.exists())
            .unwrap_or_else(|| self.path.join("before-recovery"));
        fs::create_dir(&kept).map_err(failed())?;
        for prefix in ["snapshot-", "log-"] {
            for (_, path) in self.files(prefix).map_err(failed())? {
                keep(&path, &kept).map_err(failed())?;
            }
        }
        let objects = state.objects();
        self.write_snapshot(rv, rv + 1, &objects)?;
        self.new_segment(rv + 1)?;
        Ok(Salvaged { objects: objects.len(), losses, kept: Some(kept) })
    }
}

/// Gives a file a second name in a directory, or copies it where that cannot be.
fn keep(path: &Path, directory: &Path) -> io::Result<()> {
    let other = directory.join(path.file_name().unwrap_or_default());
    fs::hard_link(path, &other).or_else(|_| fs::copy(path, &other).map(drop))
}

/// Versions that are skipped after a recovery: more than any batch that a lost end can have had.
const GENEROUS: u64 = 1_000_000;
