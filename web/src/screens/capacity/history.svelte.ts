// The used space of pools over days, and what follows from its growth.

import type uPlot from "uplot";
import { get, troubleOf, type Problem } from "../../lib/api";
import { DAY, growth } from "../../lib/capacity";

export const RANGES: readonly { days: number; text: string }[] = [
  { days: 1, text: "1 day" },
  { days: 7, text: "7 days" },
  { days: 30, text: "30 days" },
  { days: 90, text: "90 days" },
];
const AGAIN_MS = 60_000;
/** How much of the shown time the forecast takes. */
const AHEAD = 1 / 3;

export class History {
  problem = $state.raw<Problem | undefined>(undefined);
  times = $state.raw<readonly number[]>([]);
  used = $state.raw<readonly (number | null)[]>([]);
  size = $state.raw<readonly (number | null)[]>([]);
  loading = $state(true);
  readonly days: number;
  private readonly where: string;

  /** Of one pool, or of all together. */
  constructor(pool: string | undefined, days: number) {
    this.days = days;
    this.where = pool === undefined ? "" : `[pool=${pool}]`;
  }

  /** Bytes per second in the time that there is. */
  get rate(): number | null {
    return growth(this.times, this.used);
  }
  /** Days between the first and the last value. */
  get known(): number {
    const first = this.used.findIndex((value) => value !== null);
    const last = this.used.findLastIndex((value) => value !== null);
    return first < 0 ? 0 : ((this.times[last] ?? 0) - (this.times[first] ?? 0)) / DAY;
  }

  start(): () => void {
    const abort = new AbortController();
    const ask = async (noun: string): Promise<{ from: number; step: number; values: readonly (number | null)[] }> => {
      const answer = await get("/api/v1/statistics/query", { query: { expression: `pool.${noun}${this.where}`, from: -this.days * DAY, to: 0 }, signal: abort.signal });
      return { from: answer.from_unix_s, step: answer.step_seconds, values: answer.lines?.[0]?.values ?? [] };
    };
    const load = async (): Promise<void> => {
      try {
        const [used, size] = await Promise.all([ask("used"), ask("size")]);
        this.times = used.values.map((_, index) => used.from + index * used.step);
        this.used = used.values;
        this.size = size.values;
        this.problem = undefined;
      } catch (error) {
        if (abort.signal.aborted) return;
        this.problem = troubleOf(error);
      }
      this.loading = false;
    };
    void load();
    const timer = setInterval(() => void load(), AGAIN_MS);
    return () => {
      abort.abort();
      clearInterval(timer);
    };
  }

  range = (): [number, number] => {
    const now = Date.now() / 1000;
    return [now - this.days * DAY, now + (this.rate === null ? 0 : this.days * DAY * AHEAD)];
  };

  /** Times, used, size, forecast: a line from the last value on, up to where the pool is full. */
  data = (): uPlot.AlignedData => {
    const last = this.used.findLastIndex((value) => value !== null);
    const [at, value, size] = [this.times[last], this.used[last], this.size.findLast((one) => one !== null)];
    const rate = this.rate;
    if (at === undefined || typeof value !== "number" || typeof size !== "number" || rate === null)
      return [this.times, this.used, this.size, this.times.map(() => null)] as unknown as uPlot.AlignedData;
    const end = at + this.days * DAY * AHEAD;
    const full = rate > 0 ? at + (size - value) / rate : Number.POSITIVE_INFINITY;
    const ahead = full < end ? [full, end] : [end];
    const times = [...this.times.slice(0, last + 1), ...ahead];
    const forecast = [...this.used.slice(0, last).map(() => null), value, ...ahead.map((time) => Math.max(0, Math.min(size, value + rate * (time - at))))];
    return [times, [...this.used.slice(0, last + 1), ...ahead.map(() => null)], [...this.size.slice(0, last + 1), ...ahead.map(() => size)], forecast] as uPlot.AlignedData;
  };
}
