// Where one is: `#/screen/part?key=value`. The address says all that a screen shows, so that it can be kept and sent.

export interface Route {
  screen: string;
  parts: string[];
  query: Record<string, string>;
}

export function parseHash(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [screen = "", ...parts] = path
    .split("/")
    .filter((part) => part !== "")
    .map(decodeURIComponent);
  return { screen: screen || "dashboard", parts, query: Object.fromEntries(new URLSearchParams(search)) };
}

export function href(screen: string, parts: readonly string[] = [], query: Record<string, string | undefined> = {}): string {
  const path = [screen, ...parts.map(encodeURIComponent)].join("/");
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== "") search.set(name, value);
  const text = search.toString();
  return text === "" ? `#/${path}` : `#/${path}?${text}`;
}

class Router {
  route = $state.raw<Route>(parseHash(location.hash));
  constructor() {
    addEventListener("hashchange", () => {
      this.route = parseHash(location.hash);
    });
  }
  go(to: string): void {
    location.hash = to;
  }
  /** The same place in history, with another address. */
  replace(to: string): void {
    if (location.hash === to) return;
    history.replaceState(null, "", to);
    this.route = parseHash(to);
  }
}

export const router = new Router();
