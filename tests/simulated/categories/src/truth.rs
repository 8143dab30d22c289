//! A program's knowledge of its own tensors: by address, and by the phase in which their blocks were allocated.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};

use candle_core::backprop::GradStore;
use candle_core::cuda_backend::CudaStorageSlice as Slice;
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, DevicePtr};
use candle_core::{CpuStorage, Storage, Tensor, Var};
use memtrace::Category::{self, Activation, AutogradDetail, Gradient, Input, OptimizerState, Parameter, Temporary};
use memtrace::Device;
use memtrace::snapshot::{DeviceSnapshot, Record, RecordKind};

/// A phase of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Loads a model: blocks that remain are its parameters.
    Load,
    /// Loads data.
    Input,
    /// A forward pass. Blocks that live until a backward pass begins are activations.
    Forward,
    /// A backward pass.
    Backward,
    /// An optimizer's step: blocks that remain are its state.
    Step,
    /// Writes a file: no category fits the blocks.
    Save,
}

/// Positions are numbers of records: allocations and frees so far.
#[derive(Debug)]
struct Stretch {
    part: Part,
    from: u64,
    to: u64,
}

#[derive(Debug)]
struct Label {
    address: u64,
    position: u64,
    category: Option<Category>,
}

/// The knowledge of one program. Its functions are on the stacks of the allocations, so their names must not help the
/// rules.
#[derive(Debug)]
pub(crate) struct Truth {
    pub(crate) device: Device,
    labels: RefCell<Vec<Label>>,
    sizes: RefCell<BTreeMap<u64, Category>>,
    stretches: RefCell<Vec<Stretch>>,
}

impl Truth {
    /// For a device whose memory is all recorded, from the first block on.
    pub(crate) fn new(device: &candle_core::Device) -> Self {
        Self {
            device: memtrace::IntoDevice::into_device(device),
            // On the CPU the program's own knowledge is recorded, too: at once, before any phase.
            labels: RefCell::new(Vec::with_capacity(1 << 14)),
            sizes: RefCell::default(),
            stretches: RefCell::new(Vec::with_capacity(1 << 12)),
        }
    }

    fn position(&self) -> u64 {
        let allocations = memtrace::stats(self.device).allocations;
        allocations.allocated + allocations.freed
    }

    /// States the purpose of the tensor's block. The last statement counts.
    pub(crate) fn is(&self, tensor: &Tensor, category: Category) {
        self.label(tensor, Some(category));
    }

    /// States that no category fits: any but *unknown* would be wrong.
    pub(crate) fn is_none_of_them(&self, tensor: &Tensor) {
        self.label(tensor, None);
    }

    fn label(&self, tensor: &Tensor, category: Option<Category>) {
        self.label_address(address(tensor), category);
    }

    /// The same for a block without a tensor.
    pub(crate) fn label_address(&self, address: u64, category: Option<Category>) {
        let position = self.position();
        self.labels.borrow_mut().push(Label { address, position, category });
    }

    /// States the purpose of all blocks of this size, which only a library knows.
    pub(crate) fn are_of_size(&self, bytes: u64, category: Category) {
        self.sizes.borrow_mut().insert(bytes, category);
    }

    /// States that each variable's gradient is one.
    pub(crate) fn are_gradients(&self, gradients: &GradStore, variables: &[Var]) {
        variables.iter().filter_map(|var| gradients.get(var)).for_each(|gradient| self.is(gradient, Gradient));
    }

    pub(crate) fn are_parameters<'t>(&self, tensors: impl IntoIterator<Item = &'t Tensor>) {
        tensors.into_iter().for_each(|tensor| self.is(tensor, Parameter));
    }

    pub(crate) fn while_loading<T>(&self, f: impl FnOnce() -> T) -> T {
        self.during(Part::Load, f)
    }

    pub(crate) fn while_reading<T>(&self, f: impl FnOnce() -> T) -> T {
        self.during(Part::Input, f)
    }

    pub(crate) fn on_the_way_there<T>(&self, f: impl FnOnce() -> T) -> T {
        self.during(Part::Forward, f)
    }

    pub(crate) fn on_the_way_back<T>(&self, f: impl FnOnce() -> T) -> T {
        self.during(Part::Backward, f)
    }

    pub(crate) fn while_updating<T>(&self, f: impl FnOnce() -> T) -> T {
        self.during(Part::Step, f)
    }

    pub(crate) fn while_saving<T>(&self, f: impl FnOnce() -> T) -> T {
        self.during(Part::Save, f)
    }

    fn during<T>(&self, part: Part, f: impl FnOnce() -> T) -> T {
        let from = self.position();
        let value = f();
        self.stretches.borrow_mut().push(Stretch { part, from, to: self.position() });
        value
    }

    /// The purpose of each allocation's block, in the order of the log: `None` if the program does not know it, else
    /// the category, if one fits.
    pub(crate) fn of(&self, device: &DeviceSnapshot) -> Vec<(Record, Option<Option<Category>>)> {
        let lives = Lives::of(&device.records);
        let labels: Vec<(usize, Option<Category>)> =
            self.labels.borrow().iter().map(|label| (lives.meant_by(label), label.category)).collect();
        let is_parameter = |(_, category): &&(usize, Option<Category>)| *category == Some(Parameter);
        let sizes: HashSet<u64> = labels.iter().filter(is_parameter).map(|(at, _)| lives.0[*at].record.size).collect();
        let known = |life: &Life| match self.device {
            Device::Cpu => of_heap(self.by_part(life), life.record.size, &sizes),
            _ => self.by_part(life),
        };
        let mut found: Vec<_> = lives.0.iter().map(|life| (life.record, known(life))).collect();
        labels.into_iter().for_each(|(at, category)| found[at].1 = Some(category));
        found
    }

    /// Bytes and blocks of each category.
    pub(crate) fn print(&self, device: &DeviceSnapshot) {
        let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (record, known) in self.of(device) {
            let known = known.map_or("(nothing is known)", |known| known.map_or("none", Category::word));
            let sum = sums.entry(known).or_default();
            *sum = (sum.0 + record.size, sum.1 + 1);
        }
        sums.iter().for_each(|(word, (bytes, blocks))| println!("    {bytes:>12} bytes in {blocks:>6} blocks: {word}"));
    }

    /// By its size, or by the innermost phase of its allocation and whether it outlived that phase.
    fn by_part(&self, life: &Life) -> Option<Option<Category>> {
        if let Some(category) = self.sizes.borrow().get(&life.record.size) {
            return Some(Some(*category));
        }
        let stretches = self.stretches.borrow();
        // Inner phases end before outer ones.
        let stretch = stretches.iter().find(|stretch| stretch.from < life.from && life.from <= stretch.to)?;
        let is_over = life.to <= stretch.to;
        let next_pass = || {
            let later = stretches.iter().filter(|later| later.part == Part::Backward && later.from >= stretch.to);
            later.map(|pass| pass.from).min()
        };
        match stretch.part {
            Part::Backward => Some(Some(AutogradDetail)),
            _ if is_over => Some(Some(Temporary)),
            Part::Load => Some(Some(Parameter)),
            Part::Save => Some(None),
            Part::Input => Some(Some(Input)),
            Part::Step => Some(Some(OptimizerState)),
            Part::Forward if next_pass().is_some_and(|pass| life.to > pass) => Some(Some(Activation)),
            Part::Forward if next_pass().is_some() => Some(Some(Temporary)),
            // Kept by the program for its own purposes.
            Part::Forward => None,
        }
    }
}

/// The heap has blocks that are no tensor's. What remains of a phase without a label is a tensor's if it is data, an activation or,
/// by its size, the state of an optimizer; small blocks may be anything.
fn of_heap(known: Option<Option<Category>>, size: u64, parameters: &HashSet<u64>) -> Option<Option<Category>> {
    /// The structures of tensors are smaller, those of collections may be larger.
    const SMALL: u64 = 2048;
    match known? {
        Some(Temporary | AutogradDetail) | None => known,
        Some(OptimizerState) if parameters.contains(&size) => known,
        _ if size < SMALL => None,
        Some(Activation | Input) => known,
        _ => Some(None),
    }
}

struct Life {
    record: Record,
    from: u64,
    to: u64,
}

struct Lives(Vec<Life>);

impl Lives {
    fn of(records: &[Record]) -> Self {
        let mut lives: Vec<Life> = Vec::new();
        let mut index = HashMap::new();
        for (position, record) in (1..).zip(records) {
            match record.kind {
                RecordKind::Alloc => {
                    index.insert(record.alloc_seq, lives.len());
                    lives.push(Life { record: *record, from: position, to: u64::MAX });
                }
                RecordKind::Free => {
                    // Blocks of the program before are freed, too.
                    if let Some(at) = index.get(&record.alloc_seq) {
                        lives[*at].to = position;
                    }
                }
            }
        }
        Self(lives)
    }

    fn meant_by(&self, label: &Label) -> usize {
        let is_meant = |life: &Life| {
            life.record.address == label.address && life.from <= label.position && label.position < life.to
        };
        self.0.iter().position(is_meant).expect("a tensor that was labelled is live")
    }
}

/// The address of the tensor's elements.
fn address(tensor: &Tensor) -> u64 {
    let (storage, _) = tensor.storage_and_layout();
    let storage = match &*storage {
        Storage::Cuda(storage) => storage,
        Storage::Cpu(CpuStorage::U32(data)) => return data.as_ptr().addr() as u64,
        Storage::Cpu(CpuStorage::F16(data)) => return data.as_ptr().addr() as u64,
        Storage::Cpu(CpuStorage::F32(data)) => return data.as_ptr().addr() as u64,
        _ => panic!("no program here has tensors of this type"),
    };
    fn of<T>(data: &CudaSlice<T>) -> u64 {
        data.device_ptr(data.stream()).0
    }
    match &storage.slice {
        Slice::U8(data) => of(data),
        Slice::U32(data) => of(data),
        Slice::I64(data) => of(data),
        Slice::BF16(data) => of(data),
        Slice::F16(data) => of(data),
        Slice::F32(data) => of(data),
        Slice::F64(data) => of(data),
        _ => panic!("no program here has tensors of this type"),
    }
}
