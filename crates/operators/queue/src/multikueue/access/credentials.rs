//! A client whose credentials a program gives, and gives again before they expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use http::{Request, Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use parking_lot::Mutex;
use quintet_controller::api::connect;
use quintet_controller::clock::Clock;
use tower::service_fn;

use super::exec::Program;

/// The least time between two runs of a program: many requests may fail at the same time.
const PAUSE: SignedDuration = SignedDuration::from_secs(5);

/// How long before they expire credentials are replaced.
const MARGIN: SignedDuration = SignedDuration::from_secs(10);

/// A client for a cluster.
pub(super) fn client(config: kube::Config, program: Program, clock: Clock) -> kube::Client {
    let namespace = config.default_namespace.clone();
    let source = Arc::new(Source { config, program, clock, run: Mutex::default() });
    kube::Client::new(service_fn(move |request| Arc::clone(&source).send(request)), namespace)
}

/// Where clients with valid credentials come from.
struct Source {
    config: kube::Config,
    program: Program,
    clock: Clock,
    /// The last run of the program. It goes on if a request does not wait for it any longer.
    run: Mutex<Option<Run>>,
}

type Run = Shared<BoxFuture<'static, Arc<Outcome>>>;

/// How a run of the program ended.
struct Outcome {
    client: Result<kube::Client, String>,
    at: Timestamp,
    expires: Option<Timestamp>,
    /// The server does not accept the credentials.
    is_refused: AtomicBool,
}

impl Outcome {
    /// Whether the program is to be run again.
    fn is_over(&self, now: Timestamp) -> bool {
        let is_expiring = self.expires.is_some_and(|end| end.duration_since(now) <= MARGIN);
        let is_useless = self.client.is_err() || self.is_refused.load(Ordering::Relaxed);
        (is_useless || is_expiring) && now.duration_since(self.at) >= PAUSE
    }
}

impl Source {
    async fn send(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let run = self.run();
        let outcome = run.await;
        let client = outcome.client.as_ref().map_err(|why| {
            // As a server that cannot be reached, which is reported once and not with each request.
            kube::Error::Service(format!("getting credentials: {why}").into())
        })?;
        let response = client.send(request).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            outcome.is_refused.store(true, Ordering::Relaxed);
        }
        Ok(response)
    }

    /// The run of the program whose outcome counts now.
    fn run(self: &Arc<Self>) -> Run {
        let now = self.clock.now();
        let mut run = self.run.lock();
        match run.as_ref().filter(|run| run.peek().is_none_or(|outcome| !outcome.is_over(now))) {
            Some(run) => run.clone(),
            None => run.insert(obtain(self.config.clone(), self.program.clone(), self.clock.clone())).clone(),
        }
    }
}

fn obtain(mut config: kube::Config, program: Program, clock: Clock) -> Run {
    let outcome = async move {
        let given = program.run().await;
        let expires = given.as_ref().ok().and_then(|credentials| credentials.expires);
        let client = given.and_then(|credentials| {
            config.auth_info = credentials.user;
            connect(config).map_err(|error| error.cause())
        });
        Arc::new(Outcome { client, at: clock.now(), expires, is_refused: AtomicBool::new(false) })
    };
    outcome.boxed().shared()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const START: &str = "2026-01-01T00:00:00Z";
    const SOON: &str = "2026-01-01T00:01:00Z";

    /// A program whose tokens are `1`, `2` and so on; each run adds a line to a file.
    struct Tokens(PathBuf);

    impl Tokens {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("quintet-{name}-{}", std::process::id())))
        }

        fn program(&self, expires: &str) -> Program {
            let script = "echo >>$RUNS; cat <<END\n{kind: ExecCredential, apiVersion: client.authentication.k8s.io/v1, \
                          status: {token: \"$(wc -l <$RUNS | tr -d ' ')\" $EXPIRES}}\nEND";
            let config = json!({ "command": "/bin/sh", "args": ["-c", script],
                "apiVersion": "client.authentication.k8s.io/v1",
                "env": [{ "name": "RUNS", "value": self.0 }, { "name": "EXPIRES", "value": expires }] });
            Program::new(&serde_json::from_value(config).unwrap(), &json!({}))
        }

        fn runs(&self) -> usize {
            let runs = std::fs::read_to_string(Path::new(&self.0)).unwrap_or_default();
            runs.lines().count()
        }
    }

    impl Drop for Tokens {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// Runs a test beside a server that accepts one token only.
    fn with_server(accepted: &str, test: impl AsyncFnOnce(kube::Config)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let authorization = format!("authorization: Bearer {accepted}\r\n").to_lowercase();
            let serve = async {
                loop {
                    let (mut connection, _) = listener.accept().await.unwrap();
                    let mut request = vec![0; 8192];
                    let length = connection.read(&mut request).await.unwrap();
                    let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
                    let status = if request.contains(&authorization) { "200 OK" } else { "401 Unauthorized" };
                    let response =
                        format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                    connection.write_all(response.as_bytes()).await.unwrap();
                }
            };
            tokio::select! {
                () = test(kube::Config::new(url.parse().unwrap())) => {}
                () = serve => {}
            }
        });
    }

    /// A source at the beginning.
    fn source(config: kube::Config, program: Program) -> Arc<Source> {
        let clock = Clock::simulated(START.parse().unwrap());
        Arc::new(Source { config, program, clock, run: Mutex::default() })
    }

    /// The same source some seconds later.
    fn after(source: &Source, seconds: i64) -> Arc<Source> {
        let clock = Clock::simulated(source.clock.now() + SignedDuration::from_secs(seconds));
        let (config, program) = (source.config.clone(), source.program.clone());
        Arc::new(Source { config, program, clock, run: Mutex::new(source.run.lock().clone()) })
    }

    async fn status(source: &Arc<Source>) -> u16 {
        let request = Request::get("/api").body(Body::empty()).unwrap();
        Arc::clone(source).send(request).await.unwrap().status().as_u16()
    }

    #[test]
    fn requests_share_credentials_until_the_server_refuses_them() {
        let tokens = Tokens::new("refused");
        with_server("2", async |config| {
            let source = source(config, tokens.program(""));
            assert_eq!(tokio::join!(status(&source), status(&source)), (401, 401));
            assert_eq!((status(&source).await, tokens.runs()), (401, 1));
            let source = after(&source, 6);
            assert_eq!((status(&source).await, tokens.runs()), (200, 2));
            let source = after(&source, 100_000);
            assert_eq!((status(&source).await, tokens.runs()), (200, 2));
        });
    }

    #[test]
    fn credentials_are_replaced_before_they_expire() {
        let tokens = Tokens::new("expiring");
        with_server("1", async |config| {
            let source = source(config, tokens.program(&format!(", expirationTimestamp: \"{SOON}\"")));
            assert_eq!((status(&source).await, tokens.runs()), (200, 1));
            let source = after(&source, 40);
            assert_eq!((status(&source).await, tokens.runs()), (200, 1));
            let source = after(&source, 15);
            assert_eq!((status(&source).await, tokens.runs()), (401, 2));
        });
    }

    #[test]
    fn a_program_that_fails_is_run_again_after_a_pause() {
        let tokens = Tokens::new("failing");
        with_server("none", async |config| {
            let source = source(config, tokens.program(", x: ["));
            let failed = async |source: &Arc<Source>| {
                let request = Request::get("/api").body(Body::empty()).unwrap();
                Arc::clone(source).send(request).await.err().unwrap().to_string()
            };
            let why = "ServiceError: getting credentials: decoding stdout: it is no ExecCredential";
            assert_eq!((failed(&source).await.as_str(), failed(&source).await.as_str()), (why, why));
            assert_eq!(tokens.runs(), 1);
            assert_eq!((failed(&after(&source, 6)).await.as_str(), tokens.runs()), (why, 2));
        });
    }
}
