// The page: state, data of the shown device, and the parts that draw them.

import { blockDetails } from "./block.ts";
import { Curves, DeviceData } from "./device.ts";
import { h, replace } from "./dom.ts";
import { FirstScreen } from "./first.ts";
import type { DeviceHead, PageHead, RecordingHead } from "./head.ts";
import { Hover } from "./hover.ts";
import { liveAt, type LiveBlocks } from "./moment.ts";
import { decodedState, encoded, INITIAL, type PageState } from "./state.ts";
import { ColumnStore } from "./store.ts";
import { Timeline } from "./timeline.ts";
import { VIEWS, type View } from "./views.ts";

const MOMENTS: [string, string][] = [["peak", "Peak"], ["end", "End"]];

export class App {
  state: PageState;
  curves: Curves | null = null;
  data: DeviceData | null = null;
  live: LiveBlocks | null = null;
  private readonly store = new ColumnStore();
  private readonly top = h("header", {});
  private readonly first = new FirstScreen(this);
  readonly timeline = new Timeline(this);
  private readonly tools = h("div", { class: "tools" });
  private readonly tabs = h("nav", { class: "tabs", role: "tablist", "aria-label": "Views" });
  private readonly panel = h("main", { class: "panel", role: "tabpanel" });
  private readonly pinned = h("aside", { class: "pinned", "aria-label": "Pinned block", hidden: true });
  readonly hover = new Hover(this.pinned);
  private readonly views = new Map<string, View>();
  private readonly loaded = new Map<string, DeviceData>();
  private readonly paths = new Map<number, string[]>();
  private frame = 0;

  constructor(
    readonly page: PageHead,
    root: HTMLElement,
    private readonly parsed: Promise<void>,
  ) {
    this.state = decodedState(location.hash);
    replace(root, this.top, this.first.element, this.tools, this.timeline.element, this.tabs, this.panel, this.pinned, this.hover.element);
    window.addEventListener("hashchange", () => {
      const state = decodedState(location.hash);
      if (encoded(state) !== encoded(this.state)) this.take(state);
    });
    window.addEventListener("resize", () => this.draw());
    window.addEventListener("beforeprint", () => this.drawNow());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    document.addEventListener("keydown", (event) => this.pressed(event));
  }

  get recording(): RecordingHead {
    return this.page.recordings[this.state.recording] ?? this.page.recordings[0]!;
  }

  get head(): DeviceHead {
    const { recording } = this;
    return recording.devices[this.state.device < 0 ? recording.main : this.state.device] ?? recording.devices[0]!;
  }

  /** Scopes of a context, outermost first. */
  scopePath(context: number): string[] {
    let path = this.paths.get(context);
    if (!path) {
      path = [];
      for (let at = context; at > 0 && path.length < 1000; at = this.recording.contexts[at]?.[1] ?? 0) path.unshift(this.recording.contexts[at]?.[0] || "(unnamed)");
      this.paths.set(context, path);
    }
    return path;
  }

  /** Changes the state; the fragment, and so the back button, follows. */
  set(change: Partial<PageState>): void {
    const state = { ...this.state, ...change };
    if (change.key !== undefined && change.key !== this.state.key && change.label === undefined) state.label = "";
    const fragment = encoded(state);
    const isMinor = Object.keys(change).every((name) => name === "search");
    const url = `#${fragment}`;
    if (url !== (location.hash || "#")) {
      if (isMinor) history.replaceState(null, "", url);
      else history.pushState(null, "", url);
    }
    this.take(state);
  }

  private take(state: PageState): void {
    const before = this.state;
    this.state = state;
    const isOther = state.recording !== before.recording || state.device !== before.device;
    if (isOther) {
      this.paths.clear();
      void this.open();
    }
    if (isOther || state.at !== before.at) this.live = null;
    if (!isOther && state.key !== before.key) this.openKey();
    this.draw();
  }

  /** Draws what is known: words at once, the curve when it is unpacked, everything else when the blocks are. */
  async open(): Promise<void> {
    delete document.documentElement.dataset["ready"];
    this.data = this.curves = this.live = null;
    replace(this.panel, h("p", { class: "faint" }, "Unpacking the recording …"));
    this.timeline.mix = this.timeline.spans = null;
    this.drawWords();
    const { head, recording } = this;
    if (!head) return;
    const opened = this.loaded.get(head.prefix);
    const curves = opened?.curves ?? Curves.first(this.store, head);
    this.curves = curves;
    const hasKey = this.openKey();
    this.drawNow();
    performance.mark("first-picture");
    await this.parsed;
    if (!hasKey) this.openKey();
    const known = opened ?? (await DeviceData.load(this.store, recording, head, curves));
    if (this.head !== head) return;
    this.loaded.set(head.prefix, known);
    this.data = known;
    const [context, from, life] = await Promise.all(["context", "from", "life"].map((name) => this.store.numbers(`${head.prefix}span.${name}`)));
    this.timeline.spans = { context: context!, from: from!, life: life! };
    this.drawNow();
    document.documentElement.dataset["ready"] = "yes";
  }

  /** Takes the series of the key; false if the browser has not got to them. */
  private openKey(): boolean {
    const { key } = this.state;
    const name = `${this.head.prefix}mix.${key}`;
    const isThere = this.store.has(name);
    if (isThere) [this.timeline.mix, this.timeline.mixKey] = [this.store.now(name), key];
    return isThere;
  }

  numbers(name: string) {
    return this.store.numbers(`${this.head.prefix}${name}`);
  }

  draw(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => this.drawNow());
  }

  drawNow(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (this.data) this.live ??= liveAt(this.data, this.state.at);
    this.drawWords();
    if (!this.head) return;
    this.timeline.draw();
    this.drawView();
    this.drawPinned();
    document.documentElement.dataset["drawn"] = encoded(this.state) || "all";
  }

  private drawWords(): void {
    const { recording, head, state, page } = this;
    const started = recording.started_unix_us > 0 ? new Date(recording.started_unix_us / 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "";
    const option = (value: number, text: string, isChosen: boolean) => h("option", { value, selected: isChosen }, text);
    const recordings = page.recordings.length > 1 && this.select("Recording", (value) => this.set({ ...INITIAL, recording: value }),
      page.recordings.map((other, at) => option(at, `${at === 0 ? "after" : "before"}: ${other.program}`, at === state.recording)));
    const devices = recording.devices.length > 1 && this.select("Memory", (value) => this.set({ ...INITIAL, recording: state.recording, device: value }),
      recording.devices.map((device, at) => option(at, device.name, device === head)));
    replace(this.top, h("h1", {}, recording.program || "memtrace"), h("span", { class: "faint" }, [head?.name, recording.host, started].filter(Boolean).join(" · ")), recordings, devices);
    document.title = `${recording.program} · memtrace`;
    if (!head) {
      replace(this.first.element, ...[recording.empty.title, ...recording.empty.answer, ...recording.empty.notes].map((line) => h("p", {}, line)));
      return;
    }
    this.first.draw();
    this.drawTools();
    this.drawTabs();
  }

  private select(label: string, change: (value: number) => void, options: HTMLElement[]): HTMLElement {
    return h("label", { class: "choice" }, label, h("select", { change: (event: Event) => change(Number((event.target as HTMLSelectElement).value)) }, ...options));
  }

  private drawTools(): void {
    const { head, state } = this;
    const focused = document.activeElement?.id;
    if (focused === "search" && this.tools.childElementCount > 0) return this.markTools();
    const key = (name: string) => h("button", { "data-key": name, "aria-pressed": String(state.key === name), click: () => this.set({ key: name }) }, name);
    const moment = ([at, text]: [string, string]) => h("button", { "data-at": at, "aria-pressed": String(state.at === at), click: () => this.set({ at }) }, text);
    replace(
      this.tools,
      h("span", { class: "group", role: "group", "aria-label": "Stacked and grouped by" }, ...head.keys.map(({ name }) => key(name))),
      h("span", { class: "group", role: "group", "aria-label": "Moment" }, ...MOMENTS.map(moment)),
      h("input", { id: "search", type: "search", placeholder: "Search lines, operators, frames  ( / )", "aria-label": "Search", value: state.search, input: (event: Event) => this.set({ search: (event.target as HTMLInputElement).value }) }),
    );
  }

  private markTools(): void {
    const mark = (name: "key" | "at") =>
      this.tools.querySelectorAll<HTMLElement>(`[data-${name}]`).forEach((button) => button.setAttribute("aria-pressed", String(button.dataset[name] === this.state[name])));
    mark("key");
    mark("at");
  }

  private drawTabs(): void {
    const tab = (name: string, title: string) =>
      h("button", { role: "tab", id: `tab-${name}`, "aria-selected": String(this.state.view === name), tabindex: this.state.view === name ? 0 : -1, click: () => this.show(name) }, title);
    const shown = VIEWS.filter((view) => view.isShown(this));
    const focused = document.activeElement?.id;
    replace(this.tabs, ...shown.map((view) => tab(view.name, view.title)));
    if (focused?.startsWith("tab-")) document.getElementById(`tab-${this.state.view}`)?.focus();
    this.tabs.onkeydown = (event) => {
      const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (by === 0) return;
      const at = shown.findIndex((view) => view.name === this.state.view);
      this.show(shown[(at + by + shown.length) % shown.length]!.name);
    };
    this.panel.setAttribute("aria-labelledby", `tab-${this.state.view}`);
  }

  /** Chooses a view, and scrolls to it if most of it is below the window. */
  private show(view: string): void {
    this.set({ view });
    this.drawNow();
    if (this.panel.getBoundingClientRect().top > window.innerHeight / 2) this.panel.scrollIntoView({ block: "start" });
  }

  private drawView(): void {
    const { state } = this;
    const made = VIEWS.find((view) => view.name === state.view) ?? VIEWS[0]!;
    if (!this.data) return;
    let view = this.views.get(made.name);
    if (!view) this.views.set(made.name, (view = made.make(this)));
    if (this.panel.firstElementChild !== view.element) replace(this.panel, view.element);
    view.draw();
  }

  private drawPinned(): void {
    const row = this.state.pin === "" ? -1 : Number(this.state.pin);
    const { data, live } = this;
    this.pinned.hidden = !data || !(row >= 0 && row < (data?.count ?? 0));
    if (this.pinned.hidden || !data) return;
    const unpin = h("button", { class: "quiet", click: () => this.set({ pin: "" }) }, "Unpin (Esc)");
    replace(this.pinned, unpin, blockDetails(data, row, live?.timeNs ?? data.head.peak.time_ns));
  }

  private pressed(event: KeyboardEvent): void {
    const isTyping = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.key === "Escape" && this.state.pin !== "") return this.set({ pin: "" });
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const view = VIEWS.filter((view) => view.isShown(this))[Number(event.key) - 1];
    if (event.key === "/") {
      event.preventDefault();
      document.getElementById("search")?.focus();
    } else if (event.key === "p") this.set({ at: "peak" });
    else if (event.key === "e") this.set({ at: "end" });
    else if (view) this.show(view.name);
  }
}
