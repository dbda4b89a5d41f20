// Names of statistics: `layer.noun[dim=value]…[dim]`, as docs/reference/analytics.md writes them. Read, written, and changed by what a click means.

export type Operator = "is" | "not" | "by";

export interface Bracket {
  dimension: string;
  operator: Operator;
  value: string;
}

export interface Expression {
  layer: string;
  noun: string;
  brackets: readonly Bracket[];
}

/** Dimensions that are spreads: a bracket with one of these makes a heat map. */
export const SPREADS: readonly string[] = ["latency", "size", "offset"];

const PLAIN = /^[A-Za-z0-9._:/@-]+$/;

export function parse(text: string): Expression | null {
  const head = /^([a-z0-9]+)\.([a-z0-9_]+)/.exec(text);
  if (!head?.[1] || !head[2]) return null;
  const brackets: Bracket[] = [];
  let rest = text.slice(head[0].length);
  while (rest !== "") {
    const found = /^\[([a-z0-9_]+)(?:(!?=)(?:"((?:[^"\\]|\\.)*)"|([A-Za-z0-9._:/@-]+)))?\]/.exec(rest);
    if (!found?.[1]) return null;
    const value = found[3] !== undefined ? found[3].replace(/\\(.)/g, "$1") : (found[4] ?? "");
    brackets.push({ dimension: found[1], operator: found[2] === "=" ? "is" : found[2] === "!=" ? "not" : "by", value });
    rest = rest.slice(found[0].length);
  }
  return { layer: head[1], noun: head[2], brackets };
}

export function write(expression: Expression): string {
  const brackets = expression.brackets.map(({ dimension, operator, value }) => {
    if (operator === "by") return `[${dimension}]`;
    const quoted = PLAIN.test(value) ? value : `"${value.replace(/["\\]/g, "\\$&")}"`;
    return `[${dimension}${operator === "is" ? "=" : "!="}${quoted}]`;
  });
  return `${expression.layer}.${expression.noun}${brackets.join("")}`;
}

export const breakdowns = (e: Expression): string[] => e.brackets.filter((b) => b.operator === "by").map((b) => b.dimension);
export const filters = (e: Expression): Bracket[] => e.brackets.filter((b) => b.operator !== "by");
export const isHeatmap = (e: Expression): boolean => e.brackets.some((b) => b.operator === "by" && SPREADS.includes(b.dimension));

/** Keeps only what has this value, and breaks down by it no more. */
export function only(e: Expression, dimension: string, value: string): Expression {
  const rest = e.brackets.filter((b) => b.dimension !== dimension);
  return ordered({ ...e, brackets: [...rest, { dimension, operator: "is", value }] });
}

export function without(e: Expression, dimension: string, value: string): Expression {
  const rest = e.brackets.filter((b) => !(b.dimension === dimension && b.operator === "not" && b.value === value));
  return ordered({ ...e, brackets: [...rest, { dimension, operator: "not", value }] });
}

/** Broken down by exactly these dimensions. */
export function by(e: Expression, dimensions: readonly string[]): Expression {
  const kept = filters(e);
  const made = dimensions.map((dimension): Bracket => ({ dimension, operator: "by", value: "" }));
  return ordered({ ...e, brackets: [...kept, ...made] });
}

export function unfiltered(e: Expression, index: number): Expression {
  const gone = filters(e)[index];
  return { ...e, brackets: e.brackets.filter((b) => b !== gone) };
}

/** Filters first, then breakdowns: one way to write each. */
function ordered(e: Expression): Expression {
  const rank = (b: Bracket): number => (b.operator === "by" ? (SPREADS.includes(b.dimension) ? 2 : 1) : 0);
  return { ...e, brackets: [...e.brackets].sort((a, b) => rank(a) - rank(b)) };
}

const LAYERS: Record<string, string> = {
  nbd: "over NBD",
  iscsi: "over iSCSI",
  volume: "at the volumes",
  qos: "under service levels",
  pool: "of pools",
  disk: "at the disks",
  cache: "through caches",
  cpu: "of the processor",
  memory: "of memory",
  nic: "through network ports",
  observer: "of statistics collection",
};

const NOUNS: Record<string, string> = {
  ops: "Requests",
  bytes: "Throughput",
  latency: "Latency",
  size: "Request sizes",
  offset: "Request positions",
  failed: "Failed requests",
  time: "Time",
  asked: "Incoming requests",
  done: "Completed requests",
  late: "Late requests",
  waiting: "Waiting requests",
  p50: "p50 latency",
  p99: "p99 latency",
  missed: "Missed service levels",
  used: "Use",
  free: "Free space",
  busy: "Utilization",
  blocks: "Blocks read",
  packets: "Packets",
  rows: "Rows",
  merged: "Merged rows",
  lost: "Lost data",
};

export const DIMENSIONS: Record<string, string> = {
  op: "operation",
  client: "client",
  volume: "volume",
  project: "project",
  level: "service level",
  pool: "pool",
  group: "group",
  device: "device",
  class: "class of work",
  stage: "stage",
  cause: "cause",
  source: "source",
  part: "part",
  direction: "direction",
  latency: "latency",
  size: "size",
  offset: "position",
  quantile: "percentile",
};

export const dimensionName = (dimension: string): string => DIMENSIONS[dimension] ?? dimension;

/** The subject of the sentence: "Requests over NBD". */
export function subject(e: Pick<Expression, "layer" | "noun">): string {
  if (e.layer === "pool" && e.noun === "size") return "Size of pools";
  if (e.layer === "volume" && e.noun === "time") return "Request time of volumes";
  if (e.noun === "missed") return NOUNS.missed ?? e.noun;
  return `${NOUNS[e.noun] ?? e.noun} ${LAYERS[e.layer] ?? e.layer}`;
}

/** The whole sentence: "Requests over NBD, only client 10.0.0.7, by volume". */
export function sentence(e: Expression): string {
  const parts = [subject(e)];
  for (const b of filters(e)) {
    parts.push(`${b.operator === "is" ? "only" : "without"} ${dimensionName(b.dimension)} ${b.value}`);
  }
  const dimensions = breakdowns(e);
  if (dimensions.length > 0) parts.push(`by ${dimensions.map(dimensionName).join(" and ")}`);
  return parts.join(", ");
}

/** What a line is called: its labels' values. */
export function labelText(labels: Readonly<Record<string, string>>): string {
  const words = Object.entries(labels).map(([dimension, value]) => {
    if (dimension === "quantile") return value === "p999" ? "p99.9" : value;
    return value === "" ? "none" : value;
  });
  return words.join(" · ") || "all";
}
