//! A model that one thread loads and another uses, then two alternately. Only one works at a time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{Linear, VarBuilder, VarMap, linear};

use crate::truth::Truth;

const WIDTH: usize = 1024;
const BATCH: usize = 32;

type Job = Box<dyn FnOnce() -> Result<Tensor> + Send>;

/// A thread that runs commands.
struct Worker {
    jobs: Option<SyncSender<Job>>,
    results: Receiver<Result<Tensor>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start() -> Self {
        let (jobs, todo) = sync_channel::<Job>(0);
        let (done, results) = sync_channel(0);
        let work = move || todo.into_iter().try_for_each(|job| done.send(job())).unwrap_or_default();
        Self { jobs: Some(jobs), results, thread: Some(std::thread::spawn(work)) }
    }

    /// Runs a command and waits for its end.
    fn run(&self, job: impl FnOnce() -> Result<Tensor> + Send + 'static) -> Result<Tensor> {
        let jobs = self.jobs.as_ref().expect("it was not dropped");
        jobs.send(Box::new(job)).expect("the worker waits for jobs");
        self.results.recv().expect("the worker has not panicked")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.jobs.take());
        self.thread.take().map(JoinHandle::join);
    }
}

#[derive(Clone)]
struct Model {
    layers: Arc<Vec<Linear>>,
    device: Device,
}

impl Model {
    fn new(device: &Device) -> Result<Self> {
        let weights = VarMap::new();
        let build = VarBuilder::from_varmap(&weights, DType::F32, device);
        let layers = (0..8).map(|n| linear(WIDTH, WIDTH, build.pp(n))).collect::<Result<_>>()?;
        Ok(Self { layers: Arc::new(layers), device: device.clone() })
    }

    fn classes(&self, batch: &Tensor) -> Result<Tensor> {
        let out = self.layers.iter().try_fold(batch.clone(), |x, layer| layer.forward(&x)?.relu())?;
        out.argmax(D::Minus1)
    }

    /// The worker uploads its batch itself, and discards its result.
    fn serve(&self, truth: &Truth, worker: &Worker, value: u32) -> Result<()> {
        let device = self.device.clone();
        let values = vec![value as f32; BATCH * WIDTH];
        let batch = truth.while_reading(|| worker.run(move || Tensor::from_vec(values, (BATCH, WIDTH), &device)))?;
        let model = self.clone();
        truth.on_the_way_there(|| worker.run(move || model.classes(&batch)).map(drop))
    }
}

pub(crate) fn infer(truth: &Truth, device: &Device) -> Result<()> {
    let model = truth.while_loading(|| Model::new(device))?;
    let first = Worker::start();
    for batch in 0..20 {
        model.serve(truth, &first, batch)?;
    }
    let second = Worker::start();
    for batch in 0..20 {
        model.serve(truth, if batch % 2 == 0 { &second } else { &first }, batch)?;
    }
    Ok(())
}
