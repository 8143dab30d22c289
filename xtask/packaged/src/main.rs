use candle_core::{Device, Result};
use digits::Model;

fn main() -> Result<()> {
    let device = Device::cuda_if_available(0)?;
    let model = Model::new(&device)?;
    let images = digits::images(1024, &device)?;
    let mut outputs = Vec::new();
    for batch in images.chunk(8, 0)? {
        outputs.push(model.forward(&batch)?);
    }
    println!("{} batches", outputs.len());
    Ok(())
}
