import { describe, expect, it } from "vitest";
import { exportCsv } from "../src/lib/exporting";
import type { Graph } from "../src/lib/graph.svelte";

function graph(label: string, value: number | null): Graph {
  const one = { expression: "nbd.ops[client]", unit: "per second", heat: false, lines: [{ label }], table: () => [{ at: 100, values: [value] }] };
  return one as unknown as Graph;
}

function row(label: string, value: number | null): string {
  return exportCsv([graph(label, value)]).slice("time,expression,line,value,unit\n".length);
}

describe("a table for spreadsheets", () => {
  it("has the moment, the line and the value", () => {
    expect(row("127.0.0.1", 1.5)).toBe("1970-01-01T00:01:40.000Z,nbd.ops[client],127.0.0.1,1.5,per second\n");
    expect(row("127.0.0.1", null)).toContain(",127.0.0.1,,");
    expect(row('a,"b"', 1)).toContain(',"a,""b""",1,');
  });
  it("has no formulas", () => {
    for (const formula of ["=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1"]) expect(row(formula, 1)).toContain(`,'${formula},1,`);
    expect(row("\r=1", 1)).toContain(`,"'\r=1",1,`);
    expect(row("a=b", -1)).toContain(",a=b,-1,");
  });
});
