import { describe, expect, it } from "vitest";
import type { Schemas } from "../src/lib/api";
import { limitExample, limitText, limitWrong, parseLimit, thresholdCommand, unitOf, whenText } from "../src/lib/thresholds";

const threshold = (spec: Schemas["ThresholdSpec"], unit: string): Schemas["Threshold"] => ({
  id: "1",
  name: "slow",
  spec,
  status: { created_unix_ms: 1, changed_unix_ms: 1, unit, crossed: false },
});

describe("limits", () => {
  it("are taken as the command line takes them", () => {
    for (const [text, unit, value] of [
      ["500", "per-second", 500],
      ["0", "volumes", 0],
      ["10ms", "ns", 1e7],
      ["1.5 s", "ns", 1.5e9],
      ["50M", "bytes-per-second", 5e7],
      ["100GiB", "bytes", 107_374_182_400],
      ["90%", "thousandths", 900],
      ["50 %", "ns-per-second", 5e8],
    ] as const) {
      expect(parseLimit(text, unit), `${text} ${unit}`).toBe(value);
    }
    for (const [text, unit] of [
      ["10%", "bytes"],
      ["100", "bytes"],
      ["50ms", "per-second"],
      ["50", "ns"],
      ["-1", "rows"],
      ["", "ns"],
      ["1.2.3", "rows"],
    ] as const)
      expect(parseLimit(text, unit), `${text} ${unit}`).toBeNull();
    expect(limitWrong("10", "ns")).toBe("Enter a limit like 10ms.");
    expect(limitWrong("", "ns")).toBe("");
  });
  it("are written so that they can be read again", () => {
    for (const unit of ["ns", "bytes", "bytes-per-second", "thousandths", "ns-per-second", "per-second", "rows"]) {
      expect(limitText(parseLimit(limitExample(unit), unit) ?? -1, unit)).toBe(limitExample(unit));
      for (const value of [0, 1, 12_345, 1.5e9]) expect(parseLimit(limitText(value, unit), unit), `${value} ${unit}`).toBeCloseTo(value, 3);
    }
    expect(limitText(1.5e6, "ns")).toBe("1.5ms");
  });
});

describe("thresholds", () => {
  const spec: Schemas["ThresholdSpec"] = { expression: "disk.latency[device]", above: 5e7, over_seconds: 300, severity: "warning" };
  it("say when they raise their alert", () => {
    expect(whenText(threshold(spec, "ns"))).toBe("above 50.0 ms over 5m");
    expect(whenText(threshold({ expression: "pool.free", below: 2 ** 40 }, "bytes"))).toBe("below 1 TiB over 1m");
  });
  it("have the unit of their statistic", () => {
    const statistic = { name: "disk.latency", kind: "spread", unit: "ns", dimensions: [], spreads: [], sentence: "" } as Schemas["Statistic"];
    expect(unitOf(" disk.latency[device]", [statistic])).toBe("ns");
    expect(unitOf("disk.late", [statistic])).toBeUndefined();
  });
  it("show the command that does the same, and none where there is none", () => {
    expect(thresholdCommand("slow", spec, "ns")).toBe("forebay threshold create slow 'disk.latency[device]' --above 50ms --over 5m --severity warning");
    const before = threshold(spec, "ns");
    expect(thresholdCommand("slower", { ...spec, above: 1e9 }, "ns", before)).toBe(
      "forebay threshold rename slow slower && forebay threshold set slower --above 1s --over 5m --severity warning",
    );
    expect(thresholdCommand("slow", { ...spec, expression: "disk.latency" }, "ns", before)).toBe("");
  });
});
