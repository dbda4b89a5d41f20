import { describe, expect, it } from "vitest";
import type { Schemas } from "../src/lib/api";
import { DAY, forecast, growth, HOUR, parts, ratio, reduction } from "../src/lib/capacity";

const GIB = 2 ** 30;
const pool = (name: string, status: Partial<Schemas["PoolStatus"]>): Schemas["Pool"] => ({ id: name, name, spec: {}, status, conditions: [] }) as unknown as Schemas["Pool"];
const volume = (of: string, status: Partial<Schemas["VolumeStatus"]>, format = "thin"): Schemas["Volume"] =>
  ({ id: of, name: `${of}/v`, spec: { format, size_bytes: 10 * GIB }, status: { pool: of, mapped_bytes: 0, ...status }, conditions: [] }) as unknown as Schemas["Volume"];

describe("parts", () => {
  const tank = pool("tank", { size_bytes: 100 * GIB, used_bytes: 40 * GIB, reserved_bytes: 10 * GIB, available_bytes: 50 * GIB });
  it("add up to the size", () => {
    const found = parts(
      [tank],
      [
        volume("tank", { stored_bytes: 12 * GIB }),
        volume("tank", { mapped_bytes: 4 * GIB, stored_bytes: 4 * GIB, used_bytes: 10 * GIB }, "eagerzeroedthick"),
        volume("other", { stored_bytes: GIB }),
      ],
    );
    expect(found.map(({ bytes }) => bytes / GIB)).toEqual([16, 6, 18, 10, 50]);
    expect(found.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(100 * GIB);
  });
  it("a clone is not counted twice, and no part is below zero", () => {
    expect(parts([tank], [volume("tank", { stored_bytes: 30 * GIB }), volume("tank", { stored_bytes: 30 * GIB, origin: "tank/v@a" })]).map(({ bytes }) => bytes / GIB)).toEqual([
      30, 0, 10, 10, 50,
    ]);
    expect(parts([tank], [volume("tank", { stored_bytes: 90 * GIB })]).every(({ bytes }) => bytes >= 0)).toBe(true);
  });
});

describe("reduction", () => {
  it("is of written to stored bytes", () => {
    expect(reduction([volume("tank", { mapped_bytes: 3 * GIB, stored_bytes: 2 * GIB })])).toBe(1.5);
    expect(reduction([])).toBeNull();
    expect(ratio(1.5)).toBe("1.50 : 1");
  });
});

describe("forecast", () => {
  const hours = Array.from({ length: 48 }, (_, index) => index * HOUR);
  it("follows a steady growth, and not a file that comes and goes", () => {
    const steady = hours.map((time) => 1000 + time * 2);
    expect(growth(hours, steady)).toBeCloseTo(2);
    expect(
      growth(
        hours,
        steady.map((value, index) => (index === 20 ? value + 1e9 : index === 30 ? null : value)),
      ),
    ).toBeCloseTo(2);
  });
  it("needs an hour", () => {
    expect(growth([0, 60, 120], [1, 2, 3])).toBeNull();
    expect(growth([], [])).toBeNull();
  });
  it("says when, or that it does not fill", () => {
    expect(forecast(2, 2 * 3 * DAY, 100)).toEqual({ kind: "full", at: 100 + 3 * DAY, days: 3 });
    expect(forecast(0, 10, 0).kind).toBe("none");
    expect(forecast(-1, 10, 0).kind).toBe("none");
    expect(forecast(null, 10, 0).kind).toBe("short");
    expect(forecast(1e-6, 1e9, 0).kind).toBe("far");
  });
});
