// What changes, as it changes: the appliance's stream of events. Whoever shows a resource is told when it changed; when the stream drops, everybody
// asks again once it is back, because what was missed is not known.

import type { Schemas } from "./api";

type Event = Schemas["Event"];
type Task = Schemas["Task"];

const RECENT_MAX = 200;
const WAIT_MS = [500, 1000, 2000, 4000, 8000] as const;
/** The server sends a comment every few seconds; the browser does not show it, so silence alone is no sign. */

class Changes {
  connected = $state(false);
  /** Newest first. */
  recent = $state.raw<readonly Event[]>([]);
  private source: EventSource | undefined;
  private tries = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly onChange = new Set<(resource: string) => void>();
  private readonly onTask = new Set<(task: Task) => void>();
  private readonly onEvent = new Set<(event: Event) => void>();

  start(): void {
    if (this.source) return;
    const source = new EventSource("/api/v1/events/stream");
    this.source = source;
    source.addEventListener("open", () => {
      this.connected = true;
      this.tries = 0;
      this.changed("*");
    });
    source.addEventListener("error", () => {
      this.connected = false;
      if (source.readyState !== EventSource.CLOSED) return;
      this.stop();
      const wait = WAIT_MS[Math.min(this.tries, WAIT_MS.length - 1)];
      this.tries += 1;
      this.timer = setTimeout(() => this.start(), wait);
    });
    source.addEventListener("changed", (message) => {
      const { resource } = JSON.parse((message as MessageEvent<string>).data) as { resource: string };
      this.changed(resource);
    });
    source.addEventListener("event", (message) => {
      const event = JSON.parse((message as MessageEvent<string>).data) as Event;
      this.recent = [event, ...this.recent].slice(0, RECENT_MAX);
      for (const listener of this.onEvent) listener(event);
    });
    source.addEventListener("task", (message) => {
      const task = JSON.parse((message as MessageEvent<string>).data) as Task;
      for (const listener of this.onTask) listener(task);
    });
  }

  stop(): void {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = undefined;
    this.connected = false;
  }

  hear(listener: (resource: string) => void): () => void {
    this.onChange.add(listener);
    return () => this.onChange.delete(listener);
  }

  hearTasks(listener: (task: Task) => void): () => void {
    this.onTask.add(listener);
    return () => this.onTask.delete(listener);
  }

  hearEvents(listener: (event: Event) => void): () => void {
    this.onEvent.add(listener);
    return () => this.onEvent.delete(listener);
  }

  private changed(resource: string): void {
    for (const listener of this.onChange) listener(resource);
  }
}

export const changes = new Changes();
