// What uPlot needs to draw one of our charts. Colours come from the style sheet; a chart is made anew when the theme changes.

import uPlot from "uplot";
import { byUnit } from "./format";
import { colour } from "./theme.svelte";

export interface PlotLine {
  key: string;
  label: string;
  /** A colour's name in the style sheet. */
  colour: string;
  dash?: number[];
  fill?: boolean;
  faint?: boolean;
}

export interface PlotOptions {
  lines: readonly PlotLine[];
  unit: string;
  width: number;
  height: number;
  /** Charts with one key show one cursor. */
  sync?: string;
  onBrush?: (from: number, to: number) => void;
  onCursor?: (second: number | null) => void;
  window: () => [number, number];
  axes?: boolean;
  /** A logarithmic axis: one slow request among many fast ones does not flatten the rest. Values that are not above zero are not drawn. */
  log?: boolean;
}

/** Room for the numbers beside a chart, and for half a time with seconds at its end: the same in every chart, so that their times lie below each other. */
export const GUTTER = 62;
export const PAD_RIGHT = 26;
export const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif';
const hours = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const seconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dates = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const days = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const DAY = 86_400;

export function tickText(second: number, step: number, span: number): string {
  if (span > 2 * DAY) return (step >= DAY ? dates : days).format(second * 1000);
  return (step < 60 ? seconds : hours).format(second * 1000);
}

/** Times that are written are at least so far apart, in pixels. */
export const timeSpace = (span: number): number => (span > 2 * DAY ? 86 : 58);
const CHARACTER = 5.8;
/** Whether a time at this place, in pixels from the left of the plot, ends before the chart does. */
export const fitsTime = (text: string, at: number, plotWidth: number): boolean => at + (text.length * CHARACTER) / 2 <= plotWidth + PAD_RIGHT;
/** Between times that are written, in seconds. */
export const TIMES: number[] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];

/** Units whose values are whole: half a nanosecond would be written as one. */
const WHOLE: readonly string[] = ["ns", "bytes", "bytes-per-second"];

/** Steps that read well: of time in base 2 for bytes, in base 10 for all else. */
export function increments(unit: string): number[] {
  const found: number[] = [];
  if (unit === "bytes") {
    for (let power = 0; power < 62; power += 1) found.push(2 ** power);
    return found;
  }
  for (let power = WHOLE.includes(unit) ? 0 : -2; power < 16; power += 1) for (const part of [1, 2, 5]) found.push(part * 10 ** power);
  return found;
}

/** The upper end of an axis without values above zero: an amount that reads well, and not a fraction of the smallest unit. */
const IDLE: Readonly<Record<string, number>> = {
  ns: 1e6,
  bytes: 2 ** 20,
  "bytes-per-second": 1e6,
  "ns-per-second": 1e9,
  "nanoseconds-per-second": 1e9,
  permille: 1000,
  thousandths: 1000,
};

export function valueRange(unit: string, max: number | null): [number, number] {
  return [0, max !== null && max > 0 ? max * 1.08 : (IDLE[unit] ?? 10)];
}

/** Whole powers of ten around the values, one at least. */
export function logRange(unit: string, min: number | null, max: number | null): [number, number] {
  const top = max !== null && max > 0 ? max : (IDLE[unit] ?? 10);
  const bottom = min !== null && min > 0 ? Math.min(min, top) : top / 1000;
  const low = 10 ** Math.floor(Math.log10(bottom));
  return [low, Math.max(low * 10, 10 ** Math.ceil(Math.log10(top)))];
}

/** What a logarithmic axis writes: every power of ten, or every second where there are many. */
export function powers(min: number, max: number): number[] {
  const [low, high] = [Math.round(Math.log10(min)), Math.round(Math.log10(max))];
  const step = high - low > 4 ? 2 : 1;
  return Array.from({ length: Math.floor((high - low) / step) + 1 }, (_, index) => 10 ** (low + index * step));
}

export function makePlot(options: PlotOptions, data: uPlot.AlignedData, into: HTMLElement): uPlot {
  const grid = colour("grid");
  const text = colour("text-3");
  const bare = options.axes === false;
  const plot = new uPlot(
    {
      width: options.width,
      height: options.height,
      padding: bare ? [2, 0, 2, 0] : [8, PAD_RIGHT, 0, 0],
      legend: { show: false },
      cursor: {
        show: !bare,
        points: { size: 6 },
        drag: { x: Boolean(options.onBrush), y: false, setScale: false, dist: 6 },
        ...(options.sync ? { sync: { key: options.sync, setSeries: false } } : {}),
      },
      select: { show: Boolean(options.onBrush), left: 0, top: 0, width: 0, height: 0 },
      scales: {
        x: { time: true, range: () => options.window() },
        y: options.log ? { distr: 3, log: 10, range: (_, min, max) => logRange(options.unit, min, max) } : { range: (_, __, max) => valueRange(options.unit, max) },
      },
      axes: bare
        ? [{ show: false }, { show: false }]
        : [
            {
              stroke: text,
              font: FONT,
              size: 24,
              gap: 4,
              space: (u) => timeSpace((u.scales.x?.max ?? 0) - (u.scales.x?.min ?? 0)),
              incrs: TIMES,
              grid: { show: false },
              ticks: { stroke: grid, size: 4, width: 1 },
              values: (u, splits, _, __, step) =>
                splits.map((second) => {
                  const written = tickText(second, step, (u.scales.x?.max ?? 0) - (u.scales.x?.min ?? 0));
                  return fitsTime(written, u.valToPos(second, "x"), u.bbox.width / devicePixelRatio) ? written : "";
                }),
            },
            {
              stroke: text,
              font: FONT,
              size: GUTTER,
              gap: 6,
              space: 30,
              ...(options.log ? { splits: (_, __, min, max) => powers(min, max), filter: (_, splits) => splits } : { incrs: increments(options.unit) }),
              grid: { stroke: grid, width: 1 },
              ticks: { show: false },
              values: (_, splits) => splits.map((value: number | null) => (value === null ? "" : byUnit(options.unit, value))),
            },
          ],
      series: [
        {},
        ...options.lines.map((line): uPlot.Series => {
          const stroke = colour(line.colour);
          return {
            label: line.label,
            stroke,
            width: line.faint ? 1 : 1.5,
            ...(line.dash ? { dash: line.dash } : {}),
            ...(line.fill ? { fill: `${stroke}1f` } : {}),
            points: { show: false },
            spanGaps: false,
          };
        }),
      ],
      hooks: {
        setSelect: [
          (u) => {
            if (!options.onBrush || u.select.width < 4) return;
            const from = u.posToVal(u.select.left, "x");
            const to = u.posToVal(u.select.left + u.select.width, "x");
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            options.onBrush(Math.floor(from), Math.ceil(to));
          },
        ],
        setCursor: [
          (u) => {
            const index = u.cursor.idx;
            options.onCursor?.(index === null || index === undefined ? null : (u.data[0][index] ?? null));
          },
        ],
      },
    },
    data,
    into,
  );
  return plot;
}

const COLOURS = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"] as const;
const DASHES: readonly (number[] | undefined)[] = [undefined, [6, 3], [2, 2]];

/** The look of the n-th line: after the colours are used up, the strokes differ. */
export function lookOf(index: number): { colour: string; dash?: number[] } {
  const dash = DASHES[Math.floor(index / COLOURS.length) % DASHES.length];
  return { colour: COLOURS[index % COLOURS.length] ?? "c1", ...(dash ? { dash } : {}) };
}

/** Read is blue and write is orange, everywhere; percentiles darken towards the tail; all else takes the next look that is free. */
export function lookFor(labels: Readonly<Record<string, string>>, index: number): { colour: string; dash?: number[]; fill?: boolean } {
  const names = Object.keys(labels);
  if (names.length === 1) {
    if (labels.op === "read" || labels.direction === "out") return { colour: "read", fill: true };
    if (labels.op === "write" || labels.direction === "in") return { colour: "write", dash: [5, 2] };
    if (labels.quantile === "p50") return { colour: "c3", fill: true };
    if (labels.quantile === "p95") return { colour: "c1" };
    if (labels.quantile === "p99") return { colour: "c2" };
    if (labels.quantile === "p999") return { colour: "c6", dash: [6, 3] };
    if (labels.quantile === "max") return { colour: "c7", dash: [2, 2] };
  }
  return lookOf(index);
}
