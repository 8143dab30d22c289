//! A report String and the columns of a table grow by doubling; nothing else is kept.

use std::fmt::Write;

#[derive(Default)]
struct Table {
    columns: Vec<Vec<f32>>,
    rows: usize,
}

impl Table {
    fn push(&mut self, row: [f32; 3]) {
        self.columns.resize_with(3, Vec::new);
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(value);
        }
        self.rows += 1;
    }
}

fn smooth(column: &[f32]) -> f32 {
    let tail = column[column.len().saturating_sub(20_000)..].to_vec();
    tail.iter().sum::<f32>() / tail.len() as f32
}

pub(super) fn run() -> super::Result<()> {
    let mut report = String::new();
    let mut table = Table::default();
    let mut mean = 0f32;
    for step in 0..2_000_000usize {
        let x = (step % 1000) as f32 / 1000.;
        table.push([x, x * x, 1. - x]);
        if step % 2 == 0 {
            writeln!(report, "step {step}").unwrap();
        }
        if step % 20_000 == 19_999 {
            mean = smooth(&table.columns[1]);
        }
    }
    println!("{} rows, {} bytes of text, mean {mean:.3}", table.rows, report.len());
    Ok(())
}
