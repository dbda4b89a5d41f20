// The one sentence of the dashboard: whether all is well, and what to do next. The worst comes first; what can wait is not mentioned.

import type { Schemas } from "./api";
import { bytes, list, plural } from "./format";
import { causeWords, type Tone } from "./words";

export interface Broken {
  volume: string;
  level: string;
  cause: Schemas["LedgerCause"] | null | undefined;
}

export interface Verdict {
  tone: Tone;
  sentence: string;
  detail: string;
  action?: { text: string; href: string };
  command?: string;
  more: number;
}

export function verdict(facts: {
  alerts: readonly Schemas["Alert"][];
  pools: readonly Schemas["Pool"][];
  volumes: readonly Schemas["Volume"][];
  broken: readonly Broken[];
}): Verdict {
  const { alerts, pools, volumes, broken } = facts;
  const grave = alerts.filter((alert) => alert.severity !== "info");
  const first = grave[0];
  if (first) {
    const promise = first.object.resource === "volumes" ? broken.find(({ volume }) => volume === first.object.name) : undefined;
    return {
      tone: first.severity === "critical" ? "bad" : "warn",
      sentence: first.cause,
      detail: `${first.impact} ${first.action}`,
      action: { text: promise ? "Why?" : "Show details", href: hrefOf(first.object) },
      ...(first.command ? { command: first.command } : {}),
      more: grave.length - 1,
    };
  }
  const degraded = pools.find((pool) => pool.status.state !== "online");
  if (degraded) {
    const why = degraded.conditions.find((condition) => !condition.status && condition.message !== "")?.message ?? "";
    return {
      tone: degraded.status.state === "degraded" ? "warn" : "bad",
      sentence: `Pool ${degraded.name} is ${degraded.status.state}.`,
      detail: why,
      action: { text: "Show details", href: `#/pools/${encodeURIComponent(degraded.name)}` },
      more: 0,
    };
  }
  const worst = broken[0];
  if (worst) {
    const why = causeWords(worst.cause);
    return {
      tone: "warn",
      sentence: `${worst.volume} misses its service level ${worst.level}${why ? `: ${why}` : ""}.`,
      detail: broken.length > 1 ? `${plural(broken.length - 1, "other volume misses its level", "other volumes miss their levels")}, too.` : "",
      action: { text: "Why?", href: "#/levels" },
      more: 0,
    };
  }
  if (pools.length === 0) {
    return {
      tone: "info",
      sentence: "There is no pool yet.",
      detail: "Three steps: create a pool of disks, create a volume in it, and connect a client.",
      action: { text: "Get started", href: "#/volumes/start" },
      more: 0,
    };
  }
  if (volumes.length === 0) {
    return {
      tone: "info",
      sentence: `Pool ${pools[0]?.name ?? ""} is ready; there is no volume yet.`,
      detail: "Create one and connect a client.",
      action: { text: "Create a volume", href: "#/volumes/start" },
      more: 0,
    };
  }
  const free = pools.reduce((sum, pool) => sum + pool.status.available_bytes, 0);
  const facts2 = [`${plural(volumes.length, "volume")} in ${plural(pools.length, "pool")}`, "all service levels are met", `${bytes(free)} are free`];
  return { tone: "ok", sentence: "All is well.", detail: `${list(facts2)}.`.replace(/^./, (c) => c.toUpperCase()), more: 0 };
}

/** The screen that shows an object. */
export function hrefOf(object: { resource: string; name: string }): string {
  const name = encodeURIComponent(object.name);
  switch (object.resource) {
    case "pools":
      return `#/pools/${name}`;
    case "disks":
      return `#/pools/${encodeURIComponent(object.name.split("/")[0] ?? "")}/disks`;
    case "volumes":
      return `#/volumes/show/${name}`;
    case "projects":
      return "#/volumes/projects";
    case "tasks":
      return "#/activity/tasks";
    case "channels":
      return "#/settings/channels";
    case "thresholds":
      return `#/activity/thresholds?find=${name}`;
    default:
      return "#/activity/alerts";
  }
}
