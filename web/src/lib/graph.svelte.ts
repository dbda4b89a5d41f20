// The data of one graph: an expression over the time of its timeline. Live and short, it is filled once and then fed by the stream; live and long,
// it is asked for every few seconds; fixed, it is asked for once. Memory is bounded by the rings.

import type uPlot from "uplot";
import { GAP_MS, GAP_SECONDS } from "./combined.svelte";
import { get, troubleOf, type Problem, type Schemas } from "./api";
import { isHeatmap, labelText, parse, SPREADS } from "./expression";
import { gridOf, HeatRing, type HeatColumn, type HeatGrid } from "./heat";
import { lookFor, type PlotLine } from "./plot";
import { labelKey, Ring } from "./ring";
import { statistics, type StreamMessage } from "./stream.svelte";
import { STREAMED_MAX, type Timeline } from "./timeline.svelte";

type Answer = Schemas["StatisticAnswer"];

export interface Row {
  key: string;
  labels: Readonly<Record<string, string>>;
  label: string;
  look: { colour: string; dash?: number[] };
  now: number | null;
  mean: number | null;
  greatest: number | null;
  /** Others and total cannot be clicked. */
  whole: boolean;
}

const SPARE = 60;
const LINES_MAX = 48;
const OTHERS = "\u0001others";
const TOTAL = "\u0001total";
const NO_LABELS: Readonly<Record<string, string>> = {};

export class Graph {
  readonly expression: string;
  readonly limit: number;
  readonly heat: boolean;
  kind = $state<Answer["kind"]>("counter");
  unit = $state("");
  /** Of a heat map's rows. */
  readonly boundsUnit: string;
  lines = $state.raw<readonly PlotLine[]>([]);
  rows = $state.raw<readonly Row[]>([]);
  problem = $state.raw<Problem | undefined>(undefined);
  loading = $state(true);
  /** Heat map in the window, for its table. */
  grid = $state.raw<HeatGrid | undefined>(undefined);

  /** Rows below this are one: nobody tells 40 ns from 50 ns. */
  private readonly floor: number;
  private readonly timeline: Timeline;
  // As long as what is shown, and a minute for what comes early or late.
  private ring = new Ring(SPARE, LINES_MAX);
  private heatRing = new HeatRing(1);
  private fixed: Answer | undefined;
  private readonly times: number[] = [];
  private readonly columns: (number | null)[][] = [];
  private readonly looks = new Map<string, { colour: string; dash?: number[]; fill?: boolean }>();
  private nextLook = 0;
  private draws = new Set<() => void>();
  private ranked = 0;

  constructor(expression: string, limit: number, timeline: Timeline) {
    this.expression = expression;
    this.limit = limit;
    this.timeline = timeline;
    const parsed = parse(expression);
    this.heat = parsed ? isHeatmap(parsed) : false;
    const spread = parsed?.brackets.find((b) => b.operator === "by" && SPREADS.includes(b.dimension))?.dimension;
    this.boundsUnit = spread === "latency" ? "ns" : spread === "size" ? "bytes" : "sixty-fourths";
    this.floor = spread === "latency" ? 1024 : 0;
  }

  onDraw(draw: () => void): () => void {
    this.draws.add(draw);
    return () => this.draws.delete(draw);
  }

  /** Follows the timeline as it is now; the returned function ends that. */
  follow(): () => void {
    const { live, seconds, from, to } = this.timeline;
    const streamed = live && seconds <= STREAMED_MAX;
    this.ring = new Ring(streamed && !this.heat ? seconds + SPARE : SPARE, LINES_MAX);
    this.heatRing = new HeatRing(streamed && this.heat ? seconds + SPARE : 1);
    this.fixed = undefined;
    this.ranked = 0;
    this.loading = true;
    this.problem = undefined;
    const abort = new AbortController();
    const ends: (() => void)[] = [() => abort.abort()];
    if (streamed) {
      let first = true;
      ends.push(
        statistics.subscribe(this.expression, this.limit, {
          made: ({ kind, unit }) => {
            this.kind = kind;
            this.unit = unit;
          },
          second: (message) => {
            this.second(message);
            // Between what was asked for and what came first, seconds may be missing.
            if (first) setTimeout(() => void (abort.signal.aborted || this.ask({ from: -GAP_SECONDS, to: 0, step: 1 }, abort.signal, (answer) => this.fill(answer))), GAP_MS);
            first = false;
          },
          problem: (problem) => {
            this.problem = problem;
            this.loading = false;
          },
        }),
      );
      void this.ask({ from: -seconds, to: 0, step: 1 }, abort.signal, (answer) => this.fill(answer));
    } else if (live) {
      const again = (): Promise<void> => this.ask({ from: -seconds, to: 0 }, abort.signal, (answer) => this.show(answer));
      void again();
      const timer = setInterval(() => void again(), Math.max(5, seconds / 500) * 1000);
      ends.push(() => clearInterval(timer));
    } else {
      void this.ask({ from, to }, abort.signal, (answer) => this.show(answer));
    }
    return () => {
      for (const end of ends) end();
    };
  }

  private async ask(query: { from: number; to: number; step?: number }, signal: AbortSignal, take: (answer: Answer) => void): Promise<void> {
    try {
      const answer = await get("/api/v1/statistics/query", { query: { expression: this.expression, limit: this.limit, ...query }, signal });
      this.kind = answer.kind;
      this.unit = answer.unit;
      this.problem = undefined;
      take(answer);
      this.loading = false;
      this.redraw();
    } catch (error) {
      if (signal.aborted) return;
      this.problem = troubleOf(error);
      this.loading = false;
    }
  }

  /** What was kept goes in front of what the stream brings. */
  private fill(answer: Answer): void {
    const { from_unix_s: from } = answer;
    if (answer.heatmap) {
      const { bounds, columns } = answer.heatmap;
      columns.forEach((counts, index) => {
        if (counts.length > 0) this.heatRing.put({ second: from + index, bounds, counts });
      });
      this.timeline.see(from + columns.length - 1);
      return;
    }
    for (const line of answer.lines ?? []) {
      const key = labelKey(line.labels);
      line.values.forEach((value, index) => value !== null && this.ring.put(from + index, key, line.labels, value));
    }
    answer.others?.values.forEach((value, index) => value !== null && this.ring.put(from + index, OTHERS, NO_LABELS, value));
    answer.total?.values.forEach((value, index) => value !== null && this.ring.put(from + index, TOTAL, NO_LABELS, value));
    this.timeline.see(this.ring.newest);
  }

  private show(answer: Answer): void {
    this.fixed = answer;
    this.timeline.see(answer.to_unix_s);
  }

  private second(message: StreamMessage): void {
    const second = message.at_unix_s;
    if (message.column && message.bounds) {
      this.heatRing.put({ second, bounds: message.bounds, counts: message.column });
    } else {
      this.ring.advance(second);
      for (const line of message.lines ?? []) this.ring.put(second, labelKey(line.labels), line.labels, line.value);
      if (message.others !== undefined && message.others !== null) this.ring.put(second, OTHERS, NO_LABELS, message.others);
      if (message.total !== undefined && message.total !== null) this.ring.put(second, TOTAL, NO_LABELS, message.total);
    }
    this.timeline.see(second);
    this.loading = false;
    this.redraw();
  }

  redraw(): void {
    if (document.hidden) return;
    if (this.heat) this.grid = this.heatGrid();
    else this.rank();
    for (const draw of this.draws) draw();
  }

  /** Who is shown, the greatest first, and what the list beside the chart says of each. */
  private rank(): void {
    const [from, to] = this.timeline.range();
    const rows = this.fixed ? this.fixedRows(this.fixed) : this.ringRows(Math.ceil(from), Math.floor(to));
    const parts = rows.filter((row) => !row.whole);
    parts.sort((a, b) => (b.mean ?? -1) - (a.mean ?? -1));
    if (this.kind === "spread") parts.sort((a, b) => quantileRank(a.labels) - quantileRank(b.labels));
    const shown = parts.slice(0, this.kind === "spread" ? 40 : this.limit);
    // The order of lines stays for some seconds: what jumps cannot be read.
    const keys = new Set(shown.map((row) => row.key));
    const same = this.lines.length > 0 && to - this.ranked < 5 && this.lines.every((line) => keys.has(line.key) || line.key === OTHERS || line.key === TOTAL);
    const wholes = rows.filter((row) => row.whole && !(row.key === TOTAL && shown.length < 2) && !(row.key === OTHERS && !row.mean));
    const all = [...shown, ...wholes];
    if (!same || all.length !== this.lines.length) {
      this.ranked = to;
      // A line without labels has an empty key: alone it reads like no line.
      const before = this.lines.map((line) => line.key).join("\n");
      if (this.lines.length !== all.length || before !== all.map((row) => row.key).join("\n")) {
        this.lines = all.map((row) => ({ key: row.key, label: row.label, ...this.lookOf(row.key, row.labels), faint: row.whole }));
      }
    } else {
      const order = new Map(this.lines.map((line, index) => [line.key, index]));
      all.sort((a, b) => (order.get(a.key) ?? 99) - (order.get(b.key) ?? 99));
    }
    this.rows = all;
  }

  private lookOf(key: string, labels: Readonly<Record<string, string>>): { colour: string; dash?: number[]; fill?: boolean } {
    if (key === OTHERS) return { colour: "text-3", dash: [2, 3] };
    if (key === TOTAL) return { colour: "text-3" };
    let look = this.looks.get(key);
    if (!look) {
      if (this.looks.size > 200) this.looks.clear();
      look = Object.keys(labels).length === 0 ? { colour: "c1", fill: true } : lookFor(labels, this.nextLook);
      if (!/^(read|write)$/.test(look.colour)) this.nextLook += 1;
      this.looks.set(key, look);
    }
    return look;
  }

  private row(key: string, labels: Readonly<Record<string, string>>, now: number | null, mean: number | null, greatest: number | null): Row {
    const label = key === OTHERS ? "others" : key === TOTAL ? "total" : labelText(labels);
    return { key, labels, label, look: this.lookOf(key, labels), now, mean, greatest, whole: key === OTHERS || key === TOTAL };
  }

  private ringRows(from: number, to: number): Row[] {
    const rows: Row[] = [];
    for (const line of this.ring.lines.values()) {
      if (line.seen < from) continue;
      let sum = 0;
      let n = 0;
      let greatest: number | null = null;
      for (let second = Math.max(from, this.ring.newest - this.ring.capacity + 1); second <= Math.min(to, this.ring.newest); second += 1) {
        const value = line.values[second % this.ring.capacity];
        if (value === undefined || Number.isNaN(value)) continue;
        sum += value;
        n += 1;
        if (greatest === null || value > greatest) greatest = value;
      }
      // A line that was not told of in a second had nothing then; only for counters that counts in the mean.
      const seconds = this.kind === "counter" ? Math.max(1, Math.min(to, this.ring.newest) - from + 1) : n;
      rows.push(this.row(line.key, line.labels, this.ring.get(line.key, this.ring.newest), n === 0 ? null : sum / seconds, greatest));
    }
    return rows;
  }

  private fixedRows(answer: Answer): Row[] {
    const { head } = this.timeline;
    const end = head === undefined ? Number.POSITIVE_INFINITY : Math.floor((head - answer.from_unix_s) / answer.step_seconds) + 1;
    const last = (values: readonly (number | null)[]): number | null => values.findLast((value, index) => value !== null && index < end) ?? null;
    const rows = (answer.lines ?? []).map((line) => this.row(labelKey(line.labels), line.labels, last(line.values), line.mean, line.greatest));
    if (answer.others) rows.push(this.row(OTHERS, NO_LABELS, last(answer.others.values), answer.others.mean, null));
    if (answer.total) rows.push(this.row(TOTAL, NO_LABELS, last(answer.total.values), answer.total.mean, null));
    return rows;
  }

  /** For uPlot: times, then a list of values for each line. The arrays are used again. */
  data = (): uPlot.AlignedData => {
    const count = this.lines.length;
    this.columns.length = count;
    for (let index = 0; index < count; index += 1) this.columns[index] ??= [];
    if (this.fixed) {
      const { from_unix_s: from, step_seconds: step } = this.fixed;
      const byKey = new Map((this.fixed.lines ?? []).map((line) => [labelKey(line.labels), line.values]));
      if (this.fixed.others) byKey.set(OTHERS, this.fixed.others.values);
      if (this.fixed.total) byKey.set(TOTAL, this.fixed.total.values);
      const length = Math.max(0, ...[...byKey.values()].map((values) => values.length));
      this.times.length = length;
      for (let index = 0; index < length; index += 1) this.times[index] = from + index * step;
      const { head } = this.timeline;
      if (head !== undefined) {
        const end = Math.max(0, Math.floor((head - from) / step) + 1);
        return [this.times.slice(0, end), ...this.lines.map((line) => (byKey.get(line.key) ?? []).slice(0, end))] as uPlot.AlignedData;
      }
      return [this.times, ...this.lines.map((line) => byKey.get(line.key) ?? [])] as uPlot.AlignedData;
    }
    const [low, high] = this.timeline.range();
    const from = Math.ceil(low);
    const to = Math.floor(high);
    this.times.length = Math.max(0, to - from + 1);
    for (let second = from; second <= to; second += 1) this.times[second - from] = second;
    this.lines.forEach((line, index) => this.ring.copy(line.key, from, to, this.columns[index] ?? []));
    return [this.times, ...this.columns] as uPlot.AlignedData;
  };

  heatGrid(): HeatGrid {
    if (this.fixed?.heatmap) {
      const { bounds, columns } = this.fixed.heatmap;
      const { from_unix_s: from, step_seconds: step } = this.fixed;
      const { head } = this.timeline;
      const shown = (index: number): boolean => head === undefined || from + index * step <= head;
      return gridOf(
        columns.map((counts, index): HeatColumn => ({ second: from + index * step, bounds, counts: shown(index) ? counts : [] })),
        this.floor,
      );
    }
    const [from, to] = this.timeline.range();
    return this.heatRing.grid(Math.ceil(from), Math.floor(to), this.floor);
  }

  /** First second and length of a heat map's columns. */
  heatSpan(): { from: number; step: number } {
    if (this.fixed) return { from: this.fixed.from_unix_s, step: this.fixed.step_seconds };
    return { from: Math.ceil(this.timeline.range()[0]), step: 1 };
  }

  get step(): number {
    return this.fixed?.step_seconds ?? 1;
  }

  /** All that is shown, as a table: newest first. */
  table(rowsMax: number): { at: number; values: (number | null)[] }[] {
    const [times, ...columns] = this.data();
    const rows: { at: number; values: (number | null)[] }[] = [];
    for (let index = times.length - 1; index >= 0 && rows.length < rowsMax; index -= 1) {
      const values = columns.map((column) => column[index] ?? null);
      if (rows.length === 0 && values.every((value) => value === null)) continue;
      rows.push({ at: times[index] ?? 0, values });
    }
    return rows;
  }
}

const QUANTILES = ["max", "p999", "p99", "p95", "p50"];
const quantileRank = (labels: Readonly<Record<string, string>>): number => QUANTILES.indexOf(labels.quantile ?? "");
