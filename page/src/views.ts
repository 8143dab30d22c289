// The views below the timeline.

import { AllocatorView } from "./allocator_view.ts";
import type { App } from "./app.ts";
import { BreakdownView } from "./breakdown_view.ts";
import { FlameView } from "./flame.ts";
import { GrowthView } from "./growth_view.ts";
import { LifetimesView } from "./lifetimes.ts";
import { OperatorsView } from "./operators_view.ts";
import { AllTables, Changes, LeaksAndTemporaries } from "./tables.ts";

export interface View {
  readonly element: HTMLElement;
  draw(): void;
}

export interface ViewKind {
  name: string;
  title: string;
  make(app: App): View;
  isShown(app: App): boolean;
}

const always = () => true;

export const VIEWS: ViewKind[] = [
  { name: "table", title: "Table", make: (app) => new BreakdownView(app), isShown: always },
  { name: "flame", title: "Flame graph", make: (app) => new FlameView(app), isShown: always },
  { name: "growth", title: "Growth", make: (app) => new GrowthView(app), isShown: always },
  { name: "blocks", title: "Blocks over time", make: (app) => new LifetimesView(app), isShown: always },
  { name: "allocator", title: "Allocator", make: (app) => new AllocatorView(app), isShown: always },
  { name: "operators", title: "Operators", make: (app) => new OperatorsView(app), isShown: (app) => app.head.calls !== 0 },
  { name: "leaks", title: "Live twice, temporaries, leaks", make: (app) => new LeaksAndTemporaries(app), isShown: always },
  { name: "changes", title: "Changes", make: (app) => new Changes(app), isShown: (app) => app.page.changes !== null },
  { name: "report", title: "All tables", make: (app) => new AllTables(app), isShown: always },
];
