//! What a picture can show of a log: two moments for each column of pixels.

use crate::analysis::CategoryBytes;

/// Where something begins to be live, in pixels from the left, and what.
pub(super) type Point = (f64, CategoryBytes);

/// The records of one column of pixels.
struct Column {
    at: f64,
    /// The moments with the lowest and the highest total, each with its place in the log.
    low: (usize, CategoryBytes),
    high: (usize, CategoryBytes),
    last: CategoryBytes,
}

impl Column {
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

    /// Half a pixel for each of the two, and from the next column on what came last.
    fn points(&self) -> [Point; 3] {
        let [first, second] = if self.low.0 <= self.high.0 { [self.low, self.high] } else { [self.high, self.low] };
        [(self.at, first.1), (self.at + 0.5, second.1), (self.at + 1.0, self.last)]
    }
}

/// Of each column of pixels in which something happened the lowest and the highest moment, and what it ends with:
/// so a peak is half a pixel wide, however short it was.
pub(super) fn visible(start: CategoryBytes, steps: impl Iterator<Item = Point>, width: f64) -> Vec<Point> {
    let mut points = vec![(0.0, start)];
    let mut column = Column::new(0.0, start);
    for (place, (x, bytes)) in (1..).zip(steps) {
        let at = x.floor().clamp(0.0, (width - 1.0).max(0.0));
        if at > column.at {
            points.extend(column.points());
            column = Column::new(at, column.last);
        }
        column.see(place, bytes);
    }
    points.extend(column.points());
    points.dedup_by_key(|point| point.1);
    points
}
