// Everything that the API can do, the browser offers: each operation of the document is called somewhere in src, or stands here with the reason why not.
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import document from "../../docs/reference/openapi.json";

/** Operations that no screen has, and why. */
const EXCEPTIONS: Readonly<Record<string, string>> = {
  MetricsShow: "Counters for Prometheus; Settings names the address.",
  SetupLink: "A new link is given out only while there is no user, and without a user no one is logged in to the browser.",
  SnapshotReceive: "Takes a stream of any length from a program, and goes on where it was interrupted. Protection shows interrupted ones.",
};
const EXCEPTIONS_MAX = 10;

const ROOT = new URL("../src/", import.meta.url);
const files = readdirSync(ROOT, { recursive: true, encoding: "utf8" }).filter((name) => /\.(svelte|ts)$/.test(name));
const texts = new Map(files.map((name) => [name, readFileSync(new URL(name, ROOT), "utf8").replace(/^\s*\/\/.*$/gm, "")]));
const source = [...texts.values()].join("\n");
const RESOURCES = "lib/resources.svelte.ts";
const resources = texts.get(RESOURCES) ?? "";
const screens = [...texts]
  .filter(([name]) => name.endsWith(".svelte"))
  .map(([, text]) => text)
  .join("\n");

interface Operation {
  id: string;
  method: string;
  path: string;
  /** What it answers with, or what its list has. */
  answer: string;
}

interface Described {
  operationId: string;
  responses: Record<string, { content?: Record<string, { schema?: { $ref?: string; properties?: { items?: { items?: { $ref?: string } } } } }> }>;
}

const METHODS: Readonly<Record<string, string>> = { get: "get|all", post: "post", patch: "patch", put: "put", delete: "remove" };

const operations: Operation[] = Object.entries(document.paths as Record<string, Record<string, unknown>>).flatMap(([path, methods]) =>
  Object.entries(methods)
    .filter(([method]) => method in METHODS)
    .map(([method, described]) => {
      const { operationId: id, responses } = described as Described;
      const schema = responses["200"]?.content?.["application/json"]?.schema;
      return { id, method, path, answer: schema?.$ref ?? schema?.properties?.items?.items?.$ref ?? "" };
    }),
);

const escape = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** `post("/api/v1/pools", …)`, also with a type or on lines of its own; or a list that a component shows. */
function isCalled({ method, path }: Operation): boolean {
  if (new RegExp(`\\b(?:${METHODS[method]})(?:<[^()]*>)?\\(\\s*"${escape(path)}"`).test(source)) return true;
  if (method !== "get") return false;
  const name = path.replace("/api/v1/", "");
  const resource = new RegExp(`export const (\\w+) = list<[^()]*>\\(\\s*"${escape(name)}"`).exec(resources)?.[1];
  return resource !== undefined && new RegExp(`\\b${resource}\\b`).test(screens);
}

/** Links, downloads, streams and sockets: the whole address, with `${…}` for what stands in braces. */
const addresses = source.replace(/\b(?:get|all|post|patch|put|remove|plan)(?:<[^()]*>)?\(\s*(?:"\w+",\s*)?"[^"]*"/g, "");
function isAddressed({ method, path }: Operation): boolean {
  if (method !== "get") return false;
  const pattern = escape(path).replace(/\\\{\w+\\\}/g, "\\$\\{[^{}]*\\}");
  return new RegExp(`["'\`}]${pattern}(?:["'\`]|\\?)`).test(addresses);
}

/** One object whose list the browser has already, with all that this answer has. */
function isInList(operation: Operation): boolean {
  if (operation.method !== "get" || operation.answer === "" || !/\/\{\w+\}$/.test(operation.path)) return false;
  const list = operations.find((one) => one.method === "get" && one.path === operation.path.replace(/\/\{\w+\}$/, ""));
  return list !== undefined && list.answer === operation.answer && (isCalled(list) || isAddressed(list));
}

const isOffered = (operation: Operation): boolean => isCalled(operation) || isAddressed(operation) || isInList(operation);

describe("the browser", () => {
  it("offers every operation of the API, but for few that have a reason", () => {
    expect(operations.length).toBeGreaterThan(100);
    const missing = operations.filter((operation) => !isOffered(operation) && !(operation.id in EXCEPTIONS));
    expect(missing.map(({ id, method, path }) => `${id}: ${method.toUpperCase()} ${path}`)).toEqual([]);
  });
  it("has no exception that is called, or that does not exist", () => {
    expect(Object.keys(EXCEPTIONS).length).toBeLessThanOrEqual(EXCEPTIONS_MAX);
    const stale = Object.keys(EXCEPTIONS).filter((id) => !operations.some((operation) => operation.id === id && !isOffered(operation)));
    expect(stale).toEqual([]);
  });
});
