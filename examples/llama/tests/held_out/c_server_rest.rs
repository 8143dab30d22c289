//! Clients connect and get a session each; hundreds of requests; then only heartbeats.

use super::Result;
use candle_core::{Device, Tensor};
use std::collections::BTreeMap;

struct Session {
    state: Tensor,
    requests: usize,
}

struct Server {
    weights: Tensor,
    sessions: BTreeMap<usize, Session>,
}

impl Server {
    fn connect(&mut self, client: usize) -> Result<()> {
        let state = Tensor::randn(client as f32 * 0.01, 1., (128, 512), &Device::Cpu)?;
        self.sessions.insert(client, Session { state, requests: 0 });
        Ok(())
    }
    fn request(&mut self, client: usize) -> Result<f32> {
        let session = self.sessions.get_mut(&client).unwrap();
        session.requests += 1;
        let rows = 32 + 8 * (session.requests % 8);
        let scores = (session.state.narrow(0, 0, rows)? * 0.5)?.matmul(&self.weights)?.relu()?;
        Ok(scores.mean_all()?.to_scalar::<f32>()?)
    }
    fn heartbeat(&self) -> Result<f32> {
        let mut load = 0f32;
        for session in self.sessions.values().take(2) {
            load += session.state.sqr()?.mean_all()?.to_scalar::<f32>()?;
        }
        Ok(load)
    }
}

pub(super) fn run() -> Result<()> {
    let weights = Tensor::randn(0f32, 0.04, (512, 64), &Device::Cpu)?;
    let mut server = Server { weights, sessions: BTreeMap::new() };
    for client in 0..24 {
        server.connect(client)?;
    }
    let mut sum = 0f32;
    for request in 0..300 {
        sum += server.request(request * 7 % 24)?;
    }
    for _beat in 0..60 {
        sum += server.heartbeat()?;
    }
    server.sessions.clear();
    println!("sum {sum:.3}");
    Ok(())
}
