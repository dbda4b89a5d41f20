import { describe, expect, it, vi } from "vitest";

// The browser's parts that the module takes are not needed for what is tested.
vi.mock("uplot", () => ({ default: class {} }));
vi.mock("../src/lib/theme.svelte", () => ({ colour: () => "", theme: { name: "light" } }));
const { fitsTime, increments, logRange, powers, tickText, timeSpace, valueRange } = await import("../src/lib/plot");

describe("axes", () => {
  it("an idle axis has an end that reads well", () => {
    expect(valueRange("ns", null)).toEqual([0, 1e6]);
    expect(valueRange("bytes-per-second", 0)).toEqual([0, 1e6]);
    expect(valueRange("per-second", 0)).toEqual([0, 10]);
    expect(valueRange("ns", 100)).toEqual([0, 108]);
  });
  it("whole units have whole steps", () => {
    expect(increments("ns")[0]).toBe(1);
    expect(increments("bytes").slice(0, 3)).toEqual([1, 2, 4]);
    expect(increments("per-second")[0]).toBe(0.01);
  });
  it("a logarithmic axis ends at powers of ten", () => {
    expect(logRange("ns", 3_000, 250_000)).toEqual([1_000, 1_000_000]);
    expect(logRange("ns", 1_000, 1_000)).toEqual([1_000, 10_000]);
    expect(logRange("ns", null, null)).toEqual([1_000, 1_000_000]);
    expect(powers(1_000, 1_000_000)).toEqual([1e3, 1e4, 1e5, 1e6]);
    expect(powers(1, 1e6)).toEqual([1, 100, 1e4, 1e6]);
  });
  it("a time that would be cut is not written", () => {
    expect(fitsTime("12:29:00", 400, 400)).toBe(true);
    expect(fitsTime("27 Nov, 12:29", 400, 400)).toBe(false);
    expect(timeSpace(3600)).toBeLessThan(timeSpace(7 * 86_400));
    expect(tickText(0, 86_400, 7 * 86_400)).not.toContain(":");
  });
});
