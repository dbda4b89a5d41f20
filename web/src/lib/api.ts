// The only way from the interface to the appliance: its public API, with the types that its OpenAPI document says.
// Errors are thrown as `Trouble`, which has the problem document; no answer at all is `Trouble` with the code `unreachable`.

import type { components, paths as Paths } from "$api";

export type Schemas = components["schemas"];
type Method = "get" | "post" | "patch" | "delete";

type PathsOf<M extends Method> = { [P in keyof Paths as Paths[P] extends { [K in M]: unknown } ? P : never]: Paths[P] };
type Operation<M extends Method, P extends keyof PathsOf<M>> = P extends keyof Paths ? (M extends keyof Paths[P] ? Paths[P][M] : never) : never;

type Json<R> = R extends { content: { "application/json": infer T } } ? T : never;
type Answers<O> = O extends { responses: infer R } ? { [S in keyof R as S extends 200 | 201 | 202 ? S : never]: Json<R[S]> } : never;
/** What comes back when it was no dry run. */
type Result<A> = Exclude<A[keyof A], Schemas["Plan"]>;
type PathParameters<O> = O extends { parameters: { path: infer T } } ? { path: T } : { path?: undefined };
type Query<O> = O extends { parameters: { query?: infer T } } ? { query?: T } : unknown;
type Body<O> = O extends { requestBody: { content: { "application/json": infer T } } }
  ? { body: T }
  : O extends { requestBody?: { content: { "application/json": infer T } } }
    ? { body?: T }
    : { body?: undefined };
type Options<O> = PathParameters<O> & Query<O> & Body<O> & { ifMatch?: string; signal?: AbortSignal; patienceMs?: number };

export type Problem = Omit<Schemas["Problem"], "code" | "type"> & { code: Schemas["Problem"]["code"] | "unreachable" };

export class Trouble extends Error {
  readonly problem: Problem;
  constructor(problem: Problem) {
    super(problem.detail);
    this.problem = problem;
  }
}

export function troubleOf(error: unknown): Problem {
  if (error instanceof Trouble) return error.problem;
  const detail = error instanceof Error ? error.message : String(error);
  return { code: "internal", detail, status: 0, title: "Error", remedy: "Reload the page." };
}

/** What the session says about itself; changes send it back. */
let csrf = "";
export const setCsrf = (token: string): void => void (csrf = token);

type Listener = () => void;
const listeners: Record<"unauthenticated" | "unreachable" | "answered", Set<Listener>> = {
  unauthenticated: new Set(),
  unreachable: new Set(),
  answered: new Set(),
};
export function on(what: keyof typeof listeners, listener: Listener): () => void {
  listeners[what].add(listener);
  return () => listeners[what].delete(listener);
}
function tell(what: keyof typeof listeners): void {
  for (const listener of listeners[what]) listener();
}

const PATIENCE_MS = 15_000;

interface Loose {
  path?: unknown;
  query?: unknown;
  body?: unknown;
  ifMatch?: string;
  signal?: AbortSignal;
  /** How long the answer may take, where the appliance itself waits for something. */
  patienceMs?: number;
}

/** The address of an operation, with its names as one segment each. */
export function address(path: string, parameters: unknown, query: unknown): string {
  const values = (parameters ?? {}) as Record<string, unknown>;
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(values[name])));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries((query ?? {}) as Record<string, unknown>)) {
    if (value !== undefined && value !== null && value !== false) search.set(name, String(value));
  }
  const text = search.toString();
  return text === "" ? filled : `${filled}?${text}`;
}

async function send(method: Method, path: string, options: Loose): Promise<unknown> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "get" && csrf) headers["X-CSRF-Token"] = csrf;
  if (options.ifMatch) headers["If-Match"] = options.ifMatch;
  const patience = AbortSignal.timeout((options.patienceMs ?? PATIENCE_MS) + waitOf(options.query));
  const signal = options.signal ? AbortSignal.any([options.signal, patience]) : patience;
  let response: Response;
  try {
    response = await fetch(address(path, options.path, options.query), {
      method: method.toUpperCase(),
      headers,
      ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
      signal,
      credentials: "same-origin",
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    tell("unreachable");
    throw new Trouble({
      code: "unreachable",
      status: 0,
      title: "No answer",
      detail: "The appliance does not answer.",
      remedy: "Check that it runs and that the network works. This page retries automatically.",
    });
  }
  const type = response.headers.get("content-type") ?? "";
  const answer: unknown = type.includes("json") ? await response.json() : await response.text();
  if (response.ok) {
    tell("answered");
    return answer;
  }
  if (response.status === 502 || response.status === 504) tell("unreachable");
  else tell("answered");
  const problem: Problem = isProblem(answer)
    ? answer
    : { code: "internal", status: response.status, title: response.statusText, detail: `The appliance answered ${response.status} ${response.statusText}.` };
  if (response.status === 401 && path !== "/api/v1/login") tell("unauthenticated");
  throw new Trouble(problem);
}

function isProblem(answer: unknown): answer is Problem {
  return typeof answer === "object" && answer !== null && "detail" in answer && "code" in answer;
}

/** A request that waits on purpose may take so much longer. */
function waitOf(query: unknown): number {
  const seconds = (query as { wait_seconds?: unknown } | undefined)?.wait_seconds;
  return typeof seconds === "number" ? seconds * 1000 : 0;
}

export function get<P extends keyof PathsOf<"get"> & string>(path: P, options?: Options<Operation<"get", P>>): Promise<Result<Answers<Operation<"get", P>>>> {
  return send("get", path, (options ?? {}) as Loose) as Promise<Result<Answers<Operation<"get", P>>>>;
}
export function post<P extends keyof PathsOf<"post"> & string>(path: P, options: Options<Operation<"post", P>>): Promise<Result<Answers<Operation<"post", P>>>> {
  return send("post", path, options as Loose) as Promise<Result<Answers<Operation<"post", P>>>>;
}
export function patch<P extends keyof PathsOf<"patch"> & string>(path: P, options: Options<Operation<"patch", P>>): Promise<Result<Answers<Operation<"patch", P>>>> {
  return send("patch", path, options as Loose) as Promise<Result<Answers<Operation<"patch", P>>>>;
}
export function remove<P extends keyof PathsOf<"delete"> & string>(path: P, options: Options<Operation<"delete", P>>): Promise<Result<Answers<Operation<"delete", P>>>> {
  return send("delete", path, options as Loose) as Promise<Result<Answers<Operation<"delete", P>>>>;
}

/** What a change would do, without doing it. */
export async function plan<M extends "post" | "patch" | "delete", P extends keyof PathsOf<M> & string>(
  method: M,
  path: P,
  options: Options<Operation<M, P>>,
): Promise<Schemas["Plan"]> {
  const loose = options as Loose;
  return (await send(method, path, { ...loose, query: { ...(loose.query as object | undefined), dry_run: true } })) as Schemas["Plan"];
}

interface Page<T> {
  items: T[];
  next_cursor?: string | null;
}

const PAGES_MAX = 10;

/** All objects of a list, a page of a thousand at a time; more than ten thousand are too many for a screen. */
export async function all<T>(path: string, query: Record<string, unknown> = {}, signal?: AbortSignal): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | null | undefined;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const answer = (await send("get", path, { query: { limit: 1000, ...query, cursor }, ...(signal ? { signal } : {}) })) as Page<T>;
    items.push(...answer.items);
    cursor = answer.next_cursor;
    if (!cursor) break;
  }
  return items;
}

/** Waits for a task; says how it goes on the way. */
export async function finished(task: Schemas["Task"], progress: (task: Schemas["Task"]) => void = () => {}): Promise<Schemas["Task"]> {
  let current = task;
  while (current.state === "queued" || current.state === "running") {
    progress(current);
    current = await get("/api/v1/tasks/{task}", { path: { task: current.id }, query: { wait_seconds: 1 } });
  }
  progress(current);
  if (current.state === "failed" && current.error) throw new Trouble(current.error);
  return current;
}
