//! Two executors poll tasks in turn; finished tasks go to a global list "for debugging".

use super::Result;
use candle_core::{Device, Tensor};
use std::{collections::VecDeque, sync::Mutex, thread};

static FINISHED: Mutex<Vec<Task>> = Mutex::new(Vec::new());

struct Task {
    request: usize,
    rows: usize,
    features: Option<Tensor>,
    answer: Option<f32>,
}

impl Task {
    fn new(request: usize) -> Self {
        Task { request, rows: 64 + 16 * (request % 3), features: None, answer: None }
    }
    fn poll(&mut self, weights: &Tensor) -> Result<bool> {
        match &self.features {
            None => {
                let x = Tensor::randn(0f32, 1., (self.rows, 64), &Device::Cpu)?;
                self.features = Some(x.matmul(weights)?.silu()?); // <- grows
                Ok(false)
            }
            Some(features) => {
                self.answer = Some(features.mean_all()?.to_scalar::<f32>()?);
                Ok(true)
            }
        }
    }
}

fn execute(mut requests: std::ops::Range<usize>, weights: &Tensor) -> Result<()> {
    let mut queue: VecDeque<Task> = requests.by_ref().take(4).map(Task::new).collect();
    while let Some(mut task) = queue.pop_front() {
        if task.poll(weights)? {
            FINISHED.lock().unwrap().push(task);
            queue.extend(requests.next().map(Task::new));
        } else {
            queue.push_back(task);
        }
    }
    Ok(())
}

pub(super) fn run() -> Result<()> {
    let weights = Tensor::randn(0f32, 0.1, (64, 512), &Device::Cpu)?;
    thread::scope(|s| {
        let second = s.spawn(|| execute(0..50, &weights));
        execute(50..100, &weights)?;
        second.join().unwrap()
    })?;
    let finished = std::mem::take(&mut *FINISHED.lock().unwrap());
    println!("{} tasks, last {}: {:?}", finished.len(), finished[99].request, finished[99].answer);
    Ok(())
}
