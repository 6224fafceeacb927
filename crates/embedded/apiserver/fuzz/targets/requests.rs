//! Any bytes as a request: no panic, no hang, no flood, and a Status for whatever is wrong.
#![no_main]

#[path = "../../tests/support/requests.rs"]
mod requests;

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use quintet_apiserver::{Api, Rng, Clock};
use tokio::runtime::Runtime;

/// Requests to one API; then a fresh one takes its place, so that what they stored does not pile up.
const REQUESTS: u64 = 500;

struct Server {
    runtime: Runtime,
    template: Api,
    api: Api,
    answered: u64,
}

impl Server {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let template = runtime.block_on(Api::in_memory(&[])).expect("an API");
        let api = runtime.block_on(async { template.fork(Clock::system(), Rng::seeded(0)) });
        Self { runtime, template, api, answered: 0 }
    }

    fn answer(&mut self, data: &[u8]) {
        let Some(request) = requests::parse(data) else { return };
        self.answered += 1;
        if self.answered % REQUESTS == 0 {
            let Self { runtime, template, api, answered } = self;
            *api = runtime.block_on(async {
                api.stop().await;
                template.fork(Clock::system(), Rng::seeded(*answered))
            });
        }
        self.runtime.block_on(requests::answered(&self.api, request, "fuzzing"));
    }
}

thread_local! {
    static SERVER: RefCell<Server> = RefCell::new(Server::start());
}

fuzz_target!(|data: &[u8]| SERVER.with_borrow_mut(|server| server.answer(data)));
