// First screen: the answer, the largest holders, the findings and what was not seen, in core's words.

import type { App } from "./app.ts";
import { h, replace } from "./dom.ts";
import { grouped, seconds } from "./format.ts";
import type { Finding } from "./head.ts";

/** Findings that are not folded. */
const SHOWN = 5;

export class FirstScreen {
  readonly element = h("section", { class: "first", "aria-label": "The answer" });

  private drawn: unknown[] = [];

  constructor(private readonly app: App) {}

  draw(): void {
    const { app } = this;
    const { report, holders, left_out } = app.head;
    const shown = [report, app.state.key, app.state.label];
    if (shown.every((part, at) => part === this.drawn[at])) return;
    this.drawn = shown;
    const [first = "", ...others] = report.answer;
    const { overwritten, start_ns, peak } = app.head;
    const early = overwritten > 0 && `The log no longer has its ${grouped(overwritten)} oldest records; the timeline begins at ${seconds(start_ns)}.${peak.time_ns < start_ns ? " The peak was before that; the blocks that were live at it are known." : ""}`;
    const notes = [...report.notes, ...left_out, ...(early ? [early] : [])];
    replace(
      this.element,
      h("div", { class: "answer" }, h("p", { class: "peak" }, first), ...others.map((line) => h("p", {}, line)), this.changes()),
      h(
        "div", { class: "cards" },
        h("div", { class: "card" }, h("h2", {}, "Largest holders at the peak"), h("ol", { class: "holders" }, ...holders.map((holder) => this.holder(holder)))),
        h(
          "div", { class: "card" },
          h("h2", {}, "What could be better"),
          ...this.findings(report.findings),
          report.findings.length === 0 && h("p", { class: "faint" }, "No findings, which does not mean that nothing could be better."),
          h("h2", {}, "What was not seen"),
          notes.length > 0 ? h("ul", { class: "notes" }, ...notes.map((note) => h("li", {}, note))) : h("p", { class: "faint" }, "Nothing is known to be missing."),
        ),
      ),
    );
  }

  /** The difference in words, if two recordings are shown. */
  private changes(): HTMLElement | null {
    const { app } = this;
    const { changes } = app.page;
    if (!changes || app.state.recording !== 0) return null;
    const show = () => app.set({ view: "changes" });
    return h("p", {}, h("strong", {}, "Compared with the earlier recording: "), changes.answer.join(" "), " ", h("button", { class: "link", click: show }, "All changes"));
  }

  private holder([label, sentence]: [string, string]): HTMLElement {
    const { app } = this;
    const key = app.head.holder_key;
    const select = () => app.set({ at: "peak", key, label, view: "table" });
    const isSelected = app.state.key === key && app.state.label === label;
    return h("li", {}, h("button", { class: "holder", "aria-pressed": String(isSelected), click: select }, h("span", {}, sentence), h("code", {}, label)));
  }

  /** The largest findings, and the others folded. */
  private findings(all: Finding[]): (HTMLElement | null)[] {
    const list = (findings: Finding[], start: number) => h("ol", { class: "findings", start }, ...findings.map((finding) => this.finding(finding)));
    const more = all.slice(SHOWN);
    return [
      all.length > 0 ? list(all.slice(0, SHOWN), 1) : null,
      more.length > 0 ? h("details", { class: "more" }, h("summary", {}, `${more.length} smaller ones`), list(more, SHOWN + 1)) : null,
    ];
  }

  private finding(finding: Finding): HTMLElement {
    const { app } = this;
    const { line } = finding;
    const show = () => app.set({ at: "peak", key: "line", label: line ?? "", view: "table" });
    const then = finding.advice.map((text) => /^The peak would be (at most )?[\d.]+ \w+/.exec(text)?.[0]).find(Boolean);
    return h(
      "li", {},
      h("details", {},
        h("summary", {}, h("strong", {}, finding.cost_in_words), ` ${finding.what}`, then && h("span", { class: "then" }, `. ${then}.`)),
        line && h("p", {}, "at ", h("button", { class: "link", click: show }, line)),
        h("p", { class: "faint" }, finding.certainty),
        h("pre", { class: "advice" }, finding.advice.join("\n")),
      ),
    );
  }
}
