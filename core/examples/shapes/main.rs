//! Recordings that have much of one thing: `shapes SHAPE N FILE` writes one with N of it, `shapes` lists the shapes. The lane
//! `costs` reads them with every command.

mod pickle;
mod pickles;
mod recording;
mod recordings;

use std::error::Error;
use std::fs::File;
use std::io::Write;

use memtrace_core::export::{Capture, Export};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [shape, number, file] = &arguments[..] else {
        recordings::SHAPES.iter().for_each(|(name, _)| println!("{name}.memtrace"));
        pickles::SHAPES.iter().for_each(|(name, _)| println!("{name}.pickle"));
        return Ok(());
    };
    let (number, mut out) = (number.parse()?, File::create(file)?);
    if let Some((_, make)) = recordings::SHAPES.iter().find(|(name, _)| shape.strip_suffix(".memtrace") == Some(name)) {
        Capture::default().write(&make(number), &mut out)?;
    } else if let Some((_, make)) = pickles::SHAPES.iter().find(|(name, _)| shape.strip_suffix(".pickle") == Some(name))
    {
        out.write_all(&make(number))?;
    } else {
        return Err(format!("there is no shape {shape}").into());
    }
    Ok(())
}
