//! Advice as instant events, at both ends of the time in which blocks of the peak are not needed.

use std::io;

use super::Timeline;
use crate::export::advice::PREFIX;
use crate::snapshot::DeviceSnapshot;

impl Timeline<'_, '_> {
    pub(super) fn advice(&mut self, device: &DeviceSnapshot) -> io::Result<()> {
        let known = self.known;
        let end = self.data.process.duration_ns;
        for row in known.advice.get(&device.device).into_iter().flatten() {
            let what = row.name.strip_prefix(PREFIX).unwrap_or(&row.name);
            for (edge, time_ns) in [("begins", row.from_ns), ("ends", row.until_ns)] {
                self.trace.event("i", |event| {
                    event.text("s", "p");
                    event.text("cat", "advice");
                    event.text("name", &format!("{}: {what}: {edge}", device.device));
                    event.text("cname", "bad");
                    event.track(&known.process);
                    event.time(time_ns.min(end));
                    event.object("args", |args| args.number("peak_without_bytes", row.peak_without));
                })?;
            }
        }
        Ok(())
    }
}
