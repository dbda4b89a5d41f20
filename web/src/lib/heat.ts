// Columns of a heat map in bounded memory, one a second, and what is drawn of them. Columns may have different bounds, because rows without any count
// at either end are left out; what they have in common is the lattice of the histogram, so a row is known by its lower bound.

export interface HeatColumn {
  second: number;
  bounds: readonly number[];
  counts: readonly number[];
}

export interface HeatGrid {
  /** Edges of the rows, rising; one more than rows. */
  bounds: number[];
  rows: number;
  columns: number;
  /** Row by row from the lowest. */
  counts: Float32Array;
  greatest: number;
}

export class HeatRing {
  readonly capacity: number;
  private readonly columns: (HeatColumn | undefined)[];
  newest = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
    this.columns = new Array<HeatColumn | undefined>(capacity);
  }

  clear(): void {
    this.columns.fill(undefined);
    this.newest = 0;
  }

  put(column: HeatColumn): void {
    if (column.second <= this.newest - this.capacity) return;
    this.columns[column.second % this.capacity] = column;
    this.newest = Math.max(this.newest, column.second);
  }

  at(second: number): HeatColumn | undefined {
    const found = this.columns[second % this.capacity];
    return found?.second === second ? found : undefined;
  }

  grid(from: number, to: number, step = 1): HeatGrid {
    const found: (HeatColumn | undefined)[] = [];
    for (let second = from; second <= to; second += step) found.push(this.at(second));
    return gridOf(found);
  }
}

/** Puts columns with bounds of their own on common rows. */
export function gridOf(columns: readonly (HeatColumn | undefined)[]): HeatGrid {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  const edges = new Set<number>();
  for (const column of columns) {
    if (!column || column.bounds.length < 2) continue;
    for (const bound of column.bounds) edges.add(bound);
    low = Math.min(low, column.bounds[0] ?? low);
    high = Math.max(high, column.bounds[column.bounds.length - 1] ?? high);
  }
  const bounds = [...edges].sort((a, b) => a - b);
  const rows = Math.max(0, bounds.length - 1);
  const row = new Map(bounds.map((bound, index) => [bound, index]));
  const counts = new Float32Array(rows * columns.length);
  let greatest = 0;
  columns.forEach((column, x) => {
    column?.counts.forEach((value, index) => {
      const y = row.get(column.bounds[index] ?? Number.NaN);
      if (y === undefined || y >= rows) return;
      counts[y * columns.length + x] = value;
      if (value > greatest) greatest = value;
    });
  });
  return { bounds, rows, columns: columns.length, counts, greatest };
}

/** From none to the greatest count, so that few among many can still be seen: the outliers are what one looks for. */
export function shade(value: number, greatest: number): number {
  if (value <= 0 || greatest <= 0) return 0;
  return 0.12 + 0.88 * Math.min(1, Math.log1p(value) / Math.log1p(greatest));
}

export type Ramp = readonly (readonly [number, number, number])[];

export function mix(ramp: Ramp, part: number): [number, number, number] {
  const place = Math.max(0, Math.min(1, part)) * (ramp.length - 1);
  const index = Math.min(ramp.length - 2, Math.floor(place));
  const a = ramp[index] ?? [0, 0, 0];
  const b = ramp[index + 1] ?? a;
  const t = place - index;
  return [a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t, a[2] + (b[2] - a[2]) * t];
}
