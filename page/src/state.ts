// State of the page, kept in the URL's fragment, so that links and the back button work.

export interface PageState {
  recording: number;
  device: number;
  /** The selected moment: `peak`, `end`, or nanoseconds. */
  at: string;
  /** The visible time, in nanoseconds; empty for all. */
  from: string;
  to: string;
  key: string;
  /** The selected label of the key. */
  label: string;
  view: string;
  search: string;
  /** The pinned block. */
  pin: string;
  /** Grouping of the flame graph, its order and its root. */
  flame: string;
  order: string;
  root: string;
  /** The two instants of the growth, in nanoseconds; empty for those of the steps. */
  since: string;
  until: string;
}

export const INITIAL: PageState = {
  recording: 0,
  device: -1,
  at: "peak",
  from: "",
  to: "",
  key: "category",
  label: "",
  view: "table",
  search: "",
  pin: "",
  flame: "stack",
  order: "heavy",
  root: "",
  since: "",
  until: "",
};

export function encoded(state: PageState, initial: PageState = INITIAL): string {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (value !== initial[name as keyof PageState]) parts.set(name, String(value));
  }
  return parts.toString();
}

export function decodedState(fragment: string, initial: PageState = INITIAL): PageState {
  const state: Record<string, string | number> = { ...initial };
  for (const [name, value] of new URLSearchParams(fragment.replace(/^#/, ""))) {
    if (!Object.hasOwn(initial, name)) continue;
    const isNumber = typeof initial[name as keyof PageState] === "number";
    if (!isNumber) state[name] = value;
    else if (/^-?\d+$/.test(value)) state[name] = Number(value);
  }
  return state as unknown as PageState;
}
