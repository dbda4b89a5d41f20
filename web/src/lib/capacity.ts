// Where a pool's space is, how much compression saves, and when the pool will be full. Only what the API counts: snapshots, the trash and metadata
// have no numbers of their own, so they are one part, which is what is left of the used space.

import type { Schemas } from "./api";

export interface Part {
  key: "volumes" | "preallocated" | "other" | "reserved" | "free";
  label: string;
  hint: string;
  bytes: number;
  /** A colour's name in the style sheet. */
  colour: string;
}

/** The parts of one or several pools, which add up to their size. A clone shares blocks with its snapshot, so its data is not counted as a volume's. */
export function parts(pools: readonly Schemas["Pool"][], volumes: readonly Schemas["Volume"][]): Part[] {
  const names = new Set(pools.map((pool) => pool.name));
  const mine = volumes.filter((volume) => names.has(volume.status.pool));
  const sum = <T>(items: readonly T[], of: (item: T) => number): number => items.reduce((all, item) => all + of(item), 0);
  const used = sum(pools, (pool) => pool.status.used_bytes);
  const own = mine.filter((volume) => !volume.status.origin);
  const eager = own.filter((volume) => volume.spec.format === "eagerzeroedthick");
  const stored = Math.min(
    used,
    sum(own, (volume) => volume.status.stored_bytes ?? 0),
  );
  const preallocated = Math.min(
    used - stored,
    sum(eager, (volume) => Math.max(0, (volume.status.used_bytes ?? 0) - volume.status.mapped_bytes)),
  );
  return [
    {
      key: "volumes",
      label: "Volumes",
      hint: "Data of volumes as it is stored, compressed. Clones are not included: they share data with snapshots.",
      bytes: stored,
      colour: "c1",
    },
    { key: "preallocated", label: "Preallocated", hint: "Space of eager thick volumes that is not written yet.", bytes: preallocated, colour: "c7" },
    {
      key: "other",
      label: "Snapshots, clones, trash, metadata",
      hint: "The rest of the used space. The appliance does not count these separately.",
      bytes: used - stored - preallocated,
      colour: "c2",
    },
    { key: "reserved", label: "Reserved", hint: "Free space that is reserved for thick volumes.", bytes: sum(pools, (pool) => pool.status.reserved_bytes ?? 0), colour: "c5" },
    { key: "free", label: "Free", hint: "For thin volumes, snapshots and new volumes.", bytes: sum(pools, (pool) => pool.status.available_bytes), colour: "surface-3" },
  ];
}

/** Written bytes for each stored byte: 2 when compression halves them. Null without data. */
export function reduction(volumes: readonly Schemas["Volume"][]): number | null {
  const written = volumes.reduce((sum, { status }) => sum + status.mapped_bytes, 0);
  const stored = volumes.reduce((sum, { status }) => sum + (status.stored_bytes ?? 0), 0);
  return stored > 0 ? written / stored : null;
}

/** 1.8 : 1 */
export const ratio = (value: number | null): string => (value === null ? "–" : `${value.toFixed(value < 9.95 ? 2 : 1)} : 1`);

export const HOUR = 3600;
export const DAY = 86_400;
const PAIRS_OF_MAX = 160;
const FORECAST_DAYS_MAX = 3653;

/** Growth in bytes per second: the median of the slopes between all samples, so that a file that is written and deleted again counts little. Null for less than an hour. */
export function growth(times: readonly number[], values: readonly (number | null)[]): number | null {
  const known = times.map((time, index) => [time, values[index]] as const).filter((pair): pair is readonly [number, number] => typeof pair[1] === "number");
  const every = Math.max(1, Math.ceil(known.length / PAIRS_OF_MAX));
  const samples = known.filter((_, index) => (known.length - 1 - index) % every === 0);
  const [first, last] = [samples[0], samples.at(-1)];
  if (!first || !last || last[0] - first[0] < HOUR) return null;
  const slopes: number[] = [];
  for (let a = 0; a < samples.length; a += 1) {
    for (let b = a + 1; b < samples.length; b += 1) {
      const [from, to] = [samples[a], samples[b]];
      if (from && to) slopes.push((to[1] - from[1]) / (to[0] - from[0]));
    }
  }
  slopes.sort((a, b) => a - b);
  return slopes[Math.floor(slopes.length / 2)] ?? null;
}

export interface Forecast {
  kind: "short" | "none" | "far" | "full";
  /** When it is full, for `full`. */
  at?: number;
  days?: number;
}

/** When so many bytes more are used at this growth, from a time in seconds on. */
export function forecast(rate: number | null, free: number, now: number): Forecast {
  if (rate === null) return { kind: "short" };
  if (rate <= 0) return { kind: "none" };
  const seconds = free / rate;
  if (seconds > FORECAST_DAYS_MAX * DAY) return { kind: "far" };
  return { kind: "full", at: now + seconds, days: Math.floor(seconds / DAY) };
}
