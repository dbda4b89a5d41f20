// Seconds of several lines in bounded memory. A value's place is its second modulo the capacity, so that nothing moves when time goes on, and a
// second that never came is a gap.

export interface RingLine {
  key: string;
  labels: Readonly<Record<string, string>>;
  values: Float64Array;
  /** The last second in which the line had a value. */
  seen: number;
}

export class Ring {
  readonly capacity: number;
  /** At most so many lines; the one that was not seen for longest goes first. */
  readonly linesMax: number;
  readonly lines = new Map<string, RingLine>();
  /** The newest second; 0 before there is any. */
  newest = 0;

  constructor(capacity: number, linesMax = 32) {
    this.capacity = capacity;
    this.linesMax = linesMax;
  }

  /** Makes room for a second; what is overwritten becomes a gap. */
  advance(second: number): boolean {
    if (second <= this.newest - this.capacity) return false;
    if (this.newest === 0) this.newest = second - 1;
    if (second > this.newest) {
      const from = Math.max(this.newest + 1, second - this.capacity + 1);
      for (const line of this.lines.values()) {
        for (let s = from; s <= second; s += 1) line.values[s % this.capacity] = Number.NaN;
      }
      this.newest = second;
    }
    return true;
  }

  put(second: number, key: string, labels: Readonly<Record<string, string>>, value: number | null): void {
    if (!this.advance(second)) return;
    let line = this.lines.get(key);
    if (!line) {
      if (this.lines.size >= this.linesMax) this.evict();
      line = { key, labels, values: new Float64Array(this.capacity).fill(Number.NaN), seen: second };
      this.lines.set(key, line);
    }
    line.values[second % this.capacity] = value ?? Number.NaN;
    if (value !== null && second > line.seen) line.seen = second;
  }

  get(key: string, second: number): number | null {
    if (second > this.newest || second <= this.newest - this.capacity) return null;
    const value = this.lines.get(key)?.values[second % this.capacity];
    return value === undefined || Number.isNaN(value) ? null : value;
  }

  /** Writes a line's seconds `from` to `to` into `into`, which is as long afterwards; one array serves for ever. */
  copy(key: string, from: number, to: number, into: (number | null)[]): void {
    const values = this.lines.get(key)?.values;
    into.length = Math.max(0, to - from + 1);
    for (let s = from; s <= to; s += 1) {
      const inside = s <= this.newest && s > this.newest - this.capacity;
      const value = inside && values ? values[s % this.capacity] : undefined;
      into[s - from] = value === undefined || Number.isNaN(value) ? null : value;
    }
  }

  private evict(): void {
    let oldest: RingLine | undefined;
    for (const line of this.lines.values()) if (!oldest || line.seen < oldest.seen) oldest = line;
    if (oldest) this.lines.delete(oldest.key);
  }
}

/** One key for the same labels, in whatever order they come. */
export function labelKey(labels: Readonly<Record<string, string>>): string {
  return Object.keys(labels)
    .sort()
    .map((name) => `${name}=${labels[name]}`)
    .join("\u0000");
}
