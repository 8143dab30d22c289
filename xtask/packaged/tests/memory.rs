use candle_core::{Device, Result};
use digits::Model;

#[test]
fn a_batch_needs_less_than_1_mib() -> Result<()> {
    let device = Device::cuda_if_available(0)?;
    let (model, batch) = (Model::new(&device)?, digits::images(128, &device)?);
    memtrace::assert_peak!("1 MiB", model.forward(&batch)?);
    Ok(())
}
