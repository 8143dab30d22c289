// Colours: PyTorch's hues for categories, a palette for everything else. Where two colours are too alike for some eyes, a
// pattern tells them apart.

export interface Paint {
  colour: string;
  /** Lines over the colour: none, rising, falling, level. */
  pattern: 0 | 1 | 2 | 3;
}

/** Categories in the order of the stack, from below. */
export const CATEGORIES: [string, Paint][] = [
  ["PARAMETER", { colour: "#2e8b57", pattern: 0 }],
  ["OPTIMIZER_STATE", { colour: "#daa520", pattern: 0 }],
  ["KV_CACHE", { colour: "#ff8c00", pattern: 1 }],
  ["INPUT", { colour: "#5a6069", pattern: 0 }],
  ["ACTIVATION", { colour: "#e5484d", pattern: 0 }],
  ["GRADIENT", { colour: "#2f4bd8", pattern: 0 }],
  ["AUTOGRAD_DETAIL", { colour: "#6f93f0", pattern: 2 }],
  ["TEMPORARY", { colour: "#9f7fe0", pattern: 1 }],
  ["WORKSPACE", { colour: "#9a6236", pattern: 3 }],
  ["unknown", { colour: "#9aa0a8", pattern: 0 }],
];

const PALETTE: Paint[] = [
  { colour: "#3b7dd8", pattern: 0 },
  { colour: "#e58a1f", pattern: 0 },
  { colour: "#1a9e78", pattern: 0 },
  { colour: "#d4588f", pattern: 0 },
  { colour: "#f0c93a", pattern: 0 },
  { colour: "#6b4bb8", pattern: 0 },
  { colour: "#57b6e6", pattern: 1 },
  { colour: "#b5492a", pattern: 1 },
  { colour: "#8bb84a", pattern: 1 },
  { colour: "#a07fd6", pattern: 2 },
  { colour: "#c9a063", pattern: 2 },
];

export const OTHERS: Paint = { colour: "#b6bac0", pattern: 3 };

/** The paint of a label: by name for categories, or else by its rank among the series. */
export function paint(key: string, label: string, rank: number): Paint {
  if (key === "category") {
    const known = CATEGORIES.find(([name]) => name === label);
    if (known) return known[1];
    if (label.startsWith("unknown")) {
      const shade = 150 + 12 * (label.length % 5);
      return { colour: `rgb(${shade},${shade},${shade + 8})`, pattern: label.includes("gradient") ? 1 : 2 };
    }
  }
  return rank < 0 ? OTHERS : (PALETTE[rank % PALETTE.length] ?? OTHERS);
}

/** Places of a category in the stack, from below. */
export function place(label: string): number {
  const at = CATEGORIES.findIndex(([name]) => name === label);
  return at < 0 ? CATEGORIES.length : at;
}

const patterns = new Map<string, CanvasPattern | string>();

/** What a canvas fills with. */
export function fill(ctx: CanvasRenderingContext2D, { colour, pattern }: Paint): CanvasPattern | string {
  if (pattern === 0) return colour;
  const name = `${colour}/${pattern}`;
  let made = patterns.get(name);
  if (!made) {
    made = ctx.createPattern(tile(colour, pattern), "repeat") ?? colour;
    patterns.set(name, made);
  }
  return made;
}

export function tile(colour: string, pattern: number): HTMLCanvasElement {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const ctx = tile.getContext("2d")!;
  ctx.fillStyle = colour;
  ctx.fillRect(0, 0, 8, 8);
  ctx.strokeStyle = "rgba(255,255,255,0.55)";
  ctx.lineWidth = 1.6;
  ctx.beginPath();
  for (const at of [-8, 0, 8]) {
    if (pattern === 1) { ctx.moveTo(at, 8); ctx.lineTo(at + 8, 0); }
    if (pattern === 2) { ctx.moveTo(at, 0); ctx.lineTo(at + 8, 8); }
    if (pattern === 3) { ctx.moveTo(0, at / 2 + 2); ctx.lineTo(8, at / 2 + 2); }
  }
  ctx.stroke();
  return tile;
}
