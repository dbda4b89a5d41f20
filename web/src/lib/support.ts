// The file of `forebay support bundle`, put together by the browser: what the API answers about the appliance. The API answers no secrets.

import { all, get, troubleOf, type Schemas } from "./api";

/** The operations without an object of their own, and the last part of their path. */
export const LISTS: Readonly<Record<string, string>> = {
  AlertList: "alerts",
  BookmarkList: "bookmarks",
  ChannelList: "channels",
  DiskList: "disks",
  HostGroupList: "host-groups",
  HostList: "hosts",
  LevelList: "levels",
  MachineDiskList: "machine/disks",
  MappingList: "mappings",
  MoveList: "moves",
  PoolList: "pools",
  ProjectList: "projects",
  ReceiveList: "receives",
  ReportList: "reports",
  SessionList: "sessions",
  SnapshotList: "snapshots",
  StatisticList: "statistics",
  TaskList: "tasks",
  ThresholdList: "thresholds",
  TokenList: "tokens",
  TrashList: "trash",
  UserList: "users",
  VolumeList: "volumes",
  WorksheetList: "worksheets",
};

export interface Bundle {
  text: string;
  /** Parts that the role may not read, or that failed. */
  missing: string[];
}

export async function bundle(signal: AbortSignal, progress: (part: string) => void): Promise<Bundle> {
  const told: Record<string, unknown> = {};
  const missing: string[] = [];
  const ask = async (part: string, asking: () => Promise<unknown>): Promise<void> => {
    progress(part);
    try {
      told[part] = await asking();
    } catch (error) {
      signal.throwIfAborted();
      const { detail, remedy } = troubleOf(error);
      told[part] = { failed: remedy ? `${detail}. ${remedy}` : detail };
      missing.push(part);
    }
  };
  await ask("ServerShow", () => get("/api/v1/server", { signal }));
  for (const [part, name] of Object.entries(LISTS)) await ask(part, () => all(`/api/v1/${name}`, {}, signal));
  // Numbered: the newest thousand.
  await ask("EventList", () => get("/api/v1/events", { query: { limit: 1000 }, signal }));
  await ask("AuditList", () => get("/api/v1/audit", { query: { limit: 1000 }, signal }));
  const pools = Array.isArray(told.PoolList) ? (told.PoolList as Schemas["Pool"][]) : [];
  for (const { name } of pools) {
    await ask(`DamageList ${name}`, () => all(`/api/v1/pools/${encodeURIComponent(name)}/damage`, {}, signal));
    await ask(`PoolLedger ${name}`, () => get("/api/v1/pools/{pool}/ledger", { path: { pool: name }, signal }));
  }
  const program = (told.ServerShow as Partial<Schemas["Server"]> | undefined)?.version ?? "";
  const whole = { forebay_support: 1, program, made_unix_s: Math.floor(Date.now() / 1000), told };
  return { text: `${JSON.stringify(whole, null, 2)}\n`, missing };
}
