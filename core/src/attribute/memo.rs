//! Memoization of what several parts of one report compute from the whole log, such as categories.

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::snapshot::{DeviceSnapshot, SnapshotData};

#[derive(Default)]
struct ReportMemo {
    /// The recording and the device, by their addresses.
    of: (usize, usize),
    /// One result of each type.
    results: Vec<Box<dyn Any>>,
}

thread_local! {
    /// Without a destructor: reports are also written at the end of a process, after the main thread's destructors.
    static MEMO: RefCell<ManuallyDrop<Option<ReportMemo>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// While it lives, this thread computes nothing twice for its device. The device is borrowed, so nothing can change.
pub(crate) struct Memoized<'a>(PhantomData<(&'a SnapshotData, &'a DeviceSnapshot)>);

impl<'a> Memoized<'a> {
    pub(crate) fn begin(data: &'a SnapshotData, device: &'a DeviceSnapshot) -> Self {
        let of = key(data, device);
        MEMO.with_borrow_mut(|memo| **memo = Some(ReportMemo { of, ..ReportMemo::default() }));
        Self(PhantomData)
    }
}

impl Drop for Memoized<'_> {
    fn drop(&mut self) {
        MEMO.with_borrow_mut(|memo| **memo = None);
    }
}

fn key(data: &SnapshotData, device: &DeviceSnapshot) -> (usize, usize) {
    (std::ptr::from_ref(data).addr(), std::ptr::from_ref(device).addr())
}

/// The result that `make` had before for this device, or has now.
pub(crate) fn once<T: Clone + 'static>(data: &SnapshotData, device: &DeviceSnapshot, make: impl FnOnce() -> T) -> T {
    let of = key(data, device);
    known_or_made(|memo| memo.of == of, make)
}

/// The same for a recording that is reported; `None` for others.
pub(super) fn once_reported<T: Clone + 'static>(data: &SnapshotData, make: impl FnOnce() -> T) -> Option<T> {
    let is_same = |memo: &ReportMemo| memo.of.0 == std::ptr::from_ref(data).addr();
    let is_reported = MEMO.with_borrow(|memo| memo.as_ref().is_some_and(is_same));
    is_reported.then(|| known_or_made(is_same, make))
}

fn known_or_made<T: Clone + 'static>(is_same: impl Fn(&ReportMemo) -> bool, make: impl FnOnce() -> T) -> T {
    let known = MEMO.with_borrow(|memo| {
        let memo = memo.as_ref().filter(|memo| is_same(memo))?;
        memo.results.iter().find_map(|result| result.downcast_ref::<T>()).cloned()
    });
    known.unwrap_or_else(|| {
        let made = make();
        MEMO.with_borrow_mut(|memo| {
            if let Some(memo) = memo.as_mut().filter(|memo| is_same(memo)) {
                memo.results.push(Box::new(made.clone()));
            }
        });
        made
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::two_lines_and_a_temporary;

    #[test]
    fn only_the_borrowed_device_is_memoized_and_only_while_it_is() {
        let (data, other) = (two_lines_and_a_temporary(), two_lines_and_a_temporary());
        let count = std::cell::Cell::new(0);
        let calls = |data: &SnapshotData| {
            once(data, &data.devices[0], || count.set(count.get() + 1));
            count.get()
        };
        assert_eq!([calls(&data), calls(&data)], [1, 2]);
        let memo = Memoized::begin(&data, &data.devices[0]);
        assert_eq!([calls(&data), calls(&data), calls(&other), calls(&other)], [3, 3, 4, 5]);
        drop(memo);
        assert_eq!(calls(&data), 6);
    }

    #[test]
    fn a_report_may_be_written_by_the_last_destructors_of_a_thread() {
        struct Reports;
        impl Drop for Reports {
            fn drop(&mut self) {
                let data = two_lines_and_a_temporary();
                let _memo = Memoized::begin(&data, &data.devices[0]);
                assert_eq!(once(&data, &data.devices[0], || 1), 1);
            }
        }
        thread_local! {
            static EARLY: Reports = const { Reports };
            static LATE: Reports = const { Reports };
        }
        std::thread::spawn(|| {
            EARLY.with(|_| drop(Reports));
            LATE.with(|_| ());
        })
        .join()
        .unwrap();
    }
}
