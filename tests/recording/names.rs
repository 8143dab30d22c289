//! Names of blocks and tensors: which blocks get one, and which outputs show it.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use memtrace::analysis::{BEFORE_RECORDING, Key, UNNAMED};
use memtrace::candle::{Traced, named as named_builder, tag, tag_varmap};
use memtrace::snapshot::{BlockName, RecordKind};
use memtrace::{Category, DeviceView, Snapshot, SnapshotData, name, name_on, open};

use crate::child::eventually;
use crate::support::{MIB, Raw, alone, cpu, record_large};

/// Names with the sizes of their blocks, in the order of allocation.
fn named(snapshot: &SnapshotData) -> Vec<(String, u64)> {
    let device = cpu(snapshot);
    let allocs = device.records.iter().filter(|record| record.kind == RecordKind::Alloc);
    allocs.filter_map(|record| Some((device.name(record.alloc_seq)?.to_owned(), record.size))).collect()
}

fn pair(name: &str, size: usize) -> (String, u64) {
    (name.to_owned(), size as u64)
}

fn tensor(mib: usize) -> Tensor {
    Tensor::zeros(mib * MIB / 4, DType::F32, &memtrace::candle::cpu()).unwrap()
}

#[test]
fn a_block_keeps_its_last_name_also_after_its_free() {
    let _alone = alone();
    let session = record_large();
    let (first, second) = (Raw::new(MIB), Raw::new(2 * MIB));
    assert!(name(first.address(), "first") && name(second.address(), "zeroth"));
    assert!(name_on(memtrace::Device::Cpu, second.address(), "second"));
    drop(first);
    assert_eq!(named(&session.snapshot()), [pair("first", MIB), pair("second", 2 * MIB)]);
}

#[test]
fn only_recorded_live_blocks_get_a_name_by_their_start_address() {
    let _alone = alone();
    let before = Raw::new(MIB);
    assert!(!name(before.address(), "no session"));
    let session = record_large();
    let (block, small, freed) = (Raw::new(MIB), Raw::new(MIB / 2), Raw::new(MIB).address());
    for address in [before.address(), small.address(), freed, block.address() + 8, 0, u64::MAX] {
        assert!(!name(address, "nobody"), "{address:x}");
    }
    assert!(!name_on(memtrace::Device::Cuda(0), block.address(), "elsewhere"));
    assert_eq!(named(&session.snapshot()), []);
}

#[test]
fn the_next_block_at_the_same_address_has_no_name() {
    let _alone = alone();
    let session = record_large();
    let found = (0..100).any(|_| {
        let address = named_and_freed();
        let again = Raw::new(4 * MIB);
        let same = again.address() == address;
        drop(again);
        same
    });
    assert!(found, "no address was used again");
    let snapshot = session.snapshot();
    let allocs = cpu(&snapshot).records.iter().filter(|record| record.kind == RecordKind::Alloc).count();
    assert_eq!(named(&snapshot).len() * 2, allocs);
}

fn named_and_freed() -> u64 {
    let block = Raw::new(4 * MIB);
    assert!(name(block.address(), "gone"));
    block.address()
}

#[test]
fn a_reallocated_block_has_no_name_and_one_whose_reallocation_failed_keeps_it() {
    let _alone = alone();
    let session = record_large();
    let (mut moved, mut stays) = (Raw::new(MIB), Raw::new(2 * MIB));
    assert!(name(moved.address(), "moved") && name(stays.address(), "stays"));
    moved.resize(3 * MIB);
    assert!(!stays.try_resize(isize::MAX as usize - 64));
    let snapshot = session.snapshot();
    let names: Vec<_> = cpu(&snapshot).live.iter().map(|block| cpu(&snapshot).name(block.seq)).collect();
    assert_eq!(names, [Some("stays"), None], "in the order of their allocs");
}

#[test]
fn a_tensors_name_is_that_of_its_whole_storage() {
    let _alone = alone();
    let session = record_large();
    let (weights, other) = (tensor(2), tensor(1));
    let part = weights.narrow(0, 1000, 10).unwrap();
    assert!(tag(&part, "weights"));
    assert!(tag(&other.to_dtype(DType::F32).unwrap(), "other"), "the same storage");
    assert!(!tag(&Tensor::new(1f32, &Device::Cpu).unwrap(), "small"));
    assert_eq!(named(&session.snapshot()), [pair("weights", 2 * MIB), pair("other f32[262144]", MIB)]);
    assert_eq!((part.dims(), part.to_vec1::<f32>().unwrap()), (&[10][..], vec![0.0; 10]));
}

#[test]
fn tensors_of_every_type_can_have_a_name() {
    let _alone = alone();
    let session = record_large();
    let types = [DType::U8, DType::U32, DType::I16, DType::I32, DType::I64];
    let floats = [DType::BF16, DType::F16, DType::F32, DType::F64, DType::F8E4M3];
    let tensors: Vec<Tensor> = types.into_iter().chain(floats).map(|kind| zeros(kind, 2 * MIB)).collect();
    tensors.iter().for_each(|tensor| assert!(tag(tensor, tensor.dtype().as_str()), "{:?}", tensor.dtype()));
    assert_eq!(named(&session.snapshot()).len(), tensors.len());
}

fn zeros(kind: DType, bytes: usize) -> Tensor {
    Tensor::zeros(bytes / kind.size_in_bytes(), kind, &Device::Cpu).unwrap()
}

#[test]
fn candles_devices_are_memtraces() {
    let _alone = alone();
    let session = record_large();
    let device = memtrace::candle::cpu();
    let _tensor = tensor(3);
    assert_eq!(memtrace::IntoDevice::into_device(&device), memtrace::Device::Cpu);
    assert_eq!(memtrace::stats(&device).allocations.current, 1);
    #[cfg(not(feature = "cuda"))]
    assert!(matches!(memtrace::candle::cuda(0), Err(candle_core::Error::NotCompiledWithCudaSupport)));
    drop(session);
}

/// Two blocks with the same name, one without a name, one from before the recording; the peak is not at the end.
fn program() -> Snapshot {
    let _before = Raw::new(MIB);
    let session = record_large();
    let (first, second) = (tensor(2), Raw::new(3 * MIB));
    let third = Raw::new(4 * MIB);
    let part = first.narrow(0, 0, 1).unwrap();
    assert!(tag(&part, "odd \"name\"\n") && name(second.address(), "odd \"name\"\n"));
    drop(third);
    session.snapshot()
}

#[test]
fn the_table_by_name_adds_up_to_the_peak() {
    let _alone = alone();
    let snapshot = program();
    let device = cpu(&snapshot);
    let table = DeviceView::of(&snapshot, device).by(Key::Name).clone();
    assert_eq!(table.total, device.peak.total());
    assert_eq!(table.rows.iter().map(|row| row.bytes).sum::<u64>(), table.total);
    let row = |label: &str| table.rows.iter().find(|row| row.label == label).map(|row| (row.bytes, row.count));
    assert_eq!(row("odd \"name\"\n"), Some((5 * MIB as u64, Some(2))));
    assert_eq!(row(UNNAMED), Some((4 * MIB as u64, Some(1))));
    assert!(row(BEFORE_RECORDING).unwrap().0 >= MIB as u64);
    assert!(snapshot.report().to_string().contains("At the peak, by name"));
}

#[test]
fn names_are_in_every_file() {
    let _alone = alone();
    let snapshot = program();
    let dir = tempfile::tempdir().unwrap();
    let read = |file: &str| {
        snapshot.write(dir.path().join(file)).unwrap();
        std::fs::read(dir.path().join(file)).unwrap()
    };
    let report: serde_json::Value = serde_json::from_slice(&read("report.json")).unwrap();
    let table = &report["devices"][0]["peak_by_name"];
    assert_eq!(table["total_bytes"], report["devices"][0]["peak"]["total_bytes"]);
    assert!(table["rows"].as_array().unwrap().iter().any(|row| row["label"] == "odd \"name\"\n"));
    let count = |file: &str, key: &str| {
        let trace: serde_json::Value = serde_json::from_slice(&read(file)).unwrap();
        let events = trace["traceEvents"].as_array().unwrap().clone();
        events.iter().filter(|event| event["args"][key] == "odd \"name\"\n").count()
    };
    assert_eq!(count("out.trace.json", "block"), 2);
    assert!(count("out.layout.json", "fqn") >= 2);
    let pickle = read("out.pickle");
    assert!(pickle.windows(10).any(|part| part == b"odd \"name\""));
}

#[test]
fn without_names_the_report_does_not_mention_them() {
    let _alone = alone();
    let session = record_large();
    let _block = Raw::new(MIB);
    assert!(!session.snapshot().report().to_string().contains("by name"));
}

#[test]
fn captures_with_names_are_rewritten_byte_for_byte() {
    let _alone = alone();
    let snapshot = program();
    let dir = tempfile::tempdir().unwrap();
    let path = |number: u32| dir.path().join(format!("{number}.memtrace"));
    snapshot.write(path(1)).unwrap();
    let again = open(path(1)).unwrap();
    again.write(path(2)).unwrap();
    assert_eq!(cpu(&again).names, cpu(&snapshot).names);
    assert_eq!(cpu(&again).names.len(), 2);
    assert_eq!(std::fs::read(path(1)).unwrap(), std::fs::read(path(2)).unwrap());
}

#[test]
fn a_stream_has_the_last_names() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stream.memtrace");
    let session = memtrace::builder().min_size(MIB).stream(path.display().to_string()).start().unwrap();
    let (first, second) = (Raw::new(MIB), Raw::new(MIB));
    assert!(name(first.address(), "early"));
    let streamed = || open(&path).unwrap().device(memtrace::Device::Cpu).map_or(Vec::new(), |d| d.names.clone());
    let named = |seq, name: &str| BlockName {
        seq: NonZeroU64::new(seq).unwrap(),
        name: name.into(),
        category: memtrace::Category::Unknown,
    };
    eventually("the stream has the name", || streamed() == [named(1, "early")]);
    assert!(name(first.address(), "late") && name(second.address(), "second"));
    drop(second);
    let snapshot = session.snapshot();
    session.end().unwrap();
    assert_eq!(streamed(), [named(1, "late"), named(2, "second")]);
    assert_eq!(streamed(), cpu(&snapshot).names);
}

/// Trains a model of two layers; returns the names and bytes of the blocks at the end.
fn trained(tag_parameters: impl Fn(&VarMap), build: impl Fn(&VarMap) -> VarBuilder<'static>) -> BTreeMap<String, u64> {
    let session = memtrace::start().unwrap();
    let weights = VarMap::new();
    let build = build(&weights);
    let layers = ["a", "b"].map(|name| candle_nn::linear(512, 512, build.pp(name)).unwrap());
    tag_parameters(&weights);
    let input = Tensor::ones((8, 512), DType::F32, &Device::Cpu).unwrap();
    let output = layers.iter().fold(input, |input, layer| candle_core::Module::forward(layer, &input).unwrap());
    let gradients = output.sqr().unwrap().sum_all().unwrap().backward().unwrap();
    // candle also keeps the input's gradient.
    assert_eq!(memtrace::candle::tag_grads(&gradients), 5);
    let snapshot = session.snapshot();
    for name in &cpu(&snapshot).names {
        let category = if name.name.starts_with("grad") { Category::Gradient } else { Category::Parameter };
        assert_eq!(name.category, category, "{}", name.name);
    }
    named(&snapshot).into_iter().collect()
}

fn from_varmap(weights: &VarMap) -> VarBuilder<'static> {
    VarBuilder::from_varmap(weights, DType::F32, &Device::Cpu)
}

#[test]
fn parameters_and_gradients_of_a_model_have_names() {
    let _alone = alone();
    let tagged = trained(|weights| assert_eq!(tag_varmap(weights), 4), from_varmap);
    let expected = [("bias f32[512]", 2048), ("weight f32[512, 512]", 1 << 20)];
    let names = |of: &'static str| expected.map(|(name, bytes)| (format!("{of}.{name}"), bytes));
    let parameters = ["a", "b"].map(names).concat();
    // Every gradient has a block as large as its parameter's.
    let of_input = ("gradient f32[8, 512]".to_owned(), 8 * 2048);
    let gradients = parameters.iter().map(|(name, bytes)| (format!("grad of {name}"), *bytes));
    assert_eq!(tagged, gradients.chain(parameters.clone()).chain([of_input]).collect());
    assert_eq!(trained(|_| (), |weights| named_builder(from_varmap(weights))), tagged);
}

#[test]
fn a_naming_builder_returns_the_same_tensors() {
    let _alone = alone();
    let weights = VarMap::new();
    let plain = from_varmap(&weights).pp("model").pp("head");
    let builder = named_builder(plain.clone());
    assert_eq!((builder.prefix(), builder.dtype()), (plain.prefix(), plain.dtype()));
    let weight = builder.get_with_hints((2, 3), "weight", candle_nn::init::ONE).unwrap();
    assert_eq!(weight.id(), plain.get((2, 3), "weight").unwrap().id());
    assert!(builder.contains_tensor("weight") && !builder.contains_tensor("bias"));
    assert_eq!(builder.root().prefix(), "");
    assert!(builder.get((3, 2), "weight").is_err(), "another shape");
}

#[test]
fn a_traced_modules_output_is_named_unless_it_has_a_name() {
    let _alone = alone();
    let session = record_large();
    let (input, weights) = (tensor(1).reshape((512, 512)).unwrap(), tensor(1).reshape((512, 512)).unwrap());
    assert!(tag(&input, "input"));
    let linear = Traced::new("head", candle_nn::Linear::new(weights, None));
    let same = Traced::new("same", candle_nn::Activation::Relu);
    let model = Traced::new("model", candle_nn::seq().add(linear).add(same));
    let output = candle_core::Module::forward(&model, &input).unwrap();
    let view = Traced::new("view", candle_nn::func(|input: &Tensor| input.t()));
    let _view = candle_core::Module::forward(&view, &input).unwrap();
    let snapshot = session.snapshot();
    let names = named(&snapshot).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let shaped = |name: &str| format!("{name} f32[512, 512]");
    assert_eq!(names, ["input", "output of head", "output of same"].map(shaped));
    let of_modules: Vec<_> = snapshot.contexts.iter().filter(|node| node.module).map(|node| &*node.name).collect();
    assert_eq!(of_modules, ["model", "head", "same", "view"]);
    drop(output);
}

#[test]
fn names_of_gradients_leave_no_memory_in_the_programs_account() {
    let _alone = alone();
    let weights = VarMap::new();
    let weight = from_varmap(&weights).get((64, 64), "a.name.that.is.long.enough.to.be.seen.weight").unwrap();
    let session = memtrace::builder().min_size(256).start().unwrap();
    tag_varmap(&weights);
    let gradients = weight.sqr().unwrap().sum_all().unwrap().backward().unwrap();
    let live = || {
        let stats = memtrace::stats(memtrace::Device::Cpu);
        stats.allocated_bytes.current + stats.below_threshold
    };
    let before = live();
    for _ in 0..1000 {
        assert_eq!(memtrace::candle::tag_grads(&gradients), 1);
    }
    assert!(live().abs_diff(before) < 8000, "{before} bytes before, {} after 1,000 names", live());
    drop(session);
}
