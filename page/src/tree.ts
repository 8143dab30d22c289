// Tree of a flame graph: what is live, by stack, scope path or module.

import type { DeviceData } from "./device.ts";
import type { LiveBlocks } from "./moment.ts";

export interface TreeNode {
  name: string;
  /** File and line, or nothing. */
  place: string;
  /** Whose code; 3 for scopes. */
  origin: number;
  bytes: number;
  count: number;
  /** Number of the first block, for the order of time. */
  first: number;
  children: Map<string, TreeNode>;
}

function node(name: string, place: string, origin: number): TreeNode {
  return { name, place, origin, bytes: 0, count: 0, first: Infinity, children: new Map() };
}

export function tree(data: DeviceData, live: LiveBlocks, by: string): TreeNode {
  const root = node("all", "", 3);
  const paths = new Map<number, TreeNode[]>();
  for (let at = 0; at < live.rows.length; at++) {
    const row = live.rows[at]!;
    const number = by === "stack" ? data.blocks.stack[row]! : data.blocks.context[row]!;
    let path = paths.get(number);
    if (!path) paths.set(number, (path = pathOf(data, root, by, number)));
    for (const step of path) {
      step.bytes += live.weights[at]!;
      step.count++;
      step.first = Math.min(step.first, row);
    }
  }
  for (const [label, bytes] of live.rest) {
    const rest = node(label, "", 3);
    Object.assign(rest, { bytes, first: -1 });
    root.children.set(label, rest);
    root.bytes += bytes;
  }
  return root;
}

/** The nodes of a stack or a context from the root, made where they are new. */
function pathOf(data: DeviceData, root: TreeNode, by: string, number: number): TreeNode[] {
  const steps: [string, string, number][] =
    by === "stack" ? withoutRuntime(data.frames(number).reverse()) : data.scopes(number, by === "module").map((name) => [name, "", 0]);
  if (steps.length === 0) steps.push([by === "stack" ? "(no stack)" : by === "module" ? "(no module)" : "(no scope)", "", 3]);
  const path = [root];
  for (const [name, place, origin] of steps) {
    const parent = path[path.length - 1]!;
    const id = `${name}\n${place}`;
    let child = parent.children.get(id);
    if (!child) parent.children.set(id, (child = node(name, place, origin)));
    path.push(child);
  }
  return path;
}

/** Without the frames that start every program, unless there are no others. */
function withoutRuntime(frames: [string, string, number][]): [string, string, number][] {
  const first = frames.findIndex(([, , origin]) => origin !== 3);
  return first < 0 ? frames : frames.slice(first);
}

export interface FlameBox {
  node: TreeNode;
  depth: number;
  from: number;
  bytes: number;
  parent: number;
}

/** Boxes of at least `least` bytes, parents before children. */
export function boxes(root: TreeNode, order: string, least: number): FlameBox[] {
  const found: FlameBox[] = [{ node: root, depth: 0, from: 0, bytes: root.bytes, parent: -1 }];
  for (let at = 0; at < found.length; at++) {
    const box = found[at]!;
    let { from } = box;
    for (const child of sorted(box.node, order)) {
      if (child.bytes >= least) found.push({ node: child, depth: box.depth + 1, from, bytes: child.bytes, parent: at });
      from += child.bytes;
    }
  }
  return found;
}

function sorted(node: TreeNode, order: string): TreeNode[] {
  const children = [...node.children.values()];
  return order === "time" ? children.sort((a, b) => a.first - b.first) : children.sort((a, b) => b.bytes - a.bytes);
}

export function matches(node: TreeNode, search: string): boolean {
  return search !== "" && `${node.name} ${node.place}`.toLowerCase().includes(search);
}

/** Bytes below the outermost nodes that match. Scopes nest as deep as a recording says, so nothing here recurses. */
export function matched(root: TreeNode, search: string): number {
  let sum = 0;
  const waiting = [root];
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    if (matches(node, search)) sum += node.bytes;
    else for (const child of node.children.values()) waiting.push(child);
  }
  return sum;
}
