//! How another program steers the store: `/-/rules` (PUT a list of rules), `/-/summary` and `/-/requests` (GET),
//! `/-/forget` (POST).

use super::Shared;
use super::body::{Body, whole};
use super::rules::Rule;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use std::sync::Arc;

pub(super) async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let (status, text) = match (&method, path.as_str()) {
        (&Method::GET, "/-/summary") => json(&shared.record.summary()),
        (&Method::GET, "/-/requests") => json(&shared.record.requests()),
        (&Method::POST, "/-/forget") => {
            shared.record.forget();
            (200, String::new())
        }
        (&Method::PUT, "/-/rules") => match rules(request).await {
            Ok(rules) => {
                shared.replace_rules(rules);
                (200, String::new())
            }
            Err(error) => (400, error),
        },
        _ => (404, format!("{method} {path} is not known here")),
    };
    Response::builder().status(status).body(whole(text)).expect("a status and a text")
}

fn json(value: &impl serde::Serialize) -> (u16, String) {
    match serde_json::to_string(value) {
        Ok(text) => (200, text),
        Err(error) => (500, error.to_string()),
    }
}

async fn rules(request: Request<Incoming>) -> Result<Vec<Rule>, String> {
    let body = request.into_body().collect().await.map_err(|error| error.to_string())?;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())
}
