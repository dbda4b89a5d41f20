// The same for several objects, one after the other. What failed is said once, with how many; what is done is not done again by a second try.

import { Trouble, troubleOf, type Problem, type Schemas } from "./api";
import { plural } from "./format";
import { toasts } from "./toasts.svelte";

interface Refreshed {
  refresh: () => Promise<void>;
}

/** Does it for each; `said` gets how many succeeded. The returned function may be called again for those that failed. */
export function forEach<T>(items: readonly T[], doing: (item: T) => Promise<unknown>, said: (done: number) => string, refresh: readonly Refreshed[] = []): () => Promise<void> {
  const done = new Set<T>();
  return async () => {
    const failed: Problem[] = [];
    const before = done.size;
    for (const item of items) {
      if (done.has(item)) continue;
      try {
        await doing(item);
        done.add(item);
      } catch (error) {
        failed.push(troubleOf(error));
      }
    }
    if (done.size > before) toasts.say(said(done.size - before));
    for (const resource of refresh) void resource.refresh();
    const [first] = failed;
    if (!first) return;
    throw new Trouble(items.length === 1 ? first : { ...first, detail: `${failed.length} of ${plural(items.length, "object")} failed. The first: ${first.detail}` });
  };
}

/** What all of them together would change. */
async function plansOf<T>(items: readonly T[], plan: (item: T) => Promise<Schemas["Plan"]>): Promise<Schemas["Plan"]> {
  const plans: Schemas["Plan"][] = [];
  for (const item of items) plans.push(await plan(item));
  return {
    action: plans[0]?.action ?? "",
    object: "",
    changes: plans.flatMap(({ object, changes }) => (items.length === 1 ? changes : changes.map((change) => `${object}: ${change}`))),
  };
}

/** As many objects are asked what would change; for more, what would change is the same. */
const PLANNED_MAX = 20;

/** What would change for all of them. */
export async function planAll<T>(items: readonly T[], one: (item: T) => Promise<Schemas["Plan"]>): Promise<Schemas["Plan"]> {
  const asked = await plansOf(items.slice(0, PLANNED_MAX), one);
  const more = items.length - PLANNED_MAX;
  return more > 0 ? { ...asked, changes: [...asked.changes, `The same for ${plural(more, "more object")}.`] } : asked;
}
