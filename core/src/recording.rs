//! A finished recording with its analyses. An analysis of a whole device that several parts of the code need is
//! computed at its first use, and then shared.

use std::cell::OnceCell;
use std::ops::{Deref, Range};
use std::rc::Rc;

use crate::analysis::{Breakdown, Graphs, Key, LiveTwice, least_room, live_twice, log, main_device};
use crate::attribute::{Attribution, Categories, Pairings};
use crate::snapshot::{Device, DeviceSnapshot, Lifetime, Lifetimes, SnapshotData};

/// A recording: its data, and a view of each device.
///
/// ```
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/small.memtrace");
/// # let data = memtrace_core::open(path)?;
/// use memtrace_core::Recording;
/// use memtrace_core::analysis::Key;
///
/// let recording = Recording::new(&data);
/// let device = recording.device_or_main(None).expect("a device was used");
/// assert_eq!(device.by(Key::Line).rows[0].label, "src/model.rs:7 (Net::forward)");
/// # Ok::<(), memtrace_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Recording<'a> {
    data: Rc<Attribution<'a>>,
    devices: Vec<DeviceView<'a>>,
}

impl<'a> Recording<'a> {
    /// Creates the views; computes no analysis yet.
    pub fn new(data: &'a SnapshotData) -> Self {
        let attribution = Rc::new(Attribution::new(data));
        let devices = data.devices.iter().map(|device| DeviceView::new(attribution.clone(), device)).collect();
        Self { data: attribution, devices }
    }

    /// A view of each device, in the order of [`SnapshotData::devices`].
    pub fn devices(&self) -> &[DeviceView<'a>] {
        &self.devices
    }

    /// The view of a device, or `None` if the program did not use the device.
    pub fn device(&self, device: Device) -> Option<&DeviceView<'a>> {
        self.devices.iter().find(|view| view.snapshot.device == device)
    }

    /// The view of `device`. If that is `None`, the view of the main device: the one with the largest peak among the
    /// CUDA devices or, if none of them was used, among the others.
    pub fn device_or_main(&self, device: Option<Device>) -> Option<&DeviceView<'a>> {
        self.device(device.or_else(|| main_device(self))?)
    }
}

impl<'a> Deref for Recording<'a> {
    type Target = Attribution<'a>;

    fn deref(&self) -> &Attribution<'a> {
        &self.data
    }
}

/// A device of a recording. It dereferences to its [`DeviceSnapshot`] and adds the analyses that several callers need.
#[derive(Debug)]
pub struct DeviceView<'a> {
    data: Rc<Attribution<'a>>,
    snapshot: &'a DeviceSnapshot,
    lifetimes: OnceCell<Rc<Lifetimes>>,
    categories: OnceCell<Categories>,
    pairings: OnceCell<Pairings>,
    /// The tables at the peak.
    pub(crate) tables: [OnceCell<Breakdown>; Key::ALL.len()],
    twice: OnceCell<Vec<LiveTwice>>,
    graphs: OnceCell<Graphs>,
    least_room: OnceCell<Option<u64>>,
}

impl<'a> DeviceView<'a> {
    fn new(data: Rc<Attribution<'a>>, snapshot: &'a DeviceSnapshot) -> Self {
        let (lifetimes, categories, pairings, tables, twice, graphs, least_room) = Default::default();
        Self { data, snapshot, lifetimes, categories, pairings, tables, twice, graphs, least_room }
    }

    /// The view of a single device, outside a [`Recording`]. It has an [`Attribution`] of its own, whereas all views of
    /// a `Recording` share one.
    pub fn of(data: &'a SnapshotData, snapshot: &'a DeviceSnapshot) -> Self {
        Self::new(Rc::new(Attribution::new(data)), snapshot)
    }

    /// The recording's data.
    pub fn data(&self) -> &Attribution<'a> {
        &self.data
    }

    /// The device's data.
    pub fn snapshot(&self) -> &'a DeviceSnapshot {
        self.snapshot
    }

    /// The blocks that the recording knows, from alloc to free.
    pub fn lifetimes(&self) -> &Rc<Lifetimes> {
        self.lifetimes.get_or_init(|| Rc::new(Lifetimes::of(self.snapshot)))
    }

    /// The time in which a block was live, in nanoseconds since the recording began. It begins at the block's alloc, or
    /// at the beginning of the log if the alloc is unknown. It ends at the block's free, or at the end of the
    /// recording.
    pub fn span_ns(&self, life: &Lifetime) -> Range<u64> {
        let from = life.alloc(self).map_or(life.block.time_ns, |alloc| alloc.time_ns);
        let from = if from == 0 && life.from == 0 { log::start_ns(self) } else { from };
        let unknown = if life.is_gone { log::start_ns(self) } else { self.data.process.duration_ns };
        from..life.free(self).map_or(unknown, |free| free.time_ns)
    }

    /// The categories of the device's blocks.
    pub fn categories(&self) -> &Categories {
        self.categories.get_or_init(|| Categories::of(&self.data, self.snapshot, self.lifetimes()))
    }

    /// Pairs the blocks of backward passes with the calls of the forward pass that they belong to.
    pub fn pairings(&self) -> &Pairings {
        self.pairings.get_or_init(|| Pairings::of(&self.data, self.snapshot, self.lifetimes()))
    }

    /// Groups of blocks that replaced each other while the older ones stayed live at the peak. Each is worth a
    /// hundredth of the peak or more; the group whose older blocks raise the peak most comes first.
    pub fn live_twice(&self) -> &[LiveTwice] {
        self.twice.get_or_init(|| live_twice(&self.data, self))
    }

    /// The least memory that is enough for the device, according to the model of the driver's pool; `None` if it is
    /// unknown.
    pub(crate) fn least_room(&self) -> Option<u64> {
        *self.least_room.get_or_init(|| least_room(self))
    }

    /// Blocks that autograd graphs keep alive although nothing needs them. There are none if the program has no
    /// variables, or if the log has lost records.
    pub(crate) fn graphs(&self) -> &Graphs {
        self.graphs.get_or_init(|| Graphs::of(&self.data, self.snapshot, self.lifetimes()))
    }
}

impl Deref for DeviceView<'_> {
    type Target = DeviceSnapshot;

    fn deref(&self) -> &DeviceSnapshot {
        self.snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::Story;

    #[test]
    fn what_the_log_no_longer_has_begins_or_ends_where_it_begins_unless_the_time_is_known() {
        let mut story = Story::cpu();
        story.lasting(900);
        story.at(100).alloc("gone", 100).at(200).alloc("older", 2).at(300).free("gone").at(350).alloc("late", 1);
        story.at(400).alloc("new", 4).at(500).free("older").at(600).free("late");
        let data = story.overwritten(4).build();
        let view = DeviceView::of(&data, &data.devices[0]);
        let spans: Vec<_> = view.lifetimes().iter().map(|life| view.span_ns(life)).collect();
        assert_eq!(spans, [100..400, 200..500, 400..600, 400..900]);
    }
}
