// Sortable, searchable table.

import { h, replace } from "./dom.ts";

export interface SheetColumn {
  title: string;
  isNumber: boolean;
}

export interface SheetCell {
  text: string;
  /** What the column sorts by; the text if there is none. */
  sort: number | null;
  /** A part of a whole, drawn as a bar. */
  share?: number;
  colour?: { colour: string; pattern: number };
}

export interface SheetRow {
  cells: SheetCell[];
  isSelected?: boolean;
  select?: () => void;
}

/** A longer table costs a frame more to lay out. */
const SHOWN = 100;

/** Whether a text has every word of a search. */
export function hasWords(text: string, search: string): boolean {
  const lower = text.toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => lower.includes(word));
}

export class Sheet {
  readonly element = h("div", { class: "sheet" });
  private isRising = false;
  private all = false;
  private rows: SheetRow[] = [];
  private columns: SheetColumn[] = [];
  private search = "";

  /** Sorted by this column at first, the largest first; in the order given if below zero. */
  constructor(private sortBy = -1) {}

  show(columns: SheetColumn[], rows: SheetRow[], search = ""): void {
    Object.assign(this, { columns, rows, search });
    this.draw();
  }

  /** Rows that match, in the order shown. */
  shown(): SheetRow[] {
    const found = this.rows.filter((row) => hasWords(row.cells.map((cell) => cell.text).join(" "), this.search));
    if (this.sortBy < 0) return found;
    const sign = this.isRising ? 1 : -1;
    const at = this.sortBy;
    return found.sort((a, b) => sign * compared(a.cells[at]!, b.cells[at]!));
  }

  private draw(): void {
    const found = this.shown();
    const rows = this.all ? found : found.slice(0, SHOWN);
    const more = found.length - rows.length;
    replace(
      this.element,
      h(
        "table", {},
        h("thead", {}, h("tr", {}, ...this.columns.map((column, at) => this.heading(column, at)))),
        h("tbody", { keydown: (event: KeyboardEvent) => moveFocus(event) }, ...rows.map((row, at) => this.row(row, at))),
      ),
      found.length === 0 && h("p", { class: "faint" }, this.search ? "Nothing matches." : "Nothing."),
      more > 0 && h("button", { class: "quiet", click: () => { this.all = true; this.draw(); } }, `Show ${more} more rows`),
    );
  }

  private heading(column: SheetColumn, at: number): HTMLElement {
    const sorted = at === this.sortBy ? (this.isRising ? "ascending" : "descending") : "none";
    const sort = () => {
      this.isRising = at === this.sortBy ? !this.isRising : !column.isNumber;
      this.sortBy = at;
      this.draw();
      this.element.querySelectorAll<HTMLElement>("th button")[at]?.focus();
    };
    return h("th", { class: column.isNumber ? "number" : "", "aria-sort": sorted, scope: "col" }, h("button", { click: sort }, column.title || "Change"));
  }

  private row(row: SheetRow, at: number): HTMLElement {
    const cells = row.cells.map((cell, column) => {
      const mark = cell.colour && h("span", { class: `swatch pattern-${cell.colour.pattern}`, "aria-hidden": "true" });
      if (mark) mark.style.backgroundColor = cell.colour!.colour;
      const bar = cell.share !== undefined && h("span", { class: "bar", "aria-hidden": "true" });
      if (bar) bar.style.width = `${Math.max(0, Math.min(100, cell.share! * 100))}%`;
      return h("td", { "data-sort": cell.sort ?? undefined, class: this.columns[column]?.isNumber ? "number" : column === row.cells.length - 1 ? "text" : "short", title: cell.text.length > 60 ? cell.text : undefined }, bar, mark, cell.text);
    });
    const { select } = row;
    if (!select) return h("tr", {}, ...cells);
    const onKey = (event: KeyboardEvent) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); select(); }
    };
    return h("tr", { class: "selectable", tabindex: at === 0 || row.isSelected ? 0 : -1, "aria-selected": String(!!row.isSelected), click: select, keydown: onKey }, ...cells);
  }
}

function compared(a: SheetCell, b: SheetCell): number {
  if (a.sort !== null && b.sort !== null) return a.sort - b.sort;
  if (a.sort !== null || b.sort !== null) return a.sort === null ? -1 : 1;
  return a.text < b.text ? -1 : a.text > b.text ? 1 : 0;
}

function moveFocus(event: KeyboardEvent): void {
  const row = (event.target as HTMLElement).closest("tr");
  const next = event.key === "ArrowDown" ? row?.nextElementSibling : event.key === "ArrowUp" ? row?.previousElementSibling : null;
  if (next instanceof HTMLElement) {
    event.preventDefault();
    next.focus();
  }
}
