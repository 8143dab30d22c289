//! Categories compared with the program's knowledge of its own tensors, by address: an MLP trained with AdamW.

use std::collections::HashMap;
use std::num::NonZeroU64;

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use memtrace::analysis::Key;
use memtrace::attribute::{Attribution, Either, operator};
use memtrace::snapshot::{Block, RecordKind};
use memtrace::{Category, DeviceView, Snapshot, scope};

use crate::support::{alone, cpu};

/// The known blocks: address, category, and range of records in the log.
#[derive(Default)]
struct Known(Vec<(u64, Category)>);

impl Known {
    fn tensor(&mut self, tensor: &Tensor, category: Category) {
        let (storage, _) = tensor.storage_and_layout();
        let candle_core::Storage::Cpu(candle_core::CpuStorage::F32(data)) = &*storage else { return };
        self.0.push((data.as_ptr() as u64, category));
    }
}

/// Bytes of the training data.
const INPUT: u64 = 64 * 256 * 4;

/// Trains for five steps, and keeps the blocks of the last backward pass to the end.
fn train(tagged: bool, in_scopes: bool) -> Result<(Snapshot, HashMap<Option<NonZeroU64>, Category>)> {
    let session = memtrace::start().unwrap();
    let phase = |name: &'static str| in_scopes.then(|| memtrace::scope_guard(name));
    let weights = VarMap::new();
    let build = VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu);
    let load = phase("load");
    let layers = (0..4).map(|n| candle_nn::linear(256, 256, build.pp(n))).collect::<Result<Vec<_>>>()?;
    drop(load);
    let mut optimizer = AdamW::new(weights.all_vars(), ParamsAdamW::default())?;
    let input = Tensor::randn(0f32, 1., (64, 256), &Device::Cpu)?;
    let mut known = Known::default();
    known.tensor(&input, Category::Input);
    weights.all_vars().iter().for_each(|var| known.tensor(var, Category::Parameter));
    if tagged {
        assert_eq!(memtrace::candle::tag_varmap(&weights), 8);
    }
    let mut last: Option<(Vec<Tensor>, candle_core::backprop::GradStore, Tensor)> = None;
    for _ in 0..5 {
        drop(last.take());
        let forward = phase("forward");
        let (mut x, mut activations) = (input.clone(), Vec::new());
        for layer in &layers {
            x = layer.forward(&x)?.relu()?;
            activations.push(x.clone());
        }
        let loss = x.sqr()?.mean_all()?;
        drop(forward);
        let backward = phase("backward");
        let gradients = loss.backward()?;
        drop(backward);
        if tagged {
            assert!(memtrace::candle::tag_grads(&gradients) >= 8);
        }
        let step = phase("optimizer");
        optimizer.step(&gradients)?;
        drop(step);
        last = Some((activations, gradients, loss));
    }
    let (activations, gradients, _loss) = last.as_ref().unwrap();
    activations.iter().for_each(|tensor| known.tensor(tensor, Category::Activation));
    for var in weights.all_vars() {
        known.tensor(gradients.get(&var).unwrap(), Category::Gradient);
    }
    let snapshot = session.snapshot();
    let live: HashMap<u64, Option<NonZeroU64>> =
        cpu(&snapshot).live.iter().map(|block| (block.address, block.seq)).collect();
    let of_block = |(address, category): &(u64, Category)| Some((*live.get(address)?, *category));
    let by_seq = known.0.iter().filter_map(of_block).collect();
    Ok((snapshot, by_seq))
}

/// Known bytes whose category is right, unknown or wrong.
fn compared(snapshot: &Snapshot, known: &HashMap<Option<NonZeroU64>, Category>) -> [u64; 3] {
    let device = cpu(snapshot);
    let categories = DeviceView::of(snapshot, device).categories().clone();
    let mut sums = [0; 3];
    for block in device.live.iter().filter(|block| known.contains_key(&block.seq)) {
        let place = match categories.get(block.seq) {
            found if found == known[&block.seq] => 0,
            Category::Unknown => 1,
            found => {
                println!("{} bytes are {}, not {found}", block.size, known[&block.seq]);
                2
            }
        };
        sums[place] += block.size;
    }
    sums
}

#[test]
fn tagged_tensors_and_conclusions_from_tags_are_right() {
    let _alone = alone();
    let (snapshot, known) = train(true, true).unwrap();
    assert!(known.len() > 20);
    let [right, unknown, wrong] = compared(&snapshot, &known);
    println!("tagged: {right} bytes right, {unknown} unknown, {wrong} wrong");
    assert_eq!((wrong, unknown), (0, INPUT), "data that was brought in once and stays may be weights");
    // Other tensors in the gradients' graphs are no gradients, because the gradients are named now.
    let device = cpu(&snapshot);
    let categories = DeviceView::of(&snapshot, device).categories().clone();
    let attribution = Attribution::new(&snapshot);
    let of_pass = |block: &&Block| operator(&attribution, block.stack).is_some_and(|operator| operator.is_backward);
    let found: Vec<Category> = device.live.iter().filter(of_pass).map(|block| categories.get(block.seq)).collect();
    let count = |category| found.iter().filter(|found| **found == category).count();
    assert_eq!(count(Category::Gradient), 9, "{found:?}");
    // Matrix kernels also work during a pass.
    let is_other = |category: &&Category| !matches!(category, Category::Gradient | Category::Workspace);
    let others = found.iter().filter(is_other).collect::<Vec<_>>();
    assert!(!others.is_empty() && others.iter().all(|category| **category == Category::AutogradDetail), "{others:?}");
}

#[test]
fn tensors_that_outlive_an_optimizers_step_are_its_state() {
    let _alone = alone();
    let session = memtrace::start().unwrap();
    let ones = Tensor::ones((64, 64), DType::F32, &Device::Cpu).unwrap();
    let velocity = scope("optimizer", || ones.affine(2., 0.)?.affine(3., 1.)).unwrap();
    let after = ones.affine(4., 0.).unwrap();
    let snapshot = session.snapshot();
    let device = cpu(&snapshot);
    let categories = DeviceView::of(&snapshot, device).categories().clone();
    let allocs = device.records.iter().filter(|record| record.kind == RecordKind::Alloc && record.size == 64 * 64 * 4);
    let found: Vec<_> = allocs.map(|record| categories.get(record.alloc_seq)).collect();
    assert_eq!(found, [Category::Unknown, Category::Temporary, Category::OptimizerState, Category::Unknown]);
    drop((velocity, after));
}

#[test]
fn without_tags_gradients_are_counted_and_nothing_is_wrong() {
    let _alone = alone();
    for in_scopes in [true, false] {
        let (snapshot, known) = train(false, in_scopes).unwrap();
        let [right, unknown, wrong] = compared(&snapshot, &known);
        println!("untagged, scopes {in_scopes}: {right} bytes right, {unknown} unknown, {wrong} wrong");
        assert_eq!((wrong, unknown), (0, INPUT));
        let device = cpu(&snapshot);
        let categories = DeviceView::of(&snapshot, device).categories().clone();
        let input = device.live.iter().find(|block| known.get(&block.seq) == Some(&Category::Input)).unwrap();
        assert_eq!(categories.either(input.seq), Some(Either::InputOrWeights));
        assert!(
            DeviceView::of(&snapshot, device)
                .by(Key::Category)
                .rows
                .iter()
                .any(|row| row.label == "unknown (input or weights)")
        );
    }
}

/// AdamW's state in theory: two values per parameter.
#[test]
fn the_optimizers_state_is_twice_the_parameters() {
    let _alone = alone();
    let (snapshot, _known) = train(true, true).unwrap();
    let device = cpu(&snapshot);
    let categories = DeviceView::of(&snapshot, device).categories().clone();
    let sum = |category| {
        let of = |seq: &Option<NonZeroU64>| categories.get(*seq) == category;
        device.live.iter().filter(|block| of(&block.seq)).map(|block| block.size).sum::<u64>()
    };
    assert_eq!(sum(Category::Parameter), 4 * (256 * 256 + 256) * 4);
    assert_eq!(sum(Category::OptimizerState), 2 * sum(Category::Parameter));
}

#[test]
fn all_tables_add_up_to_the_peak() {
    let _alone = alone();
    let (snapshot, _known) = train(true, true).unwrap();
    let device = cpu(&snapshot);
    let tables = [
        Key::Line,
        Key::ModelLine,
        Key::Function,
        Key::Operator,
        Key::Module,
        Key::Parameter,
        Key::Category,
        Key::Name,
        Key::Scope,
    ];
    for table in tables.map(|key| DeviceView::of(&snapshot, device).by(key).clone()) {
        assert_eq!(table.total, device.peak.total());
        assert_eq!(table.rows.iter().map(|row| row.bytes).sum::<u64>(), table.total);
    }
    println!("{}", snapshot.report());
}

#[test]
fn every_record_has_a_category_and_a_named_one_wins() {
    let _alone = alone();
    let session = memtrace::start().unwrap();
    let tensor = scope("forward", || Tensor::ones((64, 64), DType::F32, &Device::Cpu)?.exp()).unwrap();
    assert!(memtrace::candle::tag_as(&tensor, "keys", Category::KvCache));
    let snapshot = session.snapshot();
    let device = cpu(&snapshot);
    let categories = DeviceView::of(&snapshot, device).categories().clone();
    let allocs = device.records.iter().filter(|record| record.kind == RecordKind::Alloc);
    let found: Vec<_> = allocs.map(|record| categories.get(record.alloc_seq)).collect();
    assert_eq!(found, [Category::Unknown, Category::KvCache]);
}

/// A decoder of three layers without tracing: one `cat` extends the cache with every token, another repeats it.
fn decode(tokens: usize, keep: &mut Vec<Tensor>) -> Result<()> {
    for _ in 0..tokens {
        let _token = memtrace::scope_guard("token");
        let new = Tensor::ones((1, 512), DType::F32, &Device::Cpu)?.affine(2., 1.)?;
        for layer in 0..3 {
            let longer = match keep.get(layer) {
                Some(cache) => Tensor::cat(&[cache, &new], 0)?,
                None => new.affine(1., 0.)?,
            };
            let _repeated = Tensor::cat(&[&longer, &longer], 0)?;
            match keep.get_mut(layer) {
                Some(cache) => *cache = longer,
                None => keep.push(longer),
            }
        }
    }
    Ok(())
}

#[test]
fn a_cache_that_grows_by_cat_is_recognized_and_its_repetition_is_not() {
    let _alone = alone();
    let session = memtrace::start().unwrap();
    let mut keep = Vec::new();
    decode(6, &mut keep).unwrap();
    let snapshot = session.snapshot();
    let device = cpu(&snapshot);
    let categories = DeviceView::of(&snapshot, device).categories().clone();
    let of = |category: Category| {
        let allocs = device.records.iter().filter(|record| record.kind == RecordKind::Alloc && record.size % 2048 == 0);
        let found = allocs.filter(|record| categories.get(record.alloc_seq) == category);
        found.map(|record| record.size / 2048).collect::<Vec<_>>()
    };
    // The caches of five tokens by `cat`. The first cache comes from no `cat` and outlived its token's scope. A tensor
    // filled with ones may serve any purpose.
    assert_eq!(of(Category::KvCache), [2, 3, 4, 5, 6].map(|n| [n; 3]).concat());
    assert_eq!(of(Category::Unknown), [1; 3 + 6]);
    assert_eq!(of(Category::Temporary).len(), 6 + 18);
}
