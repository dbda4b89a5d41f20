// Columns of a heat map in bounded memory, one a second, and what is drawn of them. Columns may have different bounds, because rows without any count
// at either end are left out; what they have in common is the lattice of the histogram, so a row is known by its lower bound.

export interface HeatColumn {
  second: number;
  bounds: readonly number[];
  counts: ArrayLike<number>;
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

  put(column: HeatColumn): void {
    if (column.second <= this.newest - this.capacity) return;
    // Most columns have the bounds of the one before: they are kept once.
    const before = this.columns[this.newest % this.capacity];
    const bounds = before && same(before.bounds, column.bounds) ? before.bounds : column.bounds;
    this.columns[column.second % this.capacity] = { second: column.second, bounds, counts: Float32Array.from(column.counts) };
    this.newest = Math.max(this.newest, column.second);
  }

  at(second: number): HeatColumn | undefined {
    const found = this.columns[second % this.capacity];
    return found?.second === second ? found : undefined;
  }

  grid(from: number, to: number, floor = 0): HeatGrid {
    const found: (HeatColumn | undefined)[] = [];
    for (let second = from; second <= to; second += 1) found.push(this.at(second));
    return gridOf(found, floor);
  }
}

/** Puts columns with bounds of their own on common rows. What is below `floor` is one row. */
export function gridOf(columns: readonly (HeatColumn | undefined)[], floor = 0): HeatGrid {
  const edges = new Set<number>();
  for (const column of columns) {
    if (!column || column.bounds.length < 2) continue;
    for (const bound of column.bounds) edges.add(lifted(bound, floor));
  }
  const bounds = [...edges].sort((a, b) => a - b);
  const rows = Math.max(0, bounds.length - 1);
  const row = new Map(bounds.map((bound, index) => [bound, index]));
  const counts = new Float32Array(rows * columns.length);
  let greatest = 0;
  columns.forEach((column, x) => {
    for (let index = 0; column && index < column.counts.length; index += 1) {
      const value = column.counts[index] ?? 0;
      const y = row.get(lifted(column.bounds[index] ?? Number.NaN, floor));
      if (value === 0 || y === undefined || y >= rows) continue;
      const at = y * columns.length + x;
      const sum = (counts[at] ?? 0) + value;
      counts[at] = sum;
      if (sum > greatest) greatest = sum;
    }
  });
  return { bounds, rows, columns: columns.length, counts, greatest };
}

function same(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((value, index) => value === b[index]);
}

/** Bounds below the floor are the lowest one. */
function lifted(bound: number, floor: number): number {
  return bound < floor ? 0 : bound;
}

/** What so many of a thousand do not exceed: the upper bound of their row. */
export function quantile(grid: HeatGrid, permille: number): number | null {
  let all = 0;
  for (const value of grid.counts) all += value;
  if (all === 0) return null;
  let seen = 0;
  for (let row = 0; row < grid.rows; row += 1) {
    for (let column = 0; column < grid.columns; column += 1) seen += grid.counts[row * grid.columns + column] ?? 0;
    if (seen * 1000 >= all * permille - 1e-9) return grid.bounds[row + 1] ?? null;
  }
  return grid.bounds[grid.rows] ?? null;
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
