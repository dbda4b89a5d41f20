// A chart whose lines combine several statistics: counters are added (reads over all protocols); of what is no count, the greatest is taken.

import type uPlot from "uplot";
import { get, troubleOf, type Problem } from "./api";
import type { PlotLine } from "./plot";
import { labelKey, Ring } from "./ring";
import { statistics, type StreamLine } from "./stream.svelte";

export interface Source {
  expression: string;
  /** Which line of the chart a line of the statistic belongs to. */
  line: (labels: Readonly<Record<string, string>>) => string | undefined;
}

/** How much is asked for once more after the first second has come, and how long after it. */
export const GAP_SECONDS = 15;
export const GAP_MS = 1500;

export class Combined {
  readonly lines: readonly PlotLine[];
  readonly seconds: number;
  now = $state.raw<Readonly<Record<string, number | null>>>({});
  problem = $state.raw<Problem | undefined>(undefined);
  newest = 0;
  private readonly sources: readonly Source[];
  private readonly combine: (a: number, b: number) => number;
  private readonly ring: Ring;
  private readonly times: number[] = [];
  private readonly columns: (number | null)[][];
  draw: () => void = () => {};

  constructor(lines: readonly PlotLine[], sources: readonly Source[], combine: (a: number, b: number) => number = (a, b) => a + b, seconds = 180) {
    this.lines = lines;
    this.combine = combine;
    this.sources = sources;
    this.seconds = seconds;
    this.ring = new Ring(seconds + 30, lines.length * sources.length);
    this.columns = lines.map(() => []);
  }

  start(): () => void {
    const abort = new AbortController();
    const ends = this.sources.map((source, index) => {
      void this.fill(source, index, abort.signal, this.seconds);
      let first = true;
      return statistics.subscribe(source.expression, 12, {
        second: (message) => {
          this.put(index, message.at_unix_s, message.lines ?? []);
          // Between what was asked for and what came first, seconds may be missing.
          if (first) setTimeout(() => void this.fill(source, index, abort.signal, GAP_SECONDS), GAP_MS);
          first = false;
        },
        problem: (problem) => (this.problem = problem),
      });
    });
    return () => {
      abort.abort();
      for (const end of ends) end();
    };
  }

  range = (): [number, number] => {
    const end = this.newest || Math.floor(Date.now() / 1000);
    return [end - this.seconds, end];
  };

  data = (): uPlot.AlignedData => {
    const [from, to] = this.range();
    this.times.length = to - from + 1;
    for (let second = from; second <= to; second += 1) this.times[second - from] = second;
    this.lines.forEach((line, index) => {
      const column = this.columns[index] ?? [];
      column.length = to - from + 1;
      for (let second = from; second <= to; second += 1) column[second - from] = this.value(line.key, second);
    });
    return [this.times, ...this.columns] as uPlot.AlignedData;
  };

  private value(key: string, second: number): number | null {
    let all: number | null = null;
    for (let index = 0; index < this.sources.length; index += 1) {
      const part = this.ring.get(`${index} ${key}`, second);
      if (part !== null) all = all === null ? part : this.combine(all, part);
    }
    return all;
  }

  private put(index: number, second: number, lines: readonly StreamLine[]): void {
    const source = this.sources[index];
    if (!source) return;
    this.ring.advance(second);
    this.keep(source, index, second, lines);
    // All sources tell of a second at about the same time; the last of them draws it.
    if (index === this.sources.length - 1 || second > this.newest) this.see(second);
  }

  /** What the lines of a source make of the chart's in a second. */
  private keep(source: Source, index: number, second: number, lines: readonly { labels: Readonly<Record<string, string>>; value: number | null }[]): void {
    const all = new Map<string, number>();
    for (const { labels, value } of lines) {
      const key = source.line(labels);
      if (key === undefined || value === null) continue;
      const before = all.get(key);
      all.set(key, before === undefined ? value : this.combine(before, value));
    }
    for (const [key, value] of all) this.ring.put(second, `${index} ${key}`, {}, value);
  }

  private see(second: number): void {
    this.newest = Math.max(this.newest, second);
    const now: Record<string, number | null> = {};
    for (const line of this.lines) now[line.key] = this.value(line.key, second);
    this.now = now;
    this.draw();
  }

  private async fill(source: Source, index: number, signal: AbortSignal, seconds: number): Promise<void> {
    if (signal.aborted) return;
    try {
      const answer = await get("/api/v1/statistics/query", { query: { expression: source.expression, from: -seconds, to: 0, step: 1 }, signal });
      const known = new Set((answer.lines ?? []).map((line) => labelKey(line.labels)));
      if (known.size === 0) return;
      const length = Math.max(...(answer.lines ?? []).map((line) => line.values.length));
      for (let at = 0; at < length; at += 1) {
        const lines = (answer.lines ?? []).map((line) => ({ labels: line.labels, value: line.values[at] ?? null }));
        this.keep(source, index, answer.from_unix_s + at, lines);
      }
      if (this.newest === 0) this.see(answer.from_unix_s + length - 1);
      else this.draw();
    } catch (error) {
      if (!signal.aborted) this.problem = troubleOf(error);
    }
  }
}

/** As many lines as the API tells of. */
const LINES_MAX = 100;

/** The newest second of a statistic, for lists of who is busiest. */
export class Latest {
  lines = $state.raw<readonly StreamLine[]>([]);
  problem = $state.raw<Problem | undefined>(undefined);
  came = $state(false);
  private readonly expression: string;
  private readonly limit: number;
  /** Smoothed over some seconds: a list whose order changes each second cannot be read. */
  private readonly smooth = new Map<string, { labels: Record<string, string>; value: number; seen: number }>();

  constructor(expression: string, limit: number) {
    this.expression = expression;
    this.limit = limit;
  }

  start(): () => void {
    return statistics.subscribe(this.expression, Math.min(LINES_MAX, this.limit * 2), {
      second: ({ at_unix_s: second, lines }) => {
        for (const { labels, value } of lines ?? []) {
          const key = labelKey(labels);
          const before = this.smooth.get(key);
          this.smooth.set(key, { labels, value: before ? before.value * 0.7 + (value ?? 0) * 0.3 : (value ?? 0), seen: second });
        }
        for (const [key, line] of this.smooth) {
          if (line.seen === second) continue;
          line.value *= 0.7;
          if (line.value < 0.05 || second - line.seen > 30) this.smooth.delete(key);
        }
        this.came = true;
        this.lines = [...this.smooth.values()].sort((a, b) => b.value - a.value).slice(0, this.limit);
      },
      problem: (problem) => (this.problem = problem),
    });
  }
}
