//! Code shared by the formats for profile viewers: the frames to show.

use crate::attribute::Origin;
use crate::snapshot::{CodeAddress, Frame, SnapshotData, StackId};

/// The function of a frame; if it is unknown, the file.
pub(super) fn frame_name(frame: &Frame) -> &str {
    let names = [frame.function_or_empty(), frame.file_or_empty(), "(unknown)"];
    names.into_iter().find(|name| !name.is_empty()).unwrap_or_default()
}

/// The frames to show: all but those of the standard library and of memtrace.
pub(super) struct ShownFrames<'a> {
    data: &'a SnapshotData,
    /// For each frame of the recording, by its number, whether it is shown.
    is_shown: Vec<bool>,
}

impl<'a> ShownFrames<'a> {
    pub(super) fn of(data: &'a SnapshotData) -> Self {
        let origin = |frame| Origin::of(&data.settings.rules, frame);
        let is_shown = |frame| !matches!(origin(frame), Origin::Std | Origin::Memtrace);
        Self { data, is_shown: data.stacks.frames.iter().map(is_shown).collect() }
    }

    /// The code addresses of a stack with their shown frames, both innermost first. Addresses without shown
    /// frames are left out.
    pub(super) fn of_stack(&self, stack: StackId) -> Vec<(&'a CodeAddress, Vec<&'a Frame>)> {
        let addresses = self.data.stacks.addresses(stack).map(|address| (address, self.at(address)));
        addresses.filter(|(_, frames)| !frames.is_empty()).collect()
    }

    fn at(&self, address: &'a CodeAddress) -> Vec<&'a Frame> {
        let frames = self.data.stacks.frames_at(address).iter();
        let shown = self.is_shown.iter().skip(address.frames.start as usize);
        frames.zip(shown).filter(|(_, is_shown)| **is_shown).map(|(frame, _)| frame).collect()
    }
}
