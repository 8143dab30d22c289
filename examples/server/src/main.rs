//! An axum server that answers with profiles of its own memory.
//!
//! ```text
//! cargo run --release --manifest-path examples/server/Cargo.toml             on the CPU
//! cargo simulated cargo run … -- --gpu                                       on a simulated GPU
//!
//! GET /generate/TOKENS       allocates as a language model does: a cache that grows with each token
//! GET /debug/pprof/heap      for `go tool pprof`
//! GET /report                the report as JSON
//! ```

mod model;

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use memtrace::export::{Export, Json};
use memtrace::{FutureExt, Session};
use model::Model;
use tokio::task::spawn_blocking;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_on_gpu = arguments.iter().any(|argument| argument == "--gpu");
    // `--port 0` chooses a free one.
    let port = arguments.iter().skip_while(|argument| *argument != "--port").nth(1).map_or("6060", String::as_str);
    let session = Arc::new(memtrace::start()?);
    let model = Arc::new(Model::load(is_on_gpu)?);
    let profiles = Router::new().route("/debug/pprof/heap", get(heap)).route("/report", get(report));
    let work = Router::new().route("/generate/{tokens}", get(generate)).with_state(model);
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("http://{}", listener.local_addr()?);
    let served = axum::serve(listener, profiles.with_state(session).merge(work));
    Ok(served.with_graceful_shutdown(async { tokio::signal::ctrl_c().await.unwrap_or(()) }).await?)
}

async fn heap(State(session): State<Arc<Session>>) -> impl IntoResponse {
    let profile = spawn_blocking(move || {
        let mut profile = Vec::new();
        session.snapshot().write_pprof(&mut profile).map(|()| profile)
    });
    match profile.await {
        Ok(Ok(profile)) => ([(CONTENT_TYPE, "application/octet-stream")], profile).into_response(),
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn report(State(session): State<Arc<Session>>) -> impl IntoResponse {
    let report = spawn_blocking(move || {
        let mut report = Vec::new();
        Json::default().write(&session.snapshot(), &mut report).map(|_| report)
    });
    match report.await {
        Ok(Ok(report)) => ([(CONTENT_TYPE, "application/json")], report).into_response(),
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn generate(State(model): State<Arc<Model>>, Path(tokens): Path<usize>) -> Result<String, (StatusCode, String)> {
    let bytes = model.generate(tokens).memtrace("request").await;
    let bytes = bytes.map_err(|error| (StatusCode::INSUFFICIENT_STORAGE, format!("{error}\n")))?;
    Ok(format!("{tokens} tokens, a cache of {bytes} bytes\n"))
}
