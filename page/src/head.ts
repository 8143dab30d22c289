// The page's head: what core says of the recordings, read before any column.

export type Cell = [number | null, string];

export interface Section {
  key: string;
  title: string;
  estimate: boolean;
  about: string[];
  columns: string[];
  rows: Cell[][];
  notes: string[];
}

export interface Finding {
  kind: string;
  what: string;
  line: string | null;
  cost_in_words: string;
  certainty: string;
  advice: string[];
}

export interface Report {
  title: string;
  answer: string[];
  findings: Finding[];
  notes: string[];
  totals: [string, string][];
  sections: Section[];
}

export interface KeyHead {
  name: string;
  source: "stack" | "context" | "block";
  /** Number and label of each series of the timeline. */
  series: [number, string][];
}

export interface PeakHead {
  total: number;
  bytes: number;
  time_ns: number;
  step: number | null;
  rest: number;
  rest_label: string;
  below: number;
  below_label: string;
}

export interface DeviceHead {
  name: string;
  prefix: string;
  report: Report;
  /** The key that the holders are rows of. */
  holder_key: string;
  holders: [string, string][];
  start_ns: number;
  end_ns: number;
  records: number;
  calls: number;
  overwritten: number;
  is_sample: boolean;
  at_start: number;
  early: number;
  gone: number;
  rows: number;
  capacity: number | null;
  peak: PeakHead;
  keys: KeyHead[];
  levels: [number, number][];
  is_reduced: boolean;
  left_out: string[];
  threads: [number, string][];
}

export interface RecordingHead {
  program: string;
  host: string;
  started_unix_us: number;
  duration_ns: number;
  min_size: number;
  empty: Report;
  main: number;
  contexts: [string, number, boolean][];
  devices: DeviceHead[];
}

export interface PageHead {
  version: number;
  recordings: RecordingHead[];
  changes: Report | null;
}
