// Views that show tables of core's report.

import type { App } from "./app.ts";
import { h, replace } from "./dom.ts";
import type { Section } from "./head.ts";
import { sectionElement, totals } from "./report_view.ts";
import type { View } from "./views.ts";

/** Sections of one view, with what their absence says. */
const WASTE: [string, string, string][] = [
  ["live_twice", "Live twice", "Nothing: no function of the program held two blocks of one size at the peak where one would do, or they are less than 1 % of it."],
  ["temporaries", "Temporaries", "Nothing: no block was freed soon after its allocation."],
  ["live_by_line", "Live at the end", "Nothing is live at the end."],
];

/** Keys of the timeline that a section's last column has. */
function keyOf(section: Section): string | undefined {
  const names: Record<string, string> = {
    peak_by_line: "line", peak_by_forward_line: "forward-line", peak_by_function: "function", peak_by_operator: "operator", peak_by_category: "category",
    peak_by_module: "module", peak_by_name: "name", peak_by_scope: "scope", live_by_line: "line", temporaries: "line", live_twice: "line",
  };
  return names[section.key];
}

function shown(app: App, section: Section): HTMLElement {
  const key = keyOf(section);
  const at = section.key.startsWith("live_by") ? "end" : "peak";
  const select = key && app.head.keys.some(({ name }) => name === key) ? (label: string) => app.set({ key, label, at, view: "table" }) : undefined;
  return sectionElement(section, app.state.search, select);
}

class SectionsView implements View {
  readonly element = h("div", { class: "sections" });
  private key = "";

  constructor(protected readonly app: App) {}

  draw(): void {
    const { state, head } = this.app;
    const key = `${head.prefix} ${state.search}`;
    if (key === this.key) return;
    this.key = key;
    replace(this.element, ...this.content());
  }

  protected content(): HTMLElement[] {
    return [];
  }
}

export class LeaksAndTemporaries extends SectionsView {
  protected override content(): HTMLElement[] {
    const { sections } = this.app.head.report;
    return WASTE.flatMap(([key, title, absent]) => {
      const section = sections.find((section) => section.key === key);
      return section ? [shown(this.app, section)] : [h("h3", {}, title), h("p", { class: "faint" }, absent)];
    });
  }
}

export class AllTables extends SectionsView {
  protected override content(): HTMLElement[] {
    const { report } = this.app.head;
    return [totals(report), ...report.sections.map((section) => shown(this.app, section))];
  }
}

export class Changes extends SectionsView {
  protected override content(): HTMLElement[] {
    const { changes } = this.app.page;
    if (!changes) return [];
    const words = [...changes.answer, ...changes.notes].map((line) => h("p", {}, line));
    return [h("h3", {}, changes.title), ...words, ...changes.sections.map((section) => sectionElement(section, this.app.state.search))];
  }
}
