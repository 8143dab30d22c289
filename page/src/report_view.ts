// Tables of core's report, as its text has them.

import type { Cell, Report, Section } from "./head.ts";
import { h } from "./dom.ts";
import { Sheet, type SheetRow } from "./sheet.ts";

export function sectionElement(section: Section, search: string, select?: (label: string) => void): HTMLElement {
  const sheet = new Sheet();
  const isNumber = section.columns.map((_, at) => section.rows.some((row) => row[at]?.[0] !== null && row[at] !== undefined));
  const columns = section.columns.map((title, at) => ({ title, isNumber: isNumber[at] ?? false }));
  const row = (cells: Cell[]): SheetRow => {
    const label = cells.at(-1)?.[1] ?? "";
    return { cells: cells.map(([sort, text]) => ({ sort, text })), select: select && (() => select(label)) };
  };
  if (section.rows.length > 0) sheet.show(columns, section.rows.map(row), search);
  return h(
    "section", { class: "report-section", id: `section-${section.key}` },
    h("h3", {}, `${section.title}${section.estimate ? " (estimates)" : ""}`),
    section.about.length > 0 && h("pre", { class: "about" }, section.about.join("\n")),
    section.rows.length > 0 && sheet.element,
    section.notes.length > 0 && h("pre", { class: "about" }, section.notes.join("\n")),
  );
}

export function totals(report: Report): HTMLElement {
  const rows = report.totals.map(([name, text]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, text)));
  return h("section", {}, h("h3", {}, "Totals"), h("table", { class: "totals" }, h("tbody", {}, ...rows)));
}
