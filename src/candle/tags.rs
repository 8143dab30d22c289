//! Names and categories for tensors, attached to the block that holds their elements.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

#[cfg(feature = "cuda")]
use candle_core::backend::BackendDevice;
use candle_core::backprop::GradStore;
#[cfg(feature = "cuda")]
use candle_core::cuda_backend::CudaStorageSlice;
use candle_core::{CpuStorage, Layout, Storage, Tensor, TensorId, Var};
use candle_nn::VarMap;
use memtrace_core::snapshot::{Category, Device};

#[cfg(feature = "cuda")]
use super::at;
use crate::name::Address;
use crate::record::{BlockLabel, fork, naming, own};

/// How many parameter names are kept for naming gradients.
const MOST_PARAMETERS: usize = 1 << 16;

static PARAMETERS: LazyLock<Mutex<HashMap<TensorId, String>>> = LazyLock::new(Mutex::default);

/// Names the block that holds a tensor's elements, as [`memtrace::name`](fn@crate::name) does. Dtype and shape are
/// appended if the tensor fills its block: `weights f32[10, 20]`. A view names the block of the tensor behind it.
///
/// Returns false if the block is not recorded, and for CUDA tensors without memtrace's feature `cuda`. The tensor's
/// storage is locked for reading meanwhile, so do not call this while you hold the result of
/// [`Tensor::storage_and_layout`].
pub fn tag(tensor: &Tensor, name: &str) -> bool {
    tag_as(tensor, name, Category::Unknown)
}

/// [`tag`] with the tensor's category, which overrides what attribution would find.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// # use candle_core::{DType, Device, Tensor};
/// let session = memtrace::start()?;
/// let keys = Tensor::zeros((8, 128, 64), DType::F32, &Device::Cpu)?;
/// assert!(memtrace::candle::tag_as(&keys, "keys of layer 3", memtrace::Category::KvCache));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn tag_as(tensor: &Tensor, name: &str, category: Category) -> bool {
    put(tensor, BlockLabel { category, ..name.into() })
}

/// Names all parameters of a model and gives them the category PARAMETER. Returns how many of them got their name.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// # let session = memtrace::start().unwrap();
/// use candle_core::{DType, Device};
///
/// let weights = candle_nn::VarMap::new();
/// let build = candle_nn::VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu);
/// let layer = candle_nn::linear(64, 32, build.pp("head"))?;
/// // head.weight. With 128 bytes, head.bias is below the threshold of 1 KiB.
/// assert_eq!(memtrace::candle::tag_varmap(&weights), 1);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn tag_varmap(weights: &VarMap) -> usize {
    let vars = weights.data().lock().unwrap_or_else(PoisonError::into_inner);
    tag_vars(&*vars)
}

/// [`tag_varmap`] for variables in any other collection of names and variables.
pub fn tag_vars<'a, N: AsRef<str> + 'a>(vars: impl IntoIterator<Item = (&'a N, &'a Var)>) -> usize {
    vars.into_iter().filter(|(name, var)| parameter(var, name.as_ref())).count()
}

/// Names gradients and gives them the category GRADIENT. A gradient is called `grad of NAME` if [`tag_varmap`],
/// [`tag_vars`] or [`named`](super::named()) named its parameter, or else `gradient`. If it shares its block with
/// another tensor, its name replaces that tensor's name. Returns how many gradients got their name.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// # let session = memtrace::start().unwrap();
/// # use candle_core::{DType, Device, Tensor};
/// # let weights = candle_nn::VarMap::new();
/// # let build = candle_nn::VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu);
/// # let layer = candle_nn::linear(64, 32, build.pp("head"))?;
/// # let input = Tensor::ones((2, 64), DType::F32, &Device::Cpu)?;
/// # use candle_core::Module;
/// memtrace::candle::tag_varmap(&weights);
/// let gradients = layer.forward(&input)?.sqr()?.sum_all()?.backward()?;
/// assert_eq!(memtrace::candle::tag_grads(&gradients), 1); // grad of head.weight
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn tag_grads(gradients: &GradStore) -> usize {
    let found = |id: &&TensorId| {
        own(|| {
            let name = gradient_name(**id);
            gradients.get_id(**id).is_some_and(|gradient| tag_as(gradient, &name, Category::Gradient))
        })
    };
    gradients.get_ids().filter(found).count()
}

/// Names the state that an optimizer keeps between steps, and gives it the category OPTIMIZER_STATE. Returns how many
/// tensors got their name. Use this function for your own optimizers. The state of candle's AdamW is private;
/// attribution recognizes it by its allocation site.
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// # use candle_core::{DType, Device, Tensor};
/// let session = memtrace::start()?;
/// let velocity = vec![("velocity of head", Tensor::zeros((64, 32), DType::F32, &Device::Cpu)?)];
/// assert_eq!(memtrace::candle::tag_optimizer(velocity.iter().map(|(name, tensor)| (name, tensor))), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn tag_optimizer<'a, N: AsRef<str> + 'a>(state: impl IntoIterator<Item = (N, &'a Tensor)>) -> usize {
    let found = |(name, tensor): &(N, &Tensor)| tag_as(tensor, name.as_ref(), Category::OptimizerState);
    state.into_iter().filter(found).count()
}

/// The name that [`tag_varmap`], [`tag_vars`] or [`named`](super::named()) gave a parameter. If your own optimizer
/// names its state `velocity of NAME`, tables by layer count the state with the parameter.
///
/// ```
/// # use candle_core::{DType, Device, Var};
/// let weight = Var::zeros((64, 32), DType::F32, &Device::Cpu)?;
/// memtrace::candle::tag_vars([(&"head.weight", &weight)]);
/// assert_eq!(memtrace::candle::name_of(&weight).as_deref(), Some("head.weight"));
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn name_of(parameter: &Tensor) -> Option<String> {
    own(|| with_parameters(|known| known.get(&parameter.id()).cloned()))
}

/// Names a parameter and remembers the name for its gradient.
pub(super) fn parameter(tensor: &Tensor, name: &str) -> bool {
    own(|| {
        with_parameters(|known| {
            // Tensor ids are never reused, so most of these names belong to models that no longer exist.
            if known.len() >= MOST_PARAMETERS {
                known.clear();
            }
            known.insert(tensor.id(), name.to_owned());
        });
    });
    tag_as(tensor, name, Category::Parameter)
}

fn gradient_name(parameter: TensorId) -> String {
    let name = with_parameters(|known| known.get(&parameter).cloned());
    name.map_or_else(|| "gradient".to_owned(), |name| format!("grad of {name}"))
}

fn with_parameters<R>(f: impl FnOnce(&mut HashMap<TensorId, String>) -> R) -> R {
    let _no_fork = fork::no_fork();
    f(&mut PARAMETERS.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(super) fn put(tensor: &Tensor, label: BlockLabel<'_>) -> bool {
    let (storage, layout) = tensor.storage_and_layout();
    let Some((device, block, elements)) = block_of(&storage) else { return false };
    own(|| {
        let shaped = match covers(layout, elements) {
            true => format!("{} {}{:?}", label.name, tensor.dtype().as_str(), layout.dims()),
            false => label.name.to_owned(),
        };
        naming::name(Some(device), block.into_inner(), BlockLabel { name: &shaped, ..label })
    })
}

/// Whether a tensor with this layout fills a block of `elements` elements.
fn covers(layout: &Layout, elements: usize) -> bool {
    layout.start_offset() == 0 && layout.is_contiguous() && layout.shape().elem_count() == elements
}

/// Evaluates an expression (`$block`), in which `$data` is the elements of a storage of any dtype. The storage's
/// variants have the same names on all devices.
macro_rules! with_elements {
    ($variants:ident, $storage:expr, $data:ident => $block:expr) => {
        with_elements!($variants, $storage, $data => $block;
            U8 F6E2M3 F6E3M2 F4 F8E8M0 U32 I16 I32 I64 BF16 F16 F32 F64 F8E4M3)
    };
    ($variants:ident, $storage:expr, $data:ident => $block:expr; $($kind:ident)*) => {
        match $storage {
            $($variants::$kind($data) => $block,)*
        }
    };
}

/// The device and address of a tensor's block, and the number of elements in it.
pub(super) fn block_of(storage: &Storage) -> Option<(Device, Address, usize)> {
    match storage {
        Storage::Cpu(storage) => {
            Some(with_elements!(CpuStorage, storage, data => (Device::Cpu, data.as_ptr().into(), data.len())))
        }
        #[cfg(feature = "cuda")]
        Storage::Cuda(storage) => {
            let device = at(storage.device.location());
            Some(with_elements!(CudaStorageSlice, &storage.slice, data => {
                (device, crate::cudarc::address(data), data.len())
            }))
        }
        _ => None,
    }
}
