//! Runs a perceptron with luminal on the first GPU, without memtrace in the program.

use luminal::nn::{activation::ReLU, linear::Linear};
use luminal::prelude::*;
use luminal_cuda::CudaCompiler;

type Perceptron = (Linear<256, 512>, ReLU, Linear<512, 10>);

fn main() {
    let mut graph = Graph::new();
    let images = graph.tensor::<R2<64, 256>>();
    let model = Perceptron::initialize(&mut graph);
    let mut scores = model.forward(images).retrieve();
    graph.compile(<(GenericCompiler, CudaCompiler<f32>)>::default(), &mut scores);
    for step in 0..4 {
        images.set(vec![step as f32; 64 * 256]);
        graph.execute();
        println!("step {step}: {} scores", scores.data().len());
        scores.drop();
    }
    println!("done");
}
