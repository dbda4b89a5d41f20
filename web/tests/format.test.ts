import { describe, expect, it } from "vitest";
import {
  bytes,
  byUnit,
  count,
  duration,
  durationArgument,
  etaSentence,
  every,
  latency,
  list,
  parseRate,
  parseSize,
  percent,
  rate,
  rateArgument,
  relative,
  sizeArgument,
} from "../src/lib/format";

describe("numbers", () => {
  it("keeps every digit of small counts and three of great ones", () => {
    expect([0, 7, 0.25, 2.5, 999, 9999].map(count)).toEqual(["0", "7", "0.25", "2.5", "999", "9\u202f999"]);
    expect([12_345, 999_960, 1_234_567, 2.5e9].map(count)).toEqual(["12.3 k", "1000 k", "1.23 M", "2.50 G"]);
    expect([null, undefined, Number.NaN].map(count)).toEqual(["–", "–", "–"]);
  });
  it("writes sizes in powers of 1024 and rates in powers of 1000", () => {
    expect([0, 512, 1024, 1536, 10 * 2 ** 30, 1.5 * 2 ** 40].map(bytes)).toEqual(["0 B", "512 B", "1 KiB", "1.5 KiB", "10 GiB", "1.5 TiB"]);
    expect([0, 999, 1000, 1_500_000, 2.5e9].map(rate)).toEqual(["0 B/s", "999 B/s", "1.00 kB/s", "1.50 MB/s", "2.50 GB/s"]);
  });
  it("does not jump to the next unit with four digits before it", () => {
    expect(bytes(1023.99 * 1024)).toBe("1 MiB");
    expect(latency(999_600)).toBe("1.00 ms");
  });
  it("writes times with the unit that fits", () => {
    expect([850, 12_300, 4_560_000, 1_200_000_000].map(latency)).toEqual(["850 ns", "12.3 µs", "4.56 ms", "1.20 s"]);
    expect([0, 42, 60, 75, 3600, 5400, 90_061].map(duration)).toEqual(["0 s", "42 s", "1 min", "1 min 15 s", "1 h", "1 h 30 min", "1 d 1 h"]);
    expect(relative(1_000_000, 1_000_000 + 300_000)).toBe("5 min ago");
    expect(relative(1_000_000 + 3 * 86_400_000, 1_000_000)).toBe("in 3 d");
  });
  it("knows the units that the API has", () => {
    expect(byUnit("per-second", 12)).toBe("12");
    expect(byUnit("ns", 2e6)).toBe("2.00 ms");
    expect(byUnit("thousandths", 455)).toBe("46 %");
    expect(byUnit("sixty-fourths", 32)).toBe("50 %");
    expect(byUnit("bytes-per-second", null)).toBe("–");
    expect(percent(7)).toBe("0.7 %");
  });
});

describe("sizes that people type", () => {
  it.each([
    ["100G", 100 * 2 ** 30],
    ["1.5 TiB", 1.5 * 2 ** 40],
    ["8k", 8192],
    ["4096", 4096],
    ["1,5m", 1.5 * 2 ** 20],
  ] as const)("%s", (text, value) => expect(parseSize(text)).toBe(value));
  it.each(["", "G", "-1G", "0", "12X", "1 2", "1e3"])("refuses %j", (text) => expect(parseSize(text)).toBeNull());
  it("come back as the command line takes them", () => {
    for (const text of ["50M", "1500M", "2G", "7"]) expect(rateArgument(parseRate(text) ?? 0)).toBe(text);
    expect(parseRate("1.5 GB/s")).toBe(1.5e9);
    for (const text of ["", "M", "-1M", "5MiB", "1T"]) expect(parseRate(text)).toBeNull();
    for (const text of ["100G", "8K", "1T", "1536M"]) expect(sizeArgument(parseSize(text) ?? 0)).toBe(text);
    expect(sizeArgument(4097)).toBe("4097");
    expect([0, 90, 3600, 604_800].map(durationArgument)).toEqual(["off", "90s", "1h", "7d"]);
  });
});

describe("sentences", () => {
  it("says a range where the end is not known well", () => {
    expect(etaSentence(null)).toBe("");
    expect(etaSentence({ seconds_low: 1, seconds_high: 3 })).toBe("done in a moment");
    expect(etaSentence({ seconds_low: 58, seconds_high: 60 })).toBe("done in 1 min");
    expect(etaSentence({ seconds_low: 60, seconds_high: 300 })).toBe("done in 1 min to 5 min");
  });
  it("says how often and whom", () => {
    expect([0, 3600, 7200, 86_400, 90].map(every)).toEqual(["never", "every hour", "every 2 hours", "every day", "every 1 min 30 s"]);
    expect([list([]), list(["a"]), list(["a", "b"]), list(["a", "b", "c"])]).toEqual(["", "a", "a and b", "a, b and c"]);
  });
});
