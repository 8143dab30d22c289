//! Downsampling of a log to pixels: the lowest and the highest moment of each column, so a short peak stays visible.

use crate::analysis::CategoryBytes;

/// Pixels from the left, and the bytes live from there on.
pub(super) type Point = (f64, CategoryBytes);

struct PixelColumn {
    at: f64,
    /// The moments with the lowest and the highest total, each with its position in the log.
    low: (usize, CategoryBytes),
    high: (usize, CategoryBytes),
    last: CategoryBytes,
}

impl PixelColumn {
    fn new(at: f64, before: CategoryBytes) -> Self {
        Self { at, low: (0, before), high: (0, before), last: before }
    }

    fn see(&mut self, place: usize, bytes: CategoryBytes) {
        if bytes.total() < self.low.1.total() {
            self.low = (place, bytes);
        }
        if bytes.total() > self.high.1.total() {
            self.high = (place, bytes);
        }
        self.last = bytes;
    }

    /// Half a pixel for each of the two moments, then the last value.
    fn points(&self) -> [Point; 3] {
        let [first, second] = if self.low.0 <= self.high.0 { [self.low, self.high] } else { [self.high, self.low] };
        [(self.at, first.1), (self.at + 0.5, second.1), (self.at + 1.0, self.last)]
    }
}

/// The lowest, the highest and the last moment of each column of pixels with records. A peak is half a pixel wide, however short
/// it was.
pub(super) fn drawn(start: CategoryBytes, steps: impl Iterator<Item = Point>, width: f64) -> Vec<Point> {
    let mut points = vec![(0.0, start)];
    let mut column = PixelColumn::new(0.0, start);
    for (place, (x, bytes)) in (1..).zip(steps) {
        let at = x.floor().clamp(0.0, (width - 1.0).max(0.0));
        if at > column.at {
            points.extend(column.points());
            column = PixelColumn::new(at, column.last);
        }
        column.see(place, bytes);
    }
    points.extend(column.points());
    points.dedup_by_key(|point| point.1);
    points
}
