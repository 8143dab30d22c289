//! Memoization of what several parts of one report compute from the whole log: categories, and blocks that were live twice.

use std::cell::RefCell;
use std::marker::PhantomData;

use super::Categories;
use crate::analysis::LiveTwice;
use crate::snapshot::{DeviceSnapshot, SnapshotData};

#[derive(Default)]
struct Memo {
    /// The recording and the device, by their addresses.
    of: (usize, usize),
    categories: Option<Categories>,
    twice: Option<Vec<LiveTwice>>,
}

thread_local! {
    static MEMO: RefCell<Option<Memo>> = const { RefCell::new(None) };
}

/// While it lives, this thread computes nothing twice for its device. The device is borrowed, so nothing can change.
pub(crate) struct Memoized<'a>(PhantomData<(&'a SnapshotData, &'a DeviceSnapshot)>);

impl<'a> Memoized<'a> {
    pub(crate) fn begin(data: &'a SnapshotData, device: &'a DeviceSnapshot) -> Self {
        let of = key(data, device);
        MEMO.with_borrow_mut(|memo| *memo = Some(Memo { of, ..Memo::default() }));
        Self(PhantomData)
    }
}

impl Drop for Memoized<'_> {
    fn drop(&mut self) {
        MEMO.with_borrow_mut(|memo| *memo = None);
    }
}

fn key(data: &SnapshotData, device: &DeviceSnapshot) -> (usize, usize) {
    (std::ptr::from_ref(data).addr(), std::ptr::from_ref(device).addr())
}

pub(super) fn categories(
    data: &SnapshotData,
    device: &DeviceSnapshot,
    make: impl FnOnce() -> Categories,
) -> Categories {
    once(data, device, |memo| &mut memo.categories, make)
}

pub(crate) fn twice(
    data: &SnapshotData,
    device: &DeviceSnapshot,
    make: impl FnOnce() -> Vec<LiveTwice>,
) -> Vec<LiveTwice> {
    once(data, device, |memo| &mut memo.twice, make)
}

fn once<T: Clone>(
    data: &SnapshotData,
    device: &DeviceSnapshot,
    field: impl Fn(&mut Memo) -> &mut Option<T>,
    make: impl FnOnce() -> T,
) -> T {
    let of = key(data, device);
    let is_of = |memo: &&mut Memo| memo.of == of;
    let known = MEMO.with_borrow_mut(|memo| memo.as_mut().filter(is_of).and_then(|memo| field(memo).clone()));
    known.unwrap_or_else(|| {
        let made = make();
        MEMO.with_borrow_mut(|memo| memo.as_mut().filter(is_of).map(|memo| *field(memo) = Some(made.clone())));
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
        let twice = |data: &SnapshotData| {
            twice(data, &data.devices[0], || {
                count.set(count.get() + 1);
                Vec::new()
            });
            count.get()
        };
        assert_eq!([twice(&data), twice(&data)], [1, 2]);
        let memo = Memoized::begin(&data, &data.devices[0]);
        assert_eq!([twice(&data), twice(&data), twice(&other), twice(&other)], [3, 3, 4, 5]);
        drop(memo);
        assert_eq!(twice(&data), 6);
    }
}
