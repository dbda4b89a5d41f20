// Promises over the last quarter of an hour: what each volume asked for, got, and why not. Followed second by second from the pool's ledger, kept in
// rings, so that memory does not grow with time.

import { get, troubleOf, type Problem, type Schemas } from "./api";
import { LEDGER_STATE, type Tone } from "./words";

export const LEDGER_SECONDS = 900;
/** Volumes that are followed in a pool; those that were quiet for longest go first. */
const VOLUMES_MAX = 500;
const STATES: readonly Schemas["LedgerState"][] = ["met", "low-demand", "limited", "missed", "best-effort", "cannot-be-met"];
const UNPROMISED: readonly Schemas["LedgerState"][] = ["best-effort", "cannot-be-met"];
/** In the ring: a state's place in the list, plus one; nothing was asked for in a second that is 0. */
const MISSED = STATES.indexOf("missed") + 1;

export interface Promised {
  id: string;
  volume: string;
  last: Schemas["LedgerLine"];
  lastSecond: number;
  states: Uint8Array;
  /** Of the last second in which a promise was broken. */
  broken: { second: number; line: Schemas["LedgerLine"] } | undefined;
  /** Seconds of the last quarter of an hour: with something asked for that was promised, and with a broken promise. */
  asked: number;
  missed: number;
}

export class Ledger {
  readonly pool: string;
  volumes = $state.raw<readonly Promised[]>([]);
  newest = $state(0);
  second = $state.raw<Schemas["LedgerSecond"] | undefined>(undefined);
  problem = $state.raw<Problem | undefined>(undefined);
  private readonly byVolume = new Map<string, Promised>();
  private after = 0;

  constructor(pool: string) {
    this.pool = pool;
  }

  follow(): () => void {
    const abort = new AbortController();
    void this.run(abort.signal);
    return () => abort.abort();
  }

  private async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        const { items } = await get("/api/v1/pools/{pool}/ledger", {
          path: { pool: this.pool },
          query: this.after === 0 ? { limit: LEDGER_SECONDS } : { after: this.after, limit: LEDGER_SECONDS },
          signal,
        });
        this.take(items);
        this.problem = undefined;
        // Asked each second instead of held open: a browser has six connections to one origin, and a pool must not keep one.
        await pause(1000, signal);
      } catch (error) {
        if (signal.aborted) return;
        this.problem = troubleOf(error);
        await pause(3000, signal);
      }
    }
  }

  private take(items: readonly Schemas["LedgerSecond"][]): void {
    if (items.length === 0) return;
    for (const item of items) {
      this.after = Math.max(this.after, item.number);
      const second = Math.round(item.ended_unix_ms / 1000);
      for (const promised of this.byVolume.values()) {
        for (let gap = Math.max(this.newest + 1, second - LEDGER_SECONDS + 1); gap <= second; gap += 1) promised.states[gap % LEDGER_SECONDS] = 0;
      }
      this.newest = Math.max(this.newest, second);
      for (const line of item.volumes) this.put(second, line);
    }
    const from = this.newest - LEDGER_SECONDS;
    for (const promised of [...this.byVolume.values()]) {
      if (promised.lastSecond <= from) {
        this.byVolume.delete(promised.volume);
        continue;
      }
      promised.asked = 0;
      promised.missed = 0;
      for (const state of promised.states) {
        const known = STATES[state - 1];
        if (known && !UNPROMISED.includes(known)) promised.asked += 1;
        if (state === MISSED) promised.missed += 1;
      }
      if (promised.broken && promised.broken.second <= from) promised.broken = undefined;
    }
    this.second = items[items.length - 1];
    this.volumes = [...this.byVolume.values()].sort((a, b) => a.volume.localeCompare(b.volume));
  }

  private put(second: number, line: Schemas["LedgerLine"]): void {
    let promised = this.byVolume.get(line.volume_id);
    if (!promised) {
      if (this.byVolume.size >= VOLUMES_MAX) {
        let quietest: [string, Promised] | undefined;
        for (const entry of this.byVolume) if (!quietest || entry[1].lastSecond < quietest[1].lastSecond) quietest = entry;
        if (quietest) this.byVolume.delete(quietest[0]);
      }
      promised = { id: line.volume_id, volume: line.volume, last: line, lastSecond: second, states: new Uint8Array(LEDGER_SECONDS), broken: undefined, asked: 0, missed: 0 };
      this.byVolume.set(line.volume_id, promised);
    }
    promised.volume = line.volume;
    promised.last = line;
    promised.lastSecond = second;
    promised.states[second % LEDGER_SECONDS] = STATES.indexOf(line.state) + 1;
    if (line.state === "missed") promised.broken = { second, line };
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}

/** Whether the promise was broken within the last so many seconds. */
export function brokenLately(promised: Promised, newest: number, seconds = 10): boolean {
  return promised.broken !== undefined && newest - promised.broken.second < seconds;
}

/** Its state now, in words. A level missed moments ago stays in sight, and its figures are of now: so it says when that was. */
export function stateNow(promised: Promised, newest: number): [Tone, string] {
  if (promised.last.state === "missed" || !promised.broken || !brokenLately(promised, newest)) return LEDGER_STATE[promised.last.state];
  const ago = Math.max(1, newest - promised.broken.second);
  return ["warn", `Missed ${ago} s ago`];
}

/** Whether its level's promise holds: that of `none` is empty, and one that does not fit into the pool counts for nothing. */
export function isPromised(promised: Promised): boolean {
  return promised.last.level !== "none" && !UNPROMISED.includes(promised.last.state);
}

/** The state in a second of the last quarter of an hour. */
export function stateAt(promised: Promised, second: number): Schemas["LedgerState"] | undefined {
  const code = promised.states[second % LEDGER_SECONDS];
  return code ? STATES[code - 1] : undefined;
}
