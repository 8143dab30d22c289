//! Pprof profile: symbolised protobuf for `go tool pprof`, Pyroscope and Parca.
//!
//! Field numbers are those of `perftools.profiles.Profile`.

mod tables;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::Write;
use std::rc::Rc;

use self::tables::{ProfileTables, id};
use super::protobuf::ProtoMessage;
use super::viewers::ShownFrames;
use super::{Export, LeftOut};
use crate::analysis::{Moment, NO_STACK, operator_label};
use crate::error::Error;
use crate::numbered::Numbered;
use crate::recording::{DeviceView, Recording};
use crate::report::sampled;
use crate::snapshot::{Block, ContextId, Device, SnapshotData, StackId, Weight};

/// The values of a sample. The first ones are those of Go's heap profiles, in their order.
const SAMPLE_TYPES: [(&str, &str); 6] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    (SHOWN_BY_DEFAULT, "bytes"),
    ("live_objects", "count"),
    ("live_space", "bytes"),
];
const SHOWN_BY_DEFAULT: &str = "inuse_space";

/// A profile for [pprof](https://github.com/google/pprof): `inuse_space` and `inuse_objects` at each device's peak,
/// `live_space` and `live_objects` at the end, and `alloc_space` and `alloc_objects` over all records of the log. The
/// values of `inuse_space` add up to the peaks' totals. Samples have the labels `device`, `scope`, `operator` and
/// `category`. Frames of the standard library and of memtrace are left out.
#[derive(Clone, Debug, Default)]
pub struct Pprof {
    /// Only this device; all if `None`.
    pub device: Option<Device>,
}

impl Export for Pprof {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let recording = Recording::new(data);
        let mut profile = ProfileBuilder::new(&recording);
        for device in recording.devices().iter().filter(|device| self.device.is_none_or(|only| only == device.device)) {
            profile.device(device)?;
        }
        out.write_all(profile.finish().bytes())?;
        out.flush()?;
        Ok(LeftOut::default())
    }
}

/// Stack, context and category of a sample. Samples with the same key are merged. Each sample has three weights: of
/// `alloc`, `inuse` and `live`.
type SampleKey = (StackId, ContextId, &'static str);

struct ProfileBuilder<'a> {
    data: &'a Recording<'a>,
    shown: ShownFrames<'a>,
    profile: ProtoMessage,
    tables: ProfileTables,
    /// The locations and the operator of each stack.
    stacks: HashMap<StackId, Rc<(Vec<usize>, String)>>,
}

impl<'a> ProfileBuilder<'a> {
    fn new(data: &'a Recording<'a>) -> Self {
        let (shown, profile) = (ShownFrames::of(data), ProtoMessage::default());
        Self { data, shown, profile, tables: ProfileTables::new(), stacks: HashMap::new() }
    }

    fn device(&mut self, device: &DeviceView<'_>) -> Result<(), Error> {
        let categories = device.categories();
        let key = |block: &Block| (block.stack, block.context, categories.label(block.seq));
        let mut samples: Numbered<SampleKey, [Weight; 3]> = Numbered::default();
        let moments = [device.at(&Moment::Allocated)?, device.at_peak(), device.at_end()];
        for (at, live) in moments.iter().enumerate() {
            live.weights().for_each(|(block, weight)| samples.update(key(block), |weights| weights[at] += weight));
        }
        let name = device.device.to_string();
        for ((stack, context, category), weights) in samples.rows() {
            let known = self.stack(*stack);
            let (locations, operator) = &*known;
            let scope = self.data.context_path(*context);
            let labels = [("device", &*name), ("scope", &scope), ("operator", operator), ("category", category)];
            let values = weights.map(|weight| [weight.blocks(), weight.bytes]);
            self.sample(locations, values.as_flattened(), &labels);
        }
        for (at, live) in moments.iter().enumerate().skip(1) {
            for (label, bytes) in live.rest() {
                let location = self.tables.label(label);
                let mut values = [0; SAMPLE_TYPES.len()];
                values[2 * at + 1] = bytes;
                self.sample(&[location], &values, &[("device", &*name)]);
            }
        }
        Ok(())
    }

    fn sample(&mut self, locations: &[usize], values: &[u64], labels: &[(&str, &str)]) {
        let labels: Vec<(u64, u64)> = labels
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| (self.tables.string(key), self.tables.string(value)))
            .collect();
        self.profile.message(2, |sample| {
            sample.numbers(1, locations.iter().map(|location| id(*location)));
            // The format's values are signed.
            sample.numbers(2, values.iter().map(|value| (*value).min(i64::MAX as u64)));
            for (key, value) in labels {
                sample.message(3, |label| {
                    label.number(1, key);
                    label.number(2, value);
                });
            }
        });
    }

    fn stack(&mut self, stack: StackId) -> Rc<(Vec<usize>, String)> {
        if let Some(known) = self.stacks.get(&stack) {
            return known.clone();
        }
        let addresses = self.shown.of_stack(stack);
        let mut locations: Vec<usize> = addresses
            .into_iter()
            .map(|(_, frames)| self.tables.location(&frames, &self.data.process.working_dir))
            .collect();
        if locations.is_empty() {
            locations.push(self.tables.label(NO_STACK.to_owned()));
        }
        let made = Rc::new((locations, operator_label(self.data, stack.0)));
        self.stacks.insert(stack, made.clone());
        made
    }

    fn finish(mut self) -> ProtoMessage {
        let types = SAMPLE_TYPES.map(|(name, unit)| (self.tables.string(name), self.tables.string(unit)));
        let [program, default] = [&*self.data.process.program, SHOWN_BY_DEFAULT].map(|text| self.tables.string(text));
        let notes = self.data.devices.iter().filter_map(|device| sampled::note(device.sample_interval())).take(1);
        let comments: Vec<u64> = notes.map(|note| self.tables.string(&note)).collect();
        let mut profile = self.profile;
        for (name, unit) in types {
            profile.message(1, |of| {
                of.number(1, name);
                of.number(2, unit);
            });
        }
        // One mapping, marked as having functions, files, lines and inlined frames, so that readers do not search for
        // symbols.
        profile.message(3, |mapping| {
            mapping.number(1, 1);
            mapping.number(5, program);
            (7..=10).for_each(|is_known| mapping.number(is_known, 1));
        });
        self.tables.write(&mut profile);
        profile.number(9, self.data.process.started_unix_us.saturating_mul(1000));
        profile.number(10, self.data.process.duration_ns);
        profile.numbers(13, comments);
        profile.number(14, default);
        profile
    }
}
