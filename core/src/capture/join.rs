//! Joins the parts of a stream to one recording, with the log of each part and the state of the newest.

use super::bytes::{Ids, LARGEST, Reader, in_range};
use super::decode::{Reading, committed, header, next_chunk};
use super::gaps::Skip;
use super::rebuild::DeviceParts;
use super::{Damage, DecodedCapture, NAME_VERSION, StreamPart, Tag, VERSION};
use crate::hashed::HashMap;
use crate::snapshot::{Block, StackId};
use crate::symbol::AddressKind;

/// The part that a file is, read from its first chunk.
pub(crate) fn part_of(bytes: &[u8]) -> Option<StreamPart> {
    let (version, rest) = header(bytes)?;
    let (tag, payload, _) = next_chunk(rest)?;
    let is_part = tag == Tag::Part as u8 && [VERSION, NAME_VERSION].contains(&version);
    is_part.then(|| Reader::new(payload, Ids::default()).get().ok()).flatten()
}

/// Reads a capture up to its last commit before the end or the first damage.
///
/// # Errors
/// If it is not a capture, is of a newer version, or contains nothing that can be trusted.
pub(crate) fn read(bytes: &[u8]) -> Result<DecodedCapture, String> {
    read_parts(bytes, std::iter::empty())
}

/// Reads the newest part of a stream, and the logs of the older parts, which come newest first. If a part does not fit,
/// the log begins after that part.
pub(crate) fn read_parts(newest: &[u8], older: impl Iterator<Item = Vec<u8>>) -> Result<DecodedCapture, String> {
    let contains = |Damage(what): Damage| format!("it contains {what}");
    let chunks = committed(newest)?;
    let (commit, ended) = (chunks.commit.clone(), chunks.ended);
    let mut reading = Reading::of(&chunks).map_err(contains)?;
    let (mut length, mut unread, mut known) = (newest.len(), chunks.unread, None);
    for bytes in older {
        let Ok(chunks) = committed(&bytes) else { break };
        let known = known.get_or_insert_with(|| KnownStacks::of(&reading));
        if Reading::of(&chunks).and_then(|older| reading.prepend(older, known)).is_err() {
            unread += bytes.len() as u64;
            break;
        }
        length += bytes.len();
        unread += chunks.unread;
    }
    let mut capture = reading.finish(length, commit).map_err(contains)?;
    let health = &mut capture.data.health;
    health.cut_off |= !ended;
    health.unread_bytes = health.unread_bytes.saturating_add(unread).min(LARGEST);
    Ok(capture)
}

/// The stacks of the parts that were read so far, by their addresses, so that equal stacks of older parts get the same
/// numbers.
#[derive(Default)]
pub(super) struct KnownStacks {
    stacks: HashMap<Vec<u64>, StackId>,
    addresses: HashMap<u64, u32>,
}

impl KnownStacks {
    pub(super) fn of(reading: &Reading) -> Self {
        let stacks = (1..=reading.starts.len()).map(|id| (reading.stack(id), StackId(id as u32)));
        let addresses = reading.addresses.iter().zip(0..).map(|(address, at)| (*address, at));
        Self { stacks: stacks.collect(), addresses: addresses.collect() }
    }
}

impl Reading {
    /// Adds an older part before this one.
    pub(super) fn prepend(&mut self, mut older: Self, known: &mut KnownStacks) -> Result<(), Damage> {
        let kernels = |it: &Self| it.data.gpu_work.as_ref().map_or(Vec::new(), |work| work.kernels.clone());
        if !self.data.contexts.starts_with(&older.data.contexts) || !kernels(self).starts_with(&kernels(&older)) {
            return Err(Damage("scopes or kernels of another run"));
        }
        if !older.devices.iter().all(|(device, parts)| self.parts_of(*device).is_some_and(|it| it.follows(parts))) {
            return Err(Damage("a log that does not lead to the next part"));
        }
        self.total_bytes = in_range(self.total_bytes + older.total_bytes)?;
        let numbers = self.add_stacks(&older, known)?;
        for (device, mut parts) in std::mem::take(&mut older.devices) {
            parts.renumber(&numbers);
            let place = self.places.get(&device).copied().and_then(|place| self.devices.get_mut(place));
            place.into_iter().for_each(|(_, newer)| newer.prepend(std::mem::take(&mut parts)));
        }
        Ok(())
    }

    fn parts_of(&self, device: crate::snapshot::Device) -> Option<&DeviceParts> {
        self.devices.get(*self.places.get(&device)?).map(|(_, parts)| parts)
    }

    /// The calls of a stack, by its number in the file: each is the place of an address.
    fn calls_of(&self, id: usize) -> &[u32] {
        let from = self.starts.get(id - 1).copied().unwrap_or(0) as usize;
        let to = self.starts.get(id).map_or(self.calls.len(), |start| *start as usize);
        self.calls.get(from..to).unwrap_or_default()
    }

    fn stack(&self, id: usize) -> Vec<u64> {
        self.calls_of(id).iter().filter_map(|call| self.addresses.get(*call as usize).copied()).collect()
    }

    /// Adds the stacks of an older part. Returns the new numbers of its stacks.
    fn add_stacks(&mut self, older: &Self, known: &mut KnownStacks) -> Result<Vec<StackId>, Damage> {
        let named: Vec<std::ops::Range<usize>> = older.frame_ranges();
        let mut numbers = vec![StackId::NONE];
        for id in 1..=older.starts.len() {
            let stack = older.stack(id);
            if let Some(same) = known.stacks.get(&stack) {
                numbers.push(*same);
                continue;
            }
            let start = self.calls.len().try_into().map_err(|_| Damage("too many calls"))?;
            for place in older.calls_of(id).iter().map(|call| *call as usize) {
                let Some(address) = older.addresses.get(place).copied() else { continue };
                let new = self.addresses.len() as u32;
                let call = *known.addresses.entry(address).or_insert(new);
                if call == new {
                    self.add_address(address, older, place, named.get(place).cloned());
                }
                self.calls.push(call);
            }
            self.starts.push(start);
            let number = StackId(self.starts.len() as u32);
            known.stacks.insert(stack, number);
            numbers.push(number);
        }
        Ok(numbers)
    }

    /// Adds an address that occurs only in an older part, with the names that it has there.
    fn add_address(&mut self, address: u64, older: &Self, place: usize, named: Option<std::ops::Range<usize>>) {
        self.addresses.push(address);
        let Some((frames, counts)) = &mut self.frames else { return };
        counts.resize(self.addresses.len() - 1, 0);
        self.names.kinds.resize(self.addresses.len() - 1, AddressKind::default());
        let found = named.and_then(|range| older.frames.as_ref()?.0.get(range));
        let kind = older.names.kinds.get(place).copied().unwrap_or_default();
        self.names.kinds.push(if found.is_some() { kind } else { AddressKind { unknown: true, native: false } });
        counts.push(found.map_or(0, |found| found.len() as u32));
        frames.extend(found.unwrap_or_default().iter().cloned());
    }

    /// The range of each address's frames in the list of all frames.
    fn frame_ranges(&self) -> Vec<std::ops::Range<usize>> {
        let counts = self.frames.iter().flat_map(|(_, counts)| counts);
        let mut end = 0;
        counts
            .map(|count| {
                let start = end;
                end += *count as usize;
                start..end
            })
            .collect()
    }
}

impl DeviceParts {
    /// The number of the run's records and marks up to the end of this part.
    fn end(&self) -> (u64, u64) {
        let skipped = |of: fn(&Skip) -> u64| self.skips.iter().fold(0u64, |sum, skip| sum.saturating_add(of(skip)));
        let records =
            (self.device.overwritten + self.device.records.len() as u64).saturating_add(skipped(|skip| skip.records));
        let marks = self.start.marks.saturating_add(self.device.marks.len() as u64);
        (records, marks.saturating_add(skipped(|skip| skip.marks)))
    }

    /// Whether its log begins where the older one ends, or later.
    fn follows(&self, older: &Self) -> bool {
        let (records, marks) = older.end();
        self.device.overwritten >= records && self.start.marks >= marks && older.device.gaps.is_empty()
    }

    fn renumber(&mut self, numbers: &[StackId]) {
        let number = |stack: &mut StackId| *stack = numbers.get(stack.0 as usize).copied().unwrap_or_default();
        for record in &mut self.device.records {
            number(&mut record.stack);
            number(&mut record.alloc_stack);
        }
        let of_blocks = |blocks: &mut [Block]| blocks.iter_mut().for_each(|block| number(&mut block.stack));
        of_blocks(&mut self.live_at_start);
        self.skips.iter_mut().filter_map(|skip| skip.live.as_mut()).for_each(|live| of_blocks(live));
        for uses in self.uses.values_mut() {
            uses.first.iter_mut().chain(&mut uses.last).for_each(|used| number(&mut used.stack));
            uses.dead_write.iter_mut().for_each(|dead| number(&mut dead.stack));
        }
    }

    /// Adds the log of an older part before this one. Records between the two that were not written count as skipped.
    fn prepend(&mut self, mut older: Self) {
        let (records_end, marks_end) = older.end();
        let (at, marks_at) = (older.device.records.len(), older.device.marks.len());
        let (records, marks) = (self.device.overwritten - records_end, self.start.marks - marks_end);
        if records > 0 || marks > 0 {
            let live = Some(std::mem::take(&mut self.live_at_start));
            older.skips.push(Skip { at, marks_at, records, marks, to_ns: self.start.time_ns, live });
        }
        for skip in &mut self.skips {
            skip.at += at;
            skip.marks_at += marks_at;
        }
        if let Some((from, _)) = &mut self.live {
            *from += at;
        }
        older.device.records.append(&mut self.device.records);
        older.device.marks.append(&mut self.device.marks);
        older.skips.append(&mut self.skips);
        older.device.idle.append(&mut self.device.idle);
        older.names.append(&mut self.names);
        older.uses.append(&mut self.uses);
        (self.device.records, self.device.marks, self.skips, self.device.idle) =
            (older.device.records, older.device.marks, older.skips, older.device.idle);
        (self.names, self.uses) = (older.names, older.uses);
        (self.device.overwritten, self.start, self.live_at_start) =
            (older.device.overwritten, older.start, older.live_at_start);
    }
}
