//! Memoization of what several parts of one report compute from the whole log, such as categories.

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use super::matched_frame::RuleMatches;
use crate::snapshot::{DeviceSnapshot, SnapshotData};

#[derive(Default)]
struct ReportMemo {
    /// The recording and the device, by their addresses.
    of: (usize, usize),
    /// One result of each type.
    results: Vec<Box<dyn Any>>,
    rule_matches: Option<Rc<RuleMatches>>,
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

/// The rule matches of the frames of the recording that is reported.
pub(super) fn rule_matches(data: &SnapshotData) -> Option<Rc<RuleMatches>> {
    MEMO.with_borrow_mut(|memo| {
        let memo = memo.as_mut().filter(|memo| memo.of.0 == std::ptr::from_ref(data).addr())?;
        Some(memo.rule_matches.get_or_insert_with(|| Rc::new(RuleMatches::of(data))).clone())
    })
}

/// The result that `make` had before for this device, or has now.
pub(crate) fn once<T: Clone + 'static>(data: &SnapshotData, device: &DeviceSnapshot, make: impl FnOnce() -> T) -> T {
    let of = key(data, device);
    let known = MEMO.with_borrow(|memo| {
        let memo = memo.as_ref().filter(|memo| memo.of == of)?;
        memo.results.iter().find_map(|result| result.downcast_ref::<T>()).cloned()
    });
    known.unwrap_or_else(|| {
        let made = make();
        MEMO.with_borrow_mut(|memo| {
            if let Some(memo) = memo.as_mut().filter(|memo| memo.of == of) {
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
