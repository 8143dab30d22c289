import assert from "node:assert/strict";
import { test } from "node:test";
import { CATEGORIES, type Paint } from "../src/colours.ts";

type Rgb = [number, number, number];

function linear(hex: string): Rgb {
  const part = (at: number) => {
    const value = parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return [part(1), part(3), part(5)];
}

function times(matrix: number[][], [a, b, c]: Rgb): Rgb {
  return matrix.map((row) => row[0]! * a + row[1]! * b + row[2]! * c) as Rgb;
}

/** Linear RGB as eyes without one kind of cone see it (Viénot, Brettel and Mollon 1999). */
const SEEN: Record<string, number[][]> = {
  "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
  deuteranopia: [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
};

function lab(rgb: Rgb): Rgb {
  const xyz = times([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]], rgb);
  const f = (value: number, white: number) => {
    const part = value / white;
    return part > 0.008856 ? Math.cbrt(part) : 7.787 * part + 16 / 116;
  };
  const [x, y, z] = [f(xyz[0], 0.9505), f(xyz[1], 1), f(xyz[2], 1.089)];
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

const distance = (a: Rgb, b: Rgb) => Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);

test("two categories differ by 12 in CIE 1976 for each kind of eye, or by their pattern", () => {
  for (const [eye, matrix] of Object.entries(SEEN)) {
    const seen = CATEGORIES.map(([name, paint]): [string, Paint, Rgb] => [name, paint, lab(times(matrix, linear(paint.colour)))]);
    seen.forEach(([name, paint, colour], at) => {
      for (const [other, otherPaint, otherColour] of seen.slice(at + 1)) {
        const apart = distance(colour, otherColour);
        assert.ok(apart >= 12 || paint.pattern !== otherPaint.pattern, `${eye}: ${name} and ${other} are ${apart.toFixed(1)} apart`);
      }
    });
  }
});
