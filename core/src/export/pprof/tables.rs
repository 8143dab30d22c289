//! Tables of a pprof profile: strings, functions and locations without duplicates.

use crate::analysis::shorten_path;
use crate::export::protobuf::ProtoMessage;
use crate::export::viewers::frame_name;
use crate::numbered::Numbered;
use crate::snapshot::Frame;

/// The frames of a code address, innermost first: number of the function, and line.
type LocationLines = Vec<(usize, u64)>;

pub(super) struct ProfileTables {
    strings: Numbered<String>,
    /// For each function, the numbers of its name and its file in `strings`.
    functions: Numbered<(usize, usize)>,
    locations: Numbered<LocationLines>,
}

impl ProfileTables {
    pub(super) fn new() -> Self {
        let mut strings = Numbered::default();
        // The format requires that string 0 is empty.
        strings.number(String::new());
        Self { strings, functions: Numbered::default(), locations: Numbered::default() }
    }

    pub(super) fn string(&mut self, text: &str) -> u64 {
        self.strings.number(text.to_owned()) as u64
    }

    /// The location of a code address with these frames, innermost first.
    pub(super) fn location(&mut self, frames: &[&Frame], working_dir: &str) -> usize {
        let lines = frames.iter().map(|frame| {
            let file = shorten_path(frame.file_or_empty(), working_dir);
            let names = [frame_name(frame), file].map(|name| self.strings.number(name.to_owned()));
            (self.functions.number(names.into()), frame.line.map_or(0, |line| line.get().into()))
        });
        let lines = lines.collect();
        self.locations.number(lines)
    }

    /// The location that shows a text instead of a stack.
    pub(super) fn label(&mut self, label: String) -> usize {
        let function = (self.strings.number(label), 0);
        let line = (self.functions.number(function), 0);
        self.locations.number(vec![line])
    }

    pub(super) fn write(&self, profile: &mut ProtoMessage) {
        for (number, (lines, ())) in self.locations.rows().iter().enumerate() {
            profile.message(4, |location| {
                location.number(1, id(number));
                location.number(2, 1);
                for (function, line) in lines {
                    location.message(4, |of| {
                        of.number(1, id(*function));
                        of.number(2, *line);
                    });
                }
            });
        }
        for (number, ((name, file), ())) in self.functions.rows().iter().enumerate() {
            profile.message(5, |function| {
                function.number(1, id(number));
                function.number(2, *name as u64);
                function.number(4, *file as u64);
            });
        }
        self.strings.rows().iter().for_each(|(text, ())| profile.text(6, text));
    }
}

/// The id, in the file, of the entry with this number. Ids in the file begin at 1.
pub(super) fn id(number: usize) -> u64 {
    number as u64 + 1
}
