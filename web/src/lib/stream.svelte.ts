// Statistics as they come, a second at a time, over one WebSocket for the whole page. Subscriptions to the same expression are one. When the
// connection drops or falls silent, `staleSince` says since when, and it is taken up again by itself.

import type { Problem } from "./api";

export interface StreamLine {
  labels: Record<string, string>;
  value: number | null;
}

export interface StreamMessage {
  id: number;
  at_unix_s: number;
  lines?: StreamLine[];
  others?: number | null;
  total?: number | null;
  column?: number[];
  bounds?: number[];
  missed?: number;
}

export interface StreamMade {
  id: number;
  kind: "counter" | "gauge" | "spread";
  unit: string;
}

export interface StreamListener {
  made?: (made: StreamMade) => void;
  second: (message: StreamMessage) => void;
  problem?: (problem: Problem) => void;
}

interface Subscription {
  id: number;
  expression: string;
  limit: number;
  made?: StreamMade;
  listeners: Set<StreamListener>;
}

/** A message comes each second; silence for so long means that none comes any more. */
const SILENCE_MS = 4000;
const WAIT_MS = [500, 1000, 2000, 4000, 8000] as const;
/** The server takes so many; more are not asked for. */
export const SUBSCRIPTIONS_MAX = 64;

class Statistics {
  /** When the last second came before the stream dropped; 0 while it flows. */
  staleSince = $state(0);
  missed = $state(0);
  private socket: WebSocket | undefined;
  private readonly subscriptions = new Map<string, Subscription>();
  private readonly byId = new Map<number, Subscription>();
  private nextId = 1;
  private tries = 0;
  private last = 0;
  private watch: ReturnType<typeof setInterval> | undefined;
  private retry: ReturnType<typeof setTimeout> | undefined;

  subscribe(expression: string, limit: number, listener: StreamListener): () => void {
    const key = `${limit} ${expression}`;
    let subscription = this.subscriptions.get(key);
    if (!subscription) {
      subscription = { id: this.nextId, expression, limit, listeners: new Set() };
      this.nextId += 1;
      this.subscriptions.set(key, subscription);
      this.byId.set(subscription.id, subscription);
      this.ask(subscription);
    } else if (subscription.made) {
      listener.made?.(subscription.made);
    }
    subscription.listeners.add(listener);
    this.connect();
    const mine = subscription;
    return () => {
      mine.listeners.delete(listener);
      if (mine.listeners.size > 0 || this.subscriptions.get(key) !== mine) return;
      this.subscriptions.delete(key);
      this.byId.delete(mine.id);
      if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ unsubscribe: mine.id }));
      if (this.subscriptions.size === 0) this.close();
    };
  }

  private ask({ id, expression, limit }: Subscription): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ subscribe: id, expression, limit }));
  }

  private connect(): void {
    if (this.socket || this.retry) return;
    const protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${protocol}//${location.host}/api/v1/statistics/stream`);
    this.socket = socket;
    if (this.last === 0) this.last = Date.now();
    this.watch ??= setInterval(() => this.look(), 1000);
    socket.addEventListener("open", () => {
      for (const subscription of this.subscriptions.values()) this.ask(subscription);
    });
    socket.addEventListener("message", (message: MessageEvent<string>) => this.take(message.data));
    socket.addEventListener("close", () => {
      if (this.socket !== socket) return;
      this.socket = undefined;
      if (this.subscriptions.size === 0) return;
      const wait = WAIT_MS[Math.min(this.tries, WAIT_MS.length - 1)];
      this.tries += 1;
      this.retry = setTimeout(() => {
        this.retry = undefined;
        this.connect();
      }, wait);
    });
  }

  private take(text: string): void {
    const message = JSON.parse(text) as Partial<StreamMessage> & Partial<StreamMade> & { problem?: Problem };
    const subscription = message.id === undefined ? undefined : this.byId.get(message.id);
    this.last = Date.now();
    this.tries = 0;
    if (this.staleSince !== 0) this.staleSince = 0;
    if (!subscription) return;
    if (message.problem) {
      for (const listener of subscription.listeners) listener.problem?.(message.problem);
    } else if (message.at_unix_s !== undefined) {
      if (message.missed) this.missed += message.missed;
      for (const listener of subscription.listeners) listener.second(message as StreamMessage);
    } else if (message.kind && message.unit !== undefined) {
      subscription.made = message as StreamMade;
      for (const listener of subscription.listeners) listener.made?.(subscription.made);
    }
  }

  private look(): void {
    if (this.subscriptions.size === 0 || Date.now() - this.last < SILENCE_MS) return;
    if (this.staleSince === 0) this.staleSince = this.last;
    // A connection that is open and says nothing may never say anything again: the other side is gone without a word.
    if (this.socket?.readyState === WebSocket.OPEN && Date.now() - this.last > 3 * SILENCE_MS) this.socket.close();
  }

  private close(): void {
    clearInterval(this.watch);
    clearTimeout(this.retry);
    this.watch = undefined;
    this.retry = undefined;
    const socket = this.socket;
    this.socket = undefined;
    socket?.close();
    this.last = 0;
    this.staleSince = 0;
  }
}

export const statistics = new Statistics();
