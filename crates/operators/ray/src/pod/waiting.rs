//! The init container that holds a worker back until the head answers.

use k8s_openapi::api::core::v1::Container;

use super::volumes::equal_resources;
use crate::settings::Settings;

pub(super) const NAME: &str = "wait-gcs-ready";

/// Asks the head every five seconds and never gives up; after two minutes it shows what the head says.
pub(super) fn for_head(ray: &Container, host: &str, port: &str, settings: &Settings) -> Container {
    let script = format!(
        r#"
SECONDS=0
while true; do
  if (( SECONDS <= 120 )); then
    if ray health-check --address {host}:{port} > /dev/null 2>&1; then
      echo "The head answers."
      break
    fi
    echo "$SECONDS seconds: the head does not answer yet."
  else
    if ray health-check --address {host}:{port}; then
      echo "The head answers; errors above are over."
      break
    fi
    echo "$SECONDS seconds: the head still does not answer. Look at the head pod and its Service."
  fi
  sleep 5
done
"#
    );
    Container {
        name: NAME.to_owned(),
        image: ray.image.clone(),
        image_pull_policy: ray.image_pull_policy.clone(),
        security_context: ray.security_context.clone(),
        command: Some(settings.shell()),
        args: Some(vec![script]),
        // TLS and the like: whatever Ray needs to reach the head, asking it needs too.
        env: ray.env.clone(),
        volume_mounts: ray.volume_mounts.clone(),
        // Explicit, for namespaces with quotas; and never an accelerator.
        resources: Some(equal_resources("200m", "256Mi")),
        ..Container::default()
    }
}
