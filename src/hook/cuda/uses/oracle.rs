//! The parameters of all kernels in libraries, as the readers here find them and as NVIDIA's `cuobjdump` prints them.
//!
//! `cargo xtask kernels` runs this on cuBLAS.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use object::LittleEndian as LE;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};

use super::fat_binary::{self, Image};
use super::{cubin, ptx};

/// Kernels by name, with the sizes of their parameters; `None` if these are not known.
type Kernels = BTreeMap<String, Option<Vec<u32>>>;

/// How an image was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Plain,
    Lz4,
    /// Only this test reads it.
    Zstd,
}

/// Calls `act` with each cubin in a library's section of fat binaries. Kernels in PTX must have the parameters that they
/// have in a cubin of the same fat binary; returns how many kernels have both.
fn each_cubin(library: &[u8], mut act: impl FnMut(Form, Kernels)) -> usize {
    let mut in_both = 0;
    let header = FileHeader64::<LE>::parse(library).unwrap();
    let sections = header.sections(LE, library).unwrap();
    let (_, section) = sections.section_by_name(LE, b".nv_fatbin").unwrap();
    let mut rest = section.data(LE, library).unwrap();
    while let Some(at) = rest.windows(4).position(|bytes| bytes == fat_binary::MAGIC) {
        rest = &rest[at..];
        let head = usize::from(u16::from_le_bytes([rest[6], rest[7]]));
        let (file, after) = rest.split_at(head + u64::from_le_bytes(*rest[8..].first_chunk().unwrap()) as usize);
        let (mut native, mut portable) = (Kernels::new(), Vec::new());
        for image in fat_binary::images(file) {
            match read(&image) {
                (form, Kind::Cubin(kernels)) => {
                    native.extend(kernels.clone());
                    act(form, kernels);
                }
                (_, Kind::Ptx(kernels)) => portable.extend(kernels),
            }
        }
        for (name, layout) in portable {
            if let Some(expected) = native.get(&name) {
                assert_eq!(&layout, expected, "{name} in PTX");
                in_both += 1;
            }
        }
        rest = after;
    }
    in_both
}

enum Kind {
    Cubin(Kernels),
    Ptx(Kernels),
}

fn read(image: &Image<'_>) -> (Form, Kind) {
    let own = || image.with_bytes(kernels).expect("an image that is compressed with LZ4 can be read");
    match image {
        Image::Plain(_) => (Form::Plain, own()),
        Image::Lz4(..) => (Form::Lz4, own()),
        Image::Other(packed) => {
            let mut bytes = Vec::new();
            ruzstd::decoding::StreamingDecoder::new(*packed).unwrap().read_to_end(&mut bytes).unwrap();
            (Form::Zstd, kernels(&bytes))
        }
    }
}

fn kernels(image: &[u8]) -> Kind {
    let of = |entry: &crate::record::uses::KernelEntry| {
        let sizes = entry.layout.as_ref().map(|layout| layout.iter().map(|known| known.size).collect());
        (String::from_utf8(entry.name.to_vec()).unwrap(), sizes)
    };
    match image.starts_with(&cubin::MAGIC) {
        true => Kind::Cubin(cubin::entries(image).iter().map(of).collect()),
        false => Kind::Ptx(ptx::entries(image).iter().map(of).collect()),
    }
}

/// Calls `act` with each cubin as `cuobjdump` prints it.
fn each_printed(tool: &Path, library: &Path, mut act: impl FnMut(Kernels)) {
    let mut command = Command::new(tool);
    let mut child = command.arg("-elf").arg(library).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut kernels, mut current, mut is_parameter) = (None::<Kernels>, None::<String>, false);
    for line in BufReader::with_capacity(1 << 20, child.stdout.take().unwrap()).split(b'\n') {
        let line = line.unwrap();
        if line.starts_with(b"Fatbin elf code:") {
            kernels.replace(Kernels::new()).into_iter().for_each(&mut act);
        } else if line.starts_with(b".") {
            let name =
                line.strip_prefix(b".nv.info.").map(|name| String::from_utf8(name.trim_ascii().to_vec()).unwrap());
            if let (Some(kernels), Some(name)) = (&mut kernels, &name) {
                kernels.insert(name.clone(), Some(Vec::new()));
            }
            current = name;
        } else if line.starts_with(b"\tAttribute:") {
            is_parameter = line.windows(12).any(|text| text == b"_KPARAM_INFO");
        } else if is_parameter && line.starts_with(b"\tValue:") {
            let (kernels, name) = (kernels.as_mut().unwrap(), current.as_ref().unwrap());
            let sizes = kernels.get_mut(name).unwrap().as_mut().unwrap();
            let [at, size] = ["Ordinal", "Size"].map(|field| number(&line, field));
            sizes.resize(sizes.len().max(at as usize + 1), 0);
            sizes[at as usize] = size;
        }
    }
    kernels.into_iter().for_each(act);
    assert!(child.wait().unwrap().success());
}

/// The number after `NAME : 0x`.
fn number(line: &[u8], name: &str) -> u32 {
    let line = str::from_utf8(line).unwrap();
    let text = line.split(name).nth(1).and_then(|rest| rest.split("0x").nth(1)).unwrap();
    u32::from_str_radix(text.split_ascii_whitespace().next().unwrap(), 16).unwrap()
}

/// `MEMTRACE_TEST_LIBRARIES` has the tool's path and the libraries', separated by colons.
#[test]
#[ignore = "needs NVIDIA's files; `cargo xtask kernels` has them"]
fn kernels_of_libraries_are_as_nvidias_tool_prints_them() {
    let paths = std::env::var("MEMTRACE_TEST_LIBRARIES").unwrap();
    let (tool, libraries) = paths.split_once(':').unwrap();
    for library in libraries.split(':') {
        let mut printed = Vec::new();
        each_printed(Path::new(tool), Path::new(library), |kernels| printed.push(kernels));
        let (mut counts, mut cubins) = (BTreeMap::<Form, [usize; 2]>::new(), 0);
        let in_both = each_cubin(&std::fs::read(library).unwrap(), |form, kernels| {
            let [images, all] = counts.entry(form).or_default();
            *images += 1;
            *all += kernels.len();
            let expected = &printed[cubins];
            assert!(kernels.keys().eq(expected.keys()), "cubin {cubins}: {kernels:?} {expected:?}");
            for (name, layout) in &kernels {
                assert_eq!(layout, &expected[name], "cubin {cubins}: {name}");
            }
            cubins += 1;
        });
        assert_eq!(cubins, printed.len(), "all cubins were compared");
        for (form, [images, kernels]) in counts {
            println!("{library}: {form:?}: {images} cubins, {kernels} kernels");
        }
        println!("{library}: in PTX, too: {in_both} kernels");
    }
}
