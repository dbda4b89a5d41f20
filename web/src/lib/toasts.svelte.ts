// Short messages about what was done or failed. Few at a time; errors stay until they are closed.

import { troubleOf, type Problem } from "./api";

export interface Toast {
  id: number;
  tone: "ok" | "bad" | "info";
  text: string;
  problem?: Problem;
}

const SHOWN_MS = 5000;
const TOASTS_MAX = 4;

class Toasts {
  items = $state.raw<readonly Toast[]>([]);
  private next = 1;

  say(text: string, tone: "ok" | "info" = "ok"): void {
    this.add({ id: this.next++, tone, text }, SHOWN_MS);
  }

  fail(error: unknown): void {
    const problem = troubleOf(error);
    this.add({ id: this.next++, tone: "bad", text: problem.detail, problem }, 0);
  }

  close(id: number): void {
    this.items = this.items.filter((toast) => toast.id !== id);
  }

  /** What one user did is not told to the next. */
  clear(): void {
    this.items = [];
  }

  private add(toast: Toast, ms: number): void {
    this.items = [...this.items, toast].slice(-TOASTS_MAX);
    if (ms > 0) setTimeout(() => this.close(toast.id), ms);
  }
}

export const toasts = new Toasts();
