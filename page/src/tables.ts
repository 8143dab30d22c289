// Views that show tables of core's report.

import type { App } from "./app.ts";
import { h, replace } from "./dom.ts";
import type { Section } from "./head.ts";
import { sectionElement, totals } from "./report_view.ts";
import type { View } from "./views.ts";

const LEAKS = ["temporaries", "live_by_line"];

/** Keys of the timeline that a section's last column has. */
function keyOf(section: Section): string | undefined {
  const names: Record<string, string> = {
    peak_by_line: "line", peak_by_function: "function", peak_by_operator: "operator", peak_by_category: "category",
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
    const sections = this.app.head.report.sections.filter((section) => LEAKS.includes(section.key));
    if (sections.length === 0) return [h("p", { class: "faint" }, "No block was freed soon after its allocation, and none is live at the end.")];
    return sections.map((section) => shown(this.app, section));
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
