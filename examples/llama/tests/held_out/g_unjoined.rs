//! A thread per request; the threads' results stay in handles that are joined only at the end.

use std::sync::{Arc, mpsc};
use std::thread;

const DIM: usize = 256;

fn layer(x: &[f32], weights: &[f32], out: &mut [f32]) {
    for (row, y) in x.chunks(DIM).zip(out.chunks_mut(DIM)) {
        for (i, value) in row.iter().enumerate() {
            for (o, w) in y.iter_mut().zip(&weights[i * DIM..(i + 1) * DIM]) {
                *o += value * w;
            }
        }
    }
}

fn infer(request: usize, weights: &[f32], reply: mpsc::Sender<f32>) -> Vec<f32> {
    let rows = 72 + 24 * (request % 3);
    let x: Vec<f32> = (0..rows * DIM).map(|i| ((i * 7 + request) % 13) as f32 / 13.).collect();
    let mut out = vec![0f32; rows * DIM]; // <- grows
    layer(&x, weights, &mut out);
    reply.send(out.iter().sum::<f32>() / out.len() as f32).unwrap();
    out
}

pub(super) fn run() -> super::Result<()> {
    let weights: Arc<Vec<f32>> = Arc::new((0..DIM * DIM).map(|i| (i % 11) as f32 / 1100.).collect());
    let mut handles = Vec::new();
    let mut sum = 0f32;
    for request in 0..96 {
        let (sender, receiver) = mpsc::channel();
        let shared = weights.clone();
        handles.push(thread::spawn(move || infer(request, &shared, sender)));
        sum += receiver.recv().unwrap();
    }
    let mut values = 0;
    for handle in handles {
        values += handle.join().unwrap().len();
    }
    println!("mean {:.4}, {values} values", sum / 96.);
    Ok(())
}
