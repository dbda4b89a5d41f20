import { describe, expect, it } from "vitest";
import { keepArgument, keepDraft, keepMistake, keepOf, keepSentence } from "../src/lib/keep";

describe("which scheduled snapshots are kept", () => {
  it("is read into fields and back", () => {
    const draft = keepDraft({ hourly: 24, daily: 7 });
    expect(draft).toEqual({ last: "", hourly: "24", daily: "7", weekly: "", monthly: "" });
    expect(keepOf(draft)).toEqual({ last: 0, hourly: 24, daily: 7, weekly: 0, monthly: 0 });
  });
  it("is the usual number where there is no schedule", () => {
    expect(keepDraft({ last: 0, hourly: 0 }).last).toBe("24");
    expect(keepDraft(undefined).last).toBe("24");
  });
  it("names the field that cannot be read", () => {
    const draft = keepDraft({ last: 24 });
    expect(keepMistake(draft)).toBe("");
    expect(keepMistake({ ...draft, last: "1001" })).toBe("Newest: enter a number up to 1000, or leave it empty.");
    expect(keepMistake({ ...draft, daily: "256" })).toBe("Daily: enter a number up to 255, or leave it empty.");
    expect(keepMistake({ ...draft, weekly: "-1" })).toMatch(/^Weekly/);
    expect(keepMistake({ ...draft, last: "0" })).toBe("Enter at least one number.");
  });
  it("is written as the command line takes it", () => {
    expect(keepArgument({ last: 24 })).toBe("24");
    expect(keepArgument({ last: 8, hourly: 24, weekly: 4 })).toBe("last=8,hourly=24,weekly=4");
    expect(keepArgument({ daily: 7 })).toBe("daily=7");
    expect(keepArgument(undefined)).toBe("0");
  });
  it("is said in a sentence", () => {
    expect(keepSentence({ last: 24 })).toBe("Kept: the newest 24. The schedule deletes its other snapshots.");
    expect(keepSentence({ last: 1, hourly: 24, daily: 7, monthly: 1 })).toBe(
      "Kept: the newest, and the newest of each of the last 24 hours, 7 days and 1 month (UTC). The schedule deletes its other snapshots.",
    );
    expect(keepSentence({})).toBe("");
  });
});
