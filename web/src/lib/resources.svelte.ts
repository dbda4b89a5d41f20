// What screens show of the appliance's objects: each list is asked for while somebody looks at it, again when the appliance says that it changed,
// and every few seconds for what changes without an event (how full a pool is). One that could not be asked for keeps what it had and says
// since when that is.

import { all, get, troubleOf, type Problem, type Schemas } from "./api";
import { changes } from "./events.svelte";

export class Resource<T> {
  data = $state.raw<T | undefined>(undefined);
  problem = $state.raw<Problem | undefined>(undefined);
  /** When the data came. */
  at = $state(0);

  private readonly fetcher: (signal: AbortSignal) => Promise<T>;
  private readonly resources: readonly string[];
  private readonly seconds: number;
  private holders = 0;
  private busy = false;
  private again = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private unhear: (() => void) | undefined;
  private abort: AbortController | undefined;

  constructor(fetcher: (signal: AbortSignal) => Promise<T>, resources: readonly string[], seconds: number) {
    this.fetcher = fetcher;
    this.resources = resources;
    this.seconds = seconds;
  }

  /** Keeps it fresh until the returned function is called. */
  hold(): () => void {
    this.holders += 1;
    if (this.holders === 1) {
      this.unhear = changes.hear((resource) => {
        if (resource === "*" || this.resources.includes(resource)) void this.refresh();
      });
      void this.refresh();
    }
    return () => {
      this.holders -= 1;
      if (this.holders > 0) return;
      this.unhear?.();
      clearTimeout(this.timer);
      this.abort?.abort();
    };
  }

  async refresh(): Promise<void> {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    clearTimeout(this.timer);
    this.abort = new AbortController();
    try {
      const data = await this.fetcher(this.abort.signal);
      this.data = data;
      this.at = Date.now();
      this.problem = undefined;
    } catch (error) {
      if (!this.abort.signal.aborted) this.problem = troubleOf(error);
    } finally {
      this.busy = false;
    }
    if (this.holders === 0) return;
    const wait = this.again ? 150 : this.seconds * 1000;
    this.again = false;
    this.timer = setTimeout(() => void this.refresh(), wait);
  }

  forget(): void {
    this.data = undefined;
    this.problem = undefined;
  }
}

/** Called while a component is made: its data is fresh as long as the component is there. */
export function use<T>(resource: Resource<T>): Resource<T> {
  $effect(() => resource.hold());
  return resource;
}

const list = <T>(name: string, also: readonly string[] = [], seconds = 20): Resource<T[]> =>
  new Resource((signal) => all<T>(`/api/v1/${name}`, {}, signal), [name, ...also], seconds);

export const pools = list<Schemas["Pool"]>("pools", ["disks", "groups"], 5);
/** The machine's disks that a pool may take. Each answer reads what is on them, so it is asked for seldom. */
export const freeDisks = new Resource<Schemas["MachineDisk"][]>(
  (signal) => all<Schemas["MachineDisk"]>("/api/v1/machine/disks", { filter: "free=true" }, signal),
  ["pools", "disks"],
  30,
);
export const volumes = list<Schemas["Volume"]>("volumes", ["mappings", "snapshots", "projects", "levels"], 10);
export const projects = list<Schemas["Project"]>("projects", ["volumes"]);
export const snapshots = list<Schemas["Snapshot"]>("snapshots", ["volumes"]);
export const bookmarks = list<Schemas["Bookmark"]>("bookmarks", ["snapshots", "volumes"]);
export const levels = list<Schemas["Level"]>("levels");
export const hosts = list<Schemas["Host"]>("hosts", ["sessions", "mappings", "host-groups"]);
export const hostGroups = list<Schemas["HostGroup"]>("host-groups", ["hosts", "mappings"]);
export const mappings = list<Schemas["Mapping"]>("mappings", ["hosts", "host-groups", "volumes"]);
export const sessions = list<Schemas["Session"]>("sessions", ["hosts"], 5);
export const trash = list<Schemas["TrashedVolume"]>("trash", ["volumes"]);
export const receives = list<Schemas["Receive"]>("receives", [], 5);
export const moves = list<Schemas["MoveLeft"]>("moves", ["pools"]);
export const tokens = list<Schemas["Token"]>("tokens");
export const users = list<Schemas["User"]>("users");
/** How deliveries go changes without an event. */
export const channels = list<Schemas["Channel"]>("channels", [], 10);
export const worksheets = list<Schemas["Worksheet"]>("worksheets");
/** Values and crossings change without an event. */
export const thresholds = list<Schemas["Threshold"]>("thresholds", ["alerts"], 10);
export const reports = list<Schemas["Report"]>("reports");
export const server = new Resource<Schemas["Server"]>(() => get("/api/v1/server"), ["server"], 60);
/** What statistics there are: the same until the daemon is another. */
export const statisticList = new Resource<Schemas["Statistic"][]>(async () => (await get("/api/v1/statistics")).items, [], 3600);

/** As they are needed first: worst first, then newest. */
export const alerts = new Resource<Schemas["Alert"][]>(
  async () => {
    const rank = { critical: 0, warning: 1, info: 2 };
    const { items } = await get("/api/v1/alerts");
    return items.sort((a, b) => rank[a.severity] - rank[b.severity] || b.since_unix_ms - a.since_unix_ms);
  },
  ["alerts", "pools", "disks", "volumes"],
  5,
);

/** Newest first. */
export const tasks = new Resource<Schemas["Task"][]>(
  async (signal) => {
    const items = await all<Schemas["Task"]>("/api/v1/tasks", {}, signal);
    return items.sort((a, b) => b.started_unix_ms - a.started_unix_ms);
  },
  ["tasks"],
  4,
);

/** The newest thousand, newest first. */
export const audit = new Resource<Schemas["AuditEntry"][]>(
  async () => {
    const { items } = await get("/api/v1/audit", { query: { limit: 1000 } });
    return items.reverse();
  },
  ["audit"],
  10,
);

/** The newest three hundred, newest first. */
export const events = new Resource<Schemas["Event"][]>(
  async () => {
    const { items } = await get("/api/v1/events", { query: { limit: 1000 } });
    return items.slice(-300).reverse();
  },
  ["events"],
  10,
);
