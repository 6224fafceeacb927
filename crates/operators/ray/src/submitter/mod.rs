//! Submits a job to Ray and shows its logs until it ends: what runs in a submitter pod that has no Ray installed.

#[cfg(test)]
mod tests;
mod websocket;

use std::time::Duration;

use crate::dashboard::{
    AUTHORIZATION, Address, Dashboard as _, DashboardError, FixedToken, HttpDashboard, Route, Submission,
    segment,
};

/// How long Ray may take to accept the job.
const SUBMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A job and where it goes.
#[derive(Clone, Debug)]
pub struct Work {
    /// Host and port of the dashboard, with or without `http://`.
    pub address: String,
    /// The job.
    pub submission: Submission,
    /// The token that Ray demands, if it does.
    pub token: Option<String>,
}

/// Submits the job, unless an earlier attempt has, and hands its logs to `print` until Ray has no more. The
/// error is a sentence for the user.
pub async fn run(work: &Work, mut print: impl FnMut(&str)) -> Result<(), String> {
    let host = host(&work.address)?;
    let token = work.token.clone().filter(|token| !token.is_empty());
    let at = Address {
        host: host.to_owned(),
        namespace: String::new(),
        service: String::new(),
        token_secret: token.as_ref().map(|_| "RAY_AUTH_TOKEN".to_owned()),
    };
    let tokens = FixedToken(token.clone().unwrap_or_default());
    let dashboard = HttpDashboard::new(Route::Direct, tokens).waiting(SUBMIT_TIMEOUT);
    let id = &work.submission.submission_id;
    match dashboard.submit(&at, &work.submission).await {
        Ok(()) => print(&format!("SUCC -- Job '{id}' submitted successfully\n")),
        // A pod before us did it; the logs are the same.
        Err(DashboardError::AlreadyUsed(_)) => {
            print(&format!("INFO -- Job '{id}' was submitted before, tailing its logs\n"));
        }
        Err(error) => return Err(format!("cannot submit job '{id}': {error}")),
    }
    let path = format!("/api/jobs/{}/logs/tail", segment(id));
    let header = token.map(|token| (AUTHORIZATION, format!("Bearer {token}")));
    let tail =
        websocket::read(host, &path, header.as_ref().map(|(name, value)| (*name, value.as_str())), |text| {
            print(text);
        });
    tail.await.map_err(|error| format!("cannot tail the logs of job '{id}': {error}"))?;
    print(&format!("SUCC -- Job '{id}' succeeded\n"));
    Ok(())
}

fn host(address: &str) -> Result<&str, String> {
    let host = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    if host.contains("://") || host.is_empty() {
        return Err(format!("the address {address:?} is not of the form HOST:PORT or http://HOST:PORT"));
    }
    Ok(host)
}
