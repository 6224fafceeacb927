//! What the annotations of a pod ask for.

use std::collections::BTreeMap;
use std::time::Duration;

use quintet_api::duration::GoDuration;
use serde::{Deserialize, Serialize};

/// Where the annotations live.
const PREFIX: &str = "node.quintet.dev/";

/// What the annotations of a pod ask for; see the [crate documentation](crate).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wishes {
    pub(crate) start_after: Duration,
    pub(crate) init_for: Duration,
    pub(crate) ready_after: Duration,
    pub(crate) run_for: Option<Duration>,
    pub(crate) exit_code: i32,
    pub(crate) stop_for: Duration,
    pub(crate) stuck: Option<String>,
    pub(crate) evict: Option<String>,
    /// What is wrong with the annotations.
    pub(crate) mistake: Option<String>,
}

impl Wishes {
    /// Reads the annotations of a pod; a mistake in one of them is kept for the pod's status.
    pub(crate) fn read(annotations: &BTreeMap<String, String>) -> Self {
        let mut wishes = Self::default();
        for (name, text) in annotations {
            if let Some(wish) = name.strip_prefix(PREFIX)
                && let Err(mistake) = wishes.take(wish, text)
            {
                wishes.mistake = Some(format!("annotation {name}: {mistake}"));
            }
        }
        wishes
    }

    fn take(&mut self, wish: &str, text: &str) -> Result<(), String> {
        let duration =
            || text.parse::<GoDuration>().map(|GoDuration(duration)| duration).map_err(|e| e.to_string());
        match wish {
            "start-after" => self.start_after = duration()?,
            "init-for" => self.init_for = duration()?,
            "ready-after" => self.ready_after = duration()?,
            "run-for" => self.run_for = Some(duration()?),
            "stop-for" => self.stop_for = duration()?,
            "exit-code" => {
                self.exit_code =
                    text.parse::<u8>().map_err(|_| format!("{text:?} is no exit code from 0 to 255"))?.into();
            }
            "stuck" => self.stuck = Some(text.to_owned()),
            "evict" => self.evict = Some(text.to_owned()),
            _ => return Err("there is no such wish".to_owned()),
        }
        Ok(())
    }
}
