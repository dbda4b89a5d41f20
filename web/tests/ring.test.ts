import { describe, expect, it } from "vitest";
import { labelKey, Ring } from "../src/lib/ring";
import { gridOf, HeatRing, quantile, shade } from "../src/lib/heat";

describe("ring", () => {
  it("keeps the newest seconds and leaves gaps where none came", () => {
    const ring = new Ring(5);
    for (const second of [100, 101, 104]) ring.put(second, "a", {}, second);
    expect([99, 100, 101, 102, 103, 104, 105].map((second) => ring.get("a", second))).toEqual([null, 100, 101, null, null, 104, null]);
    ring.put(107, "a", {}, 107);
    expect([102, 103, 104, 105, 106, 107].map((second) => ring.get("a", second))).toEqual([null, null, 104, null, null, 107]);
  });
  it("takes what comes late, and not what is too late", () => {
    const ring = new Ring(5);
    ring.put(110, "a", {}, 1);
    ring.put(108, "a", {}, 2);
    ring.put(105, "a", {}, 3);
    expect([105, 108, 110].map((second) => ring.get("a", second))).toEqual([null, 2, 1]);
  });
  it("survives a jump of more than its length", () => {
    const ring = new Ring(4);
    for (let second = 1; second <= 4; second += 1) ring.put(second, "a", {}, second);
    ring.put(1000, "a", {}, 7);
    expect([997, 998, 999, 1000].map((second) => ring.get("a", second))).toEqual([null, null, null, 7]);
  });
  it("holds no more lines than it may; the one that is longest silent goes", () => {
    const ring = new Ring(10, 2);
    ring.put(1, "a", {}, 1);
    ring.put(2, "b", {}, 2);
    ring.put(3, "c", {}, 3);
    expect([...ring.lines.keys()]).toEqual(["b", "c"]);
  });
  it("copies into one array again and again", () => {
    const ring = new Ring(4);
    ring.put(10, "a", {}, 1);
    const into: (number | null)[] = [9, 9, 9, 9, 9, 9];
    ring.copy("a", 9, 11, into);
    expect(into).toEqual([null, 1, null]);
    ring.copy("nobody", 9, 10, into);
    expect(into).toEqual([null, null]);
  });
  it("has one key for the same labels", () => expect(labelKey({ b: "2", a: "1" })).toBe(labelKey({ a: "1", b: "2" })));
});

describe("heat map", () => {
  it("puts columns with other bounds on common rows", () => {
    const grid = gridOf([{ second: 1, bounds: [0, 10, 20], counts: [1, 2] }, undefined, { second: 3, bounds: [10, 20, 40], counts: [3, 4] }]);
    expect(grid.bounds).toEqual([0, 10, 20, 40]);
    expect([...grid.counts]).toEqual([1, 0, 0, 2, 0, 3, 0, 0, 4]);
    expect(grid.greatest).toBe(4);
  });
  it("is empty where nothing came", () => expect(gridOf([undefined, { second: 1, bounds: [], counts: [] }])).toMatchObject({ rows: 0, columns: 2 }));
  it("does not show an old second in the place of a new one", () => {
    const ring = new HeatRing(3);
    ring.put({ second: 5, bounds: [0, 1], counts: [1] });
    ring.put({ second: 8, bounds: [0, 1], counts: [2] });
    expect(ring.at(5)).toBeUndefined();
    expect(Array.from(ring.at(8)?.counts ?? [])).toEqual([2]);
  });
  it("takes what nobody can tell apart together, and loses nothing", () => {
    const grid = gridOf([{ second: 1, bounds: [0, 1, 2, 1024, 2048], counts: [5, 6, 0, 7] }], 1024);
    expect([grid.bounds, [...grid.counts]]).toEqual([
      [0, 1024, 2048],
      [11, 7],
    ]);
  });
  it("says what so many do not exceed", () => {
    const grid = gridOf([{ second: 1, bounds: [0, 10, 20, 40], counts: [50, 49, 1] }]);
    expect([500, 501, 990, 991, 1000].map((permille) => quantile(grid, permille))).toEqual([10, 20, 20, 40, 40]);
    expect(quantile(gridOf([]), 500)).toBeNull();
  });
  it("lets one among a million be seen", () => {
    expect(shade(0, 1e6)).toBe(0);
    expect(shade(1, 1e6)).toBeGreaterThan(0.1);
    expect(shade(1e6, 1e6)).toBe(1);
  });
});
