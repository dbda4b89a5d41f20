// Where a click on a line of a graph can lead: the same statistic for only that one, by something else; other statistics of the same thing.

import { by, dimensionName, filters, only, parse, write, type Expression } from "./expression";

export interface Path {
  text: string;
  /** The graph to add. */
  expression: string;
}

/** What a statistic breaks down by, from the catalogue: `nbd.ops` -> op, client, volume … */
export type Dimensions = (layer: string, noun: string) => readonly string[];

const PROTOCOLS: readonly (readonly [string, string])[] = [
  ["nbd", "NBD"],
  ["iscsi", "iSCSI"],
];

/** A dimension that names somebody: what else is known of that one is worth a look. */
const WHO: readonly string[] = ["volume", "client", "project", "level"];

export function paths(expression: Expression, labels: Readonly<Record<string, string>>, dimensions: Dimensions): Path[] {
  const found: Path[] = [];
  const add = (text: string, e: Expression): void => {
    const written = write(e);
    if (!found.some((path) => path.expression === written)) found.push({ text, expression: written });
  };
  const known = Object.entries(labels).filter(([dimension]) => dimension !== "quantile");
  if (known.length === 0) return found;
  let narrowed = by(expression, []);
  for (const [dimension, value] of known) narrowed = only(narrowed, dimension, value);
  const name = known.map(([, value]) => value).join(" · ");
  const taken = new Set([...known.map(([dimension]) => dimension), ...filters(expression).map((b) => b.dimension)]);
  const own = dimensions(expression.layer, expression.noun);
  const isProtocol = PROTOCOLS.some(([layer]) => layer === expression.layer);
  const further = (): void => {
    for (const dimension of own) if (!taken.has(dimension)) add(`${name}, by ${dimensionName(dimension)}`, by(narrowed, [dimension]));
  };
  // Below a protocol nobody knows clients: then the way to them comes first.
  if (isProtocol) further();
  const who = known.filter(([dimension]) => WHO.includes(dimension));
  if (who.length > 0) {
    const filtered = (layer: string, n: string, more: readonly string[]): Expression => {
      let e: Expression = { layer, noun: n, brackets: [] };
      for (const [dimension, value] of who) e = only(e, dimension, value);
      for (const b of filters(expression)) if (WHO.includes(b.dimension) && b.operator === "is") e = only(e, b.dimension, b.value);
      return by(e, more);
    };
    const hasClient = who.some(([dimension]) => dimension === "client");
    if (!isProtocol) for (const [layer, title] of PROTOCOLS) add(`Clients of ${name} over ${title}`, filtered(layer, "ops", ["client"]));
    for (const [layer, title] of PROTOCOLS) {
      if (isProtocol && layer !== expression.layer) continue;
      const over = isProtocol ? "" : ` over ${title}`;
      add(`Latency of ${name}${over}, as a heat map`, filtered(layer, "ops", ["latency"]));
    }
    if (isProtocol) add(`Request sizes of ${name}, as a heat map`, filtered(expression.layer, "ops", ["size"]));
    if (isProtocol) add(`Positions of requests on the volume, as a heat map`, filtered(expression.layer, "ops", ["offset"]));
    if (!hasClient) {
      add(`Request time of ${name}, by stage`, filtered("volume", "time", ["stage"]));
      add(`p99 latency of ${name}, as its service level measures it`, filtered("qos", "p99", []));
    }
  }
  if (!isProtocol) further();
  return found;
}

/** Expressions that cannot be read are left out. */
export function readable(expressions: readonly string[]): string[] {
  return expressions.filter((text) => parse(text) !== null);
}
