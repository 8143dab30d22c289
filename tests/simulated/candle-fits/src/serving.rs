//! A server that keeps what it computed for each of its users.

use std::collections::HashMap;

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{VarBuilder, linear};

/// Requests of users who come again with more.
pub fn growing_caches(device: &Device) -> Result<()> {
    let project = linear(1024, 2048, VarBuilder::zeros(DType::F32, device))?;
    let mut caches: HashMap<usize, Tensor> = HashMap::new();
    for request in 0..200 {
        let user = request * 7 % 24;
        let input = Tensor::zeros((16 + request % 48, 1024), DType::F32, device)?;
        let new = project.forward(&input)?.relu()?;
        let cache = match caches.remove(&user) {
            Some(old) => Tensor::cat(&[&old, &new], 0)?,
            None => new,
        };
        caches.insert(user, cache);
    }
    println!("{} users, {} rows", caches.len(), caches.values().filter_map(|cache| cache.dim(0).ok()).sum::<usize>());
    Ok(())
}
