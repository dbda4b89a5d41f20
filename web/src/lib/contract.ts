// Operations that the interface uses and whose shapes are written down here until the OpenAPI document has them.

export interface Statistic {
  name: string;
  kind: "counter" | "gauge" | "spread";
  unit: string;
  dimensions: string[];
  sentence: string;
}

export interface Answer {
  expression: string;
  kind: "counter" | "gauge" | "spread";
  unit: string;
  from_unix_s: number;
  to_unix_s: number;
  step_seconds: number;
  lines?: { labels: Record<string, string>; mean: number | null; greatest: number | null; values: (number | null)[] }[];
  others?: { lines: number; mean: number | null; values: (number | null)[] } | null;
  total?: { mean: number | null; values: (number | null)[] } | null;
  heatmap?: { dimension: string; unit: string; bounds: number[]; columns: number[][] } | null;
}

export interface WorksheetGraph {
  expression: string;
  title?: string | null;
  limit?: number | null;
}

export interface WorksheetSpec {
  graphs: WorksheetGraph[];
  seconds?: number | null;
  from_unix_s?: number | null;
  to_unix_s?: number | null;
  pinned?: boolean;
}

export interface Worksheet {
  id: string;
  name: string;
  spec: WorksheetSpec;
  status?: { created_unix_ms?: number; changed_unix_ms?: number };
}

interface Op<Path, Query, Body, Answered> {
  parameters: { path: Path; query?: Query };
  requestBody: { content: { "application/json": Body } };
  responses: { 200: { content: { "application/json": Answered } } };
}
interface Bare<Query, Answered> {
  parameters: { query?: Query };
  responses: { 200: { content: { "application/json": Answered } } };
}
interface With<Body, Answered> {
  requestBody: { content: { "application/json": Body } };
  responses: { 200: { content: { "application/json": Answered } } };
}
interface Named<Path, Query, Answered> {
  parameters: { path: Path; query?: Query };
  responses: { 200: { content: { "application/json": Answered } } };
}

export interface ContractPaths {
  "/api/v1/statistics": { get: Bare<never, { items: Statistic[] }> };
  "/api/v1/statistics/query": {
    get: Bare<{ expression: string; from?: number; to?: number; step?: number; limit?: number }, Answer>;
  };
  "/api/v1/worksheets": { post: With<{ name: string; spec: WorksheetSpec }, Worksheet> };
  "/api/v1/worksheets/{worksheet}": {
    get: Named<{ worksheet: string }, never, Worksheet>;
    patch: Op<{ worksheet: string }, never, { name?: string; spec?: WorksheetSpec }, Worksheet>;
    delete: Named<{ worksheet: string }, never, unknown>;
  };
}
