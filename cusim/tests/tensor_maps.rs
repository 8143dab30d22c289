//! Tensor maps, through the built library.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "a driver is called through C")]

mod support;

use memtrace_cusim::code::{INVALID_VALUE, NOT_INITIALIZED, NOT_SUPPORTED};
use support::{Driver, Map, in_child};

const FLOAT: u32 = 7;
const INT: u32 = 3;
const ADDRESS: u64 = 1 << 20;

/// Arguments for a matrix of 64 × 32 floats in tiles of 16 × 8, to be changed in one respect.
#[derive(Clone, Copy)]
struct Asked {
    kind: u32,
    rank: u32,
    address: u64,
    sizes: [u64; 6],
    strides: [u64; 5],
    tile: [u32; 6],
    steps: [u32; 6],
    layout: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
}

const MATRIX: Asked = Asked {
    kind: FLOAT,
    rank: 2,
    address: ADDRESS,
    sizes: [64, 32, 1, 1, 1, 1],
    strides: [256, 8192, 8192, 8192, 8192],
    tile: [16, 8, 1, 1, 1, 1],
    steps: [1; 6],
    layout: 0,
    swizzle: 2,
    promotion: 3,
    fill: 1,
};

impl Asked {
    fn tiled(self, driver: Driver, map: *mut Map) -> u32 {
        let Self { kind, rank, address, sizes, strides, tile, steps, layout, swizzle, promotion, fill } = self;
        let (sizes, strides, tile, steps) = (sizes.as_ptr(), strides.as_ptr(), tile.as_ptr(), steps.as_ptr());
        driver.tensor_map_tiled(map, kind, rank, address, sizes, strides, tile, steps, layout, swizzle, promotion, fill)
    }

    /// The corners of the bounding box in its innermost dimension; channels and pixels.
    fn columns(self, driver: Driver, map: *mut Map, corners: [i32; 2], channels: u32, pixels: u32) -> u32 {
        let Self { kind, rank, address, sizes, strides, steps, layout, swizzle, promotion, fill, .. } = self;
        let (sizes, strides, steps) = (sizes.as_ptr(), strides.as_ptr(), steps.as_ptr());
        let [lower, upper] = corners.map(|corner| [corner, 0, 0]);
        let mut other = Map::default();
        let wide = driver.tensor_map_wide(
            &mut other, kind, rank, address, sizes, strides, corners[0], corners[1], channels, pixels, steps, layout,
            1, swizzle, promotion, fill,
        );
        let exact = driver.tensor_map_columns(
            map,
            kind,
            rank,
            address,
            sizes,
            strides,
            lower.as_ptr(),
            upper.as_ptr(),
            channels,
            pixels,
            steps,
            layout,
            swizzle,
            promotion,
            fill,
        );
        if rank == 3 {
            assert_eq!(wide, exact);
        }
        exact
    }
}

#[test]
fn tiles_are_described() {
    in_child("tiles_are_described", &[], || {
        let driver = Driver::load();
        let (mut map, mut other) = (Map::default(), Map::default());
        assert_eq!(MATRIX.tiled(driver, &mut map), NOT_INITIALIZED);
        assert_eq!((driver.init(0), driver.tensor_map_move(&mut map, ADDRESS)), (0, INVALID_VALUE), "nothing is there");
        assert_eq!(MATRIX.tiled(driver, &mut map), 0);
        assert_ne!(map, Map::default());
        assert_eq!(Asked { address: ADDRESS + 16, ..MATRIX }.tiled(driver, &mut other), 0);
        assert_ne!(map, other);
        assert_eq!(driver.tensor_map_move(&mut other, ADDRESS + 8), INVALID_VALUE);
        assert_eq!((driver.tensor_map_move(&mut other, ADDRESS), other), (0, map));
        let line = Asked { rank: 1, ..MATRIX };
        let (sizes, tile, steps) = (line.sizes.as_ptr(), line.tile.as_ptr(), line.steps.as_ptr());
        let null = std::ptr::null();
        assert_eq!(driver.tensor_map_tiled(&mut map, INT, 1, ADDRESS, sizes, null, tile, steps, 0, 0, 0, 0), 0);
        assert_eq!(
            driver.tensor_map_tiled(&mut map, INT, 2, ADDRESS, sizes, null, tile, steps, 0, 0, 0, 0),
            INVALID_VALUE
        );
    });
}

#[test]
fn wrong_tiles_are_refused() {
    in_child("wrong_tiles_are_refused", &[], || {
        let driver = Driver::start();
        let cube = Asked { rank: 3, layout: 2, swizzle: 1, ..MATRIX };
        assert_eq!(cube.tiled(driver, &mut Map::default()), 0);
        let wrong = [
            ("a type", Asked { kind: 16, fill: 0, ..MATRIX }),
            ("no rank", Asked { rank: 0, ..MATRIX }),
            ("a rank", Asked { rank: 6, ..MATRIX }),
            ("an address", Asked { address: ADDRESS + 8, ..MATRIX }),
            ("a size of 0", Asked { sizes: [64, 0, 1, 1, 1, 1], ..MATRIX }),
            ("a size", Asked { sizes: [64, (1 << 32) + 1, 1, 1, 1, 1], ..MATRIX }),
            ("a stride of 8", Asked { strides: [264, 0, 0, 0, 0], ..MATRIX }),
            ("a stride", Asked { strides: [1 << 40, 0, 0, 0, 0], ..MATRIX }),
            ("a tile of 0", Asked { tile: [16, 0, 1, 1, 1, 1], ..MATRIX }),
            ("a tile", Asked { tile: [16, 257, 1, 1, 1, 1], ..MATRIX }),
            ("a row of 20 bytes", Asked { tile: [5, 8, 1, 1, 1, 1], ..MATRIX }),
            ("a row for the swizzle", Asked { tile: [32, 8, 1, 1, 1, 1], ..MATRIX }),
            ("a step of 0", Asked { steps: [1, 0, 1, 1, 1, 1], ..MATRIX }),
            ("a step", Asked { steps: [1, 9, 1, 1, 1, 1], ..MATRIX }),
            ("a layout", Asked { layout: 3, rank: 3, ..MATRIX }),
            ("a swizzle", Asked { swizzle: 7, ..MATRIX }),
            ("a promotion", Asked { promotion: 4, ..MATRIX }),
            ("a fill", Asked { fill: 2, ..MATRIX }),
            ("no number, of integers", Asked { kind: INT, ..MATRIX }),
            ("an interleaved matrix", Asked { rank: 2, ..cube }),
            ("an interleaved address", Asked { address: ADDRESS + 16, ..cube }),
            ("an interleaved stride", Asked { strides: [272, 8192, 0, 0, 0], ..cube }),
            ("an interleaved swizzle", Asked { swizzle: 2, ..cube }),
        ];
        for (what, asked) in wrong {
            let mut map = Map::default();
            assert_eq!((asked.tiled(driver, &mut map), map), (INVALID_VALUE, Map::default()), "{what}");
        }
        let mut room = [Map::default(); 2];
        assert_eq!(MATRIX.tiled(driver, room.as_mut_ptr().wrapping_byte_add(32)), INVALID_VALUE, "between two places");
    });
}

#[test]
fn columns_are_described() {
    in_child("columns_are_described", &[], || {
        let driver = Driver::start();
        let images = Asked { rank: 4, ..MATRIX };
        let columns = |asked: Asked, corners, channels, pixels| {
            let mut map = Map::default();
            let code = asked.columns(driver, &mut map, corners, channels, pixels);
            assert_eq!(code == 0, map != Map::default());
            code
        };
        assert_eq!(columns(images, [-128, 127], 16, 1024), 0);
        assert_eq!(columns(images, [-129, 127], 16, 1024), INVALID_VALUE);
        assert_eq!(columns(images, [-128, 128], 16, 1024), INVALID_VALUE);
        assert_eq!(columns(images, [0, 0], 16, 1025), INVALID_VALUE);
        assert_eq!(columns(images, [0, 0], 17, 1), INVALID_VALUE, "a row for the swizzle");
        assert_eq!(columns(Asked { swizzle: 0, ..images }, [0, 0], 257, 1), INVALID_VALUE);
        assert_eq!(columns(Asked { rank: 3, ..images }, [-32768, 32767], 16, 1), 0);
        assert_eq!(columns(Asked { rank: 3, ..images }, [-32769, 0], 16, 1), INVALID_VALUE);
        assert_eq!(columns(Asked { rank: 5, ..images }, [-16, 15], 16, 1), 0);
        assert_eq!(columns(Asked { rank: 5, ..images }, [-16, 16], 16, 1), INVALID_VALUE);
        assert_eq!(columns(Asked { rank: 2, ..images }, [0, 0], 16, 1), INVALID_VALUE);
    });
}

#[test]
fn older_gpus_have_none() {
    in_child("older_gpus_have_none", &[("MEMTRACE_CUSIM_CAPABILITY", "8.9")], || {
        assert_eq!(MATRIX.tiled(Driver::start(), &mut Map::default()), NOT_SUPPORTED);
    });
}
