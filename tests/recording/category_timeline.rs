//! The category timeline of a training program, compared with its log, tables and live blocks.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::Read;

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use memtrace::analysis::{CategoryStep, Key, category_timeline};
use memtrace::export::{CategoriesJson, CategoriesRaw, Export, TimelineSvg};
use memtrace::snapshot::{DeviceSnapshot, RecordKind};
use memtrace::{Category, DeviceView, Snapshot, scope};

use crate::support::{alone, cpu};

/// Three steps of an MLP. It frees blocks from before the recording, and others are live at its end.
fn trained(max_entries: usize) -> Snapshot {
    let before = vec![0u8; 100_000];
    let session = memtrace::builder().max_entries(max_entries).start().unwrap();
    let kept = train(before).unwrap();
    let snapshot = session.snapshot();
    drop(kept);
    snapshot
}

fn train(before: Vec<u8>) -> Result<(VarMap, AdamW)> {
    let weights = VarMap::new();
    let build = VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu);
    let layers = (0..3).map(|n| candle_nn::linear(128, 128, build.pp(n))).collect::<Result<Vec<_>>>()?;
    memtrace::candle::tag_varmap(&weights);
    let mut optimizer = AdamW::new(weights.all_vars(), ParamsAdamW::default())?;
    let input = Tensor::randn(0f32, 1., (64, 128), &Device::Cpu)?;
    drop(before);
    for _ in 0..3 {
        let loss = scope("forward", || {
            let x = layers.iter().try_fold(input.clone(), |x, layer| layer.forward(&x)?.relu())?;
            x.sqr()?.mean_all()
        })?;
        let gradients = scope("backward", || loss.backward())?;
        memtrace::candle::tag_grads(&gradients);
        scope("optimizer", || optimizer.step(&gradients))?;
    }
    Ok((weights, optimizer))
}

/// The total after each record, computed backwards from the counters.
fn totals(device: &DeviceSnapshot) -> Vec<u64> {
    let mut now = device.stats.allocated_bytes.current;
    let mut totals = Vec::new();
    for record in device.records.iter().rev() {
        totals.push(now);
        now = if record.kind == RecordKind::Alloc { now - record.size } else { now + record.size };
    }
    totals.reverse();
    totals
}

#[test]
fn the_sum_of_the_categories_is_the_total_at_every_record() {
    let _alone = alone();
    for max_entries in [100_000, 50] {
        let snapshot = trained(max_entries);
        let device = cpu(&snapshot);
        let timeline = category_timeline(&DeviceView::of(&snapshot, device));
        let sums: Vec<u64> = timeline.steps().map(|step| step.bytes.total()).collect();
        assert!(sums.len() >= 50 && sums == totals(device));
        let last = timeline.steps().last().unwrap().bytes;
        let categories = DeviceView::of(&snapshot, device).categories().clone();
        let mut live: HashMap<Category, u64> = HashMap::from([(Category::Unknown, device.not_recorded)]);
        device.live.iter().for_each(|block| *live.entry(categories.get(block.seq)).or_default() += block.size);
        for category in Category::ALL {
            assert_eq!(last.get(category), live.get(&category).copied().unwrap_or(0), "{category}");
        }
    }
}

#[test]
fn at_the_peak_the_timeline_equals_the_table() {
    let _alone = alone();
    let snapshot = trained(100_000);
    let device = cpu(&snapshot);
    let timeline = category_timeline(&DeviceView::of(&snapshot, device));
    // The first of the highest totals.
    let CategoryStep { time_ns, bytes, .. } = timeline.steps().min_by_key(|step| Reverse(step.bytes.total())).unwrap();
    assert_eq!((time_ns, bytes.total()), (device.peak.time_ns, device.peak.bytes));
    let table = DeviceView::of(&snapshot, device).by(Key::Category).clone();
    for category in Category::ALL.into_iter().filter(|category| *category != Category::Unknown) {
        let row = table.rows.iter().find(|row| row.label == category.word());
        assert_eq!(bytes.get(category), row.map_or(0, |row| row.bytes), "{category}");
    }
    assert!(bytes.get(Category::Parameter) >= 3 * 128 * 128 * 4);
}

#[test]
fn blocks_from_before_the_recording_are_unknown_until_they_are_freed() {
    let _alone = alone();
    let snapshot = trained(100_000);
    let device = cpu(&snapshot);
    let timeline = category_timeline(&DeviceView::of(&snapshot, device));
    assert!(timeline.start().get(Category::Unknown) >= 100_000);
    assert_eq!(timeline.start().get(Category::Unknown), timeline.start().total());
    let before = timeline.steps().take_while(|step| step.change != -100_000);
    let unknown: i64 = before.filter(|step| step.category == Category::Unknown).map(|step| step.change).sum();
    let freed = timeline.steps().find(|step| step.change == -100_000).unwrap();
    assert_eq!(freed.category, Category::Unknown);
    let expected = timeline.start().total().checked_add_signed(unknown - 100_000);
    assert_eq!(Some(freed.bytes.get(Category::Unknown)), expected);
}

#[test]
fn the_file_extension_selects_the_format() {
    let _alone = alone();
    let snapshot = trained(100_000);
    let dir = tempfile::tempdir().unwrap();
    for end in ["json", "json.gz", "raw.json", "raw.json.gz", "svg", "svg.gz"] {
        let path = dir.path().join(format!("a.categories.{end}"));
        snapshot.write(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mut text = String::new();
        match end.ends_with(".gz") {
            true => drop(flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap()),
            false => text = String::from_utf8(bytes.clone()).unwrap(),
        }
        match end.contains("json") {
            true => assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap().is_array()),
            false => assert!(text.contains("fill=\"darkgreen\"") && text.contains("</svg>")),
        }
        let format: Box<dyn Export> = match end.trim_end_matches(".gz") {
            "json" => Box::new(CategoriesJson::default()),
            "raw.json" => Box::new(CategoriesRaw::default()),
            _ => Box::new(TimelineSvg::default()),
        };
        let again = snapshot.write_as(&path, &*format).unwrap();
        assert_ne!(again, path, "what is there is left as it is");
        assert!(std::fs::read(&again).unwrap() == bytes, "the same once more");
    }
    let error = snapshot.write(dir.path().join("a.xyz")).unwrap_err();
    assert!(error.to_string().contains(".categories.svg"), "{error}");
}
