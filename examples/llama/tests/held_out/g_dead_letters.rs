//! A pool of workers; the outputs of jobs past their deadline go to a list that nobody drains.

use super::Result;
use candle_core::{Device, Tensor};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

struct Job {
    id: usize,
    rows: Vec<f32>,
}

struct Shared {
    weights: Tensor,
    jobs: Mutex<mpsc::Receiver<Job>>,
    late: Mutex<Vec<(usize, Tensor)>>,
}

fn work(shared: &Shared) -> Result<usize> {
    let mut done = 0;
    loop {
        let next = shared.jobs.lock().unwrap().recv();
        let Ok(job) = next else { return Ok(done) };
        let input = Tensor::from_vec(job.rows, (64, 96), &Device::Cpu)?;
        let output = input.matmul(&shared.weights)?.relu()?; // <- grows
        if job.id % 5 == 3 {
            shared.late.lock().unwrap().push((job.id, output));
            continue;
        }
        output.sum_all()?.to_scalar::<f32>()?;
        done += 1;
    }
}

pub(super) fn run() -> Result<()> {
    let (sender, receiver) = mpsc::sync_channel(4);
    let weights = Tensor::randn(0f32, 0.1, (96, 1024), &Device::Cpu)?;
    let shared = Arc::new(Shared { weights, jobs: Mutex::new(receiver), late: Mutex::default() });
    let mut workers = Vec::new();
    for _ in 0..4 {
        let shared = shared.clone();
        workers.push(thread::spawn(move || work(&shared)));
    }
    for id in 0..240 {
        sender.send(Job { id, rows: vec![id as f32 / 240.; 64 * 96] })?;
    }
    drop(sender);
    let mut done = 0;
    for worker in workers {
        done += worker.join().unwrap()?;
    }
    println!("{done} done, {} late", shared.late.lock().unwrap().len());
    Ok(())
}
