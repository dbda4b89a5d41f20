// Doing something and telling how it went. Long work goes on behind the scenes; its end is told, too.

import { finished, type Schemas } from "./api";
import { tasks } from "./resources.svelte";
import { toasts } from "./toasts.svelte";
import { taskBegun } from "./words";

function isTask(answer: unknown): answer is Schemas["Task"] {
  return typeof answer === "object" && answer !== null && "cancellable" in answer && "state" in answer;
}

interface Refreshed {
  refresh: () => Promise<void>;
}

/** Says `done` when it is done; throws what the API says against it. A task is followed without keeping anybody waiting. */
export async function act<T>(doing: Promise<T>, done: string, refresh: readonly Refreshed[] = [], begun = ""): Promise<T> {
  const answer = await doing;
  const again = (): void => {
    for (const resource of refresh) void resource.refresh();
  };
  if (isTask(answer)) {
    void tasks.refresh();
    toasts.say(begun || taskBegun(answer), "info");
    finished(answer)
      .then((task) => {
        if (task.state === "succeeded") toasts.say(done);
      })
      .catch((error: unknown) => toasts.fail(error))
      .finally(() => {
        again();
        void tasks.refresh();
      });
  } else {
    toasts.say(done);
  }
  again();
  return answer;
}

/** The same where nobody waits for it: an error is told in a message. */
export function attempt<T>(doing: Promise<T>, done: string, refresh: readonly Refreshed[] = [], begun = ""): void {
  act(doing, done, refresh, begun).catch((error: unknown) => toasts.fail(error));
}
