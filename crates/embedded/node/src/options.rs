//! The options in a pod's annotations.

use std::collections::BTreeMap;
use std::time::Duration;

use quintet_api::duration::GoDuration;
use serde::{Deserialize, Serialize};

/// The prefix of all annotations.
const PREFIX: &str = "node.quintet.dev/";

/// The options in a pod's annotations; see the [crate documentation](crate).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    pub(crate) start_after: Duration,
    pub(crate) init_for: Duration,
    pub(crate) ready_after: Duration,
    pub(crate) run_for: Option<Duration>,
    pub(crate) exit_code: i32,
    pub(crate) stop_for: Duration,
    pub(crate) stuck: Option<String>,
    pub(crate) evict: Option<String>,
    /// What is invalid in the annotations.
    pub(crate) invalid: Option<String>,
}

impl Options {
    /// Reads the annotations of a pod; an invalid one is kept for the pod's status.
    pub(crate) fn read(annotations: &BTreeMap<String, String>) -> Self {
        let mut options = Self::default();
        for (name, text) in annotations {
            if let Some(option) = name.strip_prefix(PREFIX)
                && let Err(reason) = options.set(option, text)
            {
                options.invalid = Some(format!("annotation {name}: {reason}"));
            }
        }
        options
    }

    fn set(&mut self, option: &str, text: &str) -> Result<(), String> {
        let duration =
            || text.parse::<GoDuration>().map(|GoDuration(duration)| duration).map_err(|e| e.to_string());
        match option {
            "start-after" => self.start_after = duration()?,
            "init-for" => self.init_for = duration()?,
            "ready-after" => self.ready_after = duration()?,
            "run-for" => self.run_for = Some(duration()?),
            "stop-for" => self.stop_for = duration()?,
            "exit-code" => {
                self.exit_code = text
                    .parse::<u8>()
                    .map_err(|_| format!("{text:?} is not an exit code between 0 and 255"))?
                    .into();
            }
            "stuck" => self.stuck = Some(text.to_owned()),
            "evict" => self.evict = Some(text.to_owned()),
            _ => return Err("unknown annotation".to_owned()),
        }
        Ok(())
    }
}
