//! Eight workers, each with a scratch buffer from its start on, and 400 jobs.

use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

const SCRATCH: usize = 256 * 1024;

struct Worker {
    scratch: Vec<f32>,
}

impl Worker {
    fn new() -> Self {
        Worker { scratch: vec![0f32; SCRATCH] }
    }
    fn run(&mut self, job: &[f32]) -> f32 {
        for (i, slot) in self.scratch.iter_mut().enumerate().step_by(16) {
            *slot = job[i % job.len()];
        }
        let picked: Vec<f32> = self.scratch.iter().step_by(8).map(|x| x.sqrt()).collect();
        picked.iter().sum()
    }
}

pub(super) fn run() -> super::Result<()> {
    let (jobs, queue) = mpsc::sync_channel::<Vec<f32>>(4);
    let (results, collected) = mpsc::channel();
    let queue = Arc::new(Mutex::new(queue));
    let ready = Arc::new(Barrier::new(9));
    let mut workers = Vec::new();
    for _ in 0..8 {
        let (queue, results, ready) = (queue.clone(), results.clone(), ready.clone());
        workers.push(thread::spawn(move || {
            let mut worker = Worker::new();
            ready.wait();
            loop {
                let next = queue.lock().unwrap().recv();
                let Ok(job) = next else { break };
                results.send(worker.run(&job)).unwrap();
            }
        }));
    }
    ready.wait();
    for id in 0..400 {
        jobs.send(vec![id as f32; 20_000]).unwrap();
    }
    drop((jobs, results));
    for worker in workers {
        worker.join().unwrap();
    }
    println!("{} results, sum {:.1}", 400, collected.iter().sum::<f32>());
    Ok(())
}
