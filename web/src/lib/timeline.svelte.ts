// The one time axis that all graphs of a screen share: live, ending with the newest second, or fixed.

export const WINDOWS: readonly { seconds: number; text: string }[] = [
  { seconds: 60, text: "1 min" },
  { seconds: 300, text: "5 min" },
  { seconds: 900, text: "15 min" },
  { seconds: 3600, text: "1 h" },
  { seconds: 21_600, text: "6 h" },
  { seconds: 86_400, text: "1 d" },
  { seconds: 604_800, text: "7 d" },
];

/** Up to here live graphs are fed by the stream; longer ones ask every few seconds. */
export const STREAMED_MAX = 900;

export class Timeline {
  live = $state(true);
  seconds = $state(300);
  from = $state(0);
  to = $state(0);
  /** The newest second that any graph has seen; not followed by Svelte, since charts are drawn when data comes. */
  newest = 0;
  private readonly undo: { live: boolean; seconds: number; from: number; to: number }[] = [];
  depth = $state(0);
  /** While a fixed time is replayed: up to where. Nothing after it is shown. */
  head = $state<number | undefined>(undefined);

  constructor(seconds = 300) {
    this.seconds = seconds;
  }

  range = (): [number, number] => {
    if (!this.live) return [this.from, this.to];
    const end = this.newest || Math.floor(Date.now() / 1000);
    return [end - this.seconds, end];
  };

  see(second: number): void {
    if (second > this.newest) this.newest = second;
  }

  fix(from: number, to: number): void {
    this.remember();
    this.live = false;
    this.from = Math.floor(Math.min(from, to - 10));
    this.to = Math.ceil(to);
  }

  pause(): void {
    if (this.live) this.fix(...this.range());
    else this.go();
  }

  go(seconds = this.seconds): void {
    this.live = true;
    this.seconds = seconds;
    this.undo.length = 0;
    this.depth = 0;
  }

  /** By half of what is shown; into the future it ends at now. */
  shift(halves: number): void {
    const [from, to] = this.range();
    const span = to - from;
    const now = this.newest || Math.floor(Date.now() / 1000);
    const end = Math.min(now, to + (span * halves) / 2);
    if (halves > 0 && end === now && !this.live) this.go(span > 0 ? Math.round(span) : this.seconds);
    else this.fix(end - span, end);
  }

  back(): void {
    const before = this.undo.pop();
    this.depth = this.undo.length;
    if (!before) return;
    this.live = before.live;
    this.seconds = before.seconds;
    this.from = before.from;
    this.to = before.to;
  }

  private remember(): void {
    this.undo.push({ live: this.live, seconds: this.seconds, from: this.from, to: this.to });
    if (this.undo.length > 20) this.undo.shift();
    this.depth = this.undo.length;
  }
}
