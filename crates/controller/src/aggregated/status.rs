//! Responses as API servers give them.

use http::{Response, StatusCode, header};
use serde_json::{Value, json};

/// An error as a `Status` object reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusError {
    /// HTTP status code.
    pub code: u16,
    /// Reason, as clients match it.
    pub reason: &'static str,
    /// What is wrong, for people.
    pub message: String,
    /// What it is about.
    pub details: Value,
}

impl StatusError {
    /// An error about no object in particular.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null }
    }

    /// No such path.
    pub fn no_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self { details: json!({}), ..Self::new(404, "NotFound", message) }
    }

    /// The response.
    pub fn response(&self) -> Response<Vec<u8>> {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        json_response(StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &status)
    }
}

/// A response with a JSON body.
pub fn json_response(status: StatusCode, body: &Value) -> Response<Vec<u8>> {
    let mut response = Response::new(body.to_string().into_bytes());
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
