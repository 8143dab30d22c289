//! Operators whose temporaries are many times their inputs and outputs.

use candle_core::{DType, Device, Tensor};
use memtrace::analysis::{OperatorTemporaries, operator_temporaries};
use memtrace::{DeviceView, Snapshot, report};

use crate::child::in_child;

const LENGTH: u64 = 1024;

fn recorded(program: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>) -> Snapshot {
    let session = memtrace::start().unwrap();
    let x = Tensor::ones(LENGTH as usize, DType::F32, &Device::Cpu).unwrap();
    let _kept = program(&x).unwrap();
    session.snapshot()
}

fn found(snapshot: &Snapshot) -> Option<OperatorTemporaries> {
    operator_temporaries(&DeviceView::of(snapshot, snapshot.device(memtrace::Device::Cpu).unwrap()))
}

/// candle sums with a triangular matrix of `f32`, which it converts from one of `u8`.
#[test]
fn cumsum_takes_five_bytes_for_each_pair_of_values() {
    in_child(&[], || {
        let snapshot = recorded(|x| x.cumsum(0));
        let row = found(&snapshot).unwrap();
        let (indices, values) = (4 * LENGTH, 4 * LENGTH);
        assert_eq!(row.bytes, 5 * LENGTH * LENGTH + indices, "{row:?}");
        assert_eq!((&*row.operator, row.inputs, row.outputs), ("cumsum", values, values), "{row:?}");
        assert_eq!(row.times(), 640);
        assert!(row.line.contains("workspace.rs:"), "{row:?}");
        let device = snapshot.device(memtrace::Device::Cpu).unwrap();
        let found = report::findings(&DeviceView::of(&snapshot, device));
        let [square] = &found[..] else { panic!("{found:?}") };
        assert!(square.advice.last().unwrap().starts_with("The peak would be "), "{square:?}");
    });
}

#[test]
fn operators_without_temporaries_are_not_reported() {
    in_child(&[], || assert_eq!(found(&recorded(|x| x.exp()?.log()?.sqr())), None));
}
