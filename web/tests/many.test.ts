import { describe, expect, it } from "vitest";
import { Trouble } from "../src/lib/api";
import { forEach, planAll } from "../src/lib/many";

const plan = (object: string) => Promise.resolve({ action: "threshold.delete", object, changes: ["It is deleted."] });

describe("several at once", () => {
  it("have one plan, which names them when there are several, and ends where it gets long", async () => {
    expect((await planAll(["a"], plan)).changes).toEqual(["It is deleted."]);
    expect((await planAll(["a", "b"], plan)).changes).toEqual(["a: It is deleted.", "b: It is deleted."]);
    const { changes } = await planAll(
      Array.from({ length: 23 }, (_, index) => String(index)),
      plan,
    );
    expect([changes.length, changes.at(-1)]).toEqual([21, "The same for 3 more objects."]);
  });
  it("say how many failed, and are not done twice by a second try", async () => {
    const done: string[] = [];
    let isInUse = true;
    const one = (name: string): Promise<void> => {
      if (name === "b" && isInUse) return Promise.reject(new Trouble({ code: "conflict", status: 409, title: "Conflict", detail: "b is in use." }));
      done.push(name);
      return Promise.resolve();
    };
    const all = forEach(["a", "b", "c"], one, (count) => `${count} are deleted.`);
    await expect(all()).rejects.toThrow("1 of 3 objects failed. The first: b is in use.");
    isInUse = false;
    await all();
    expect(done).toEqual(["a", "c", "b"]);
  });
});
