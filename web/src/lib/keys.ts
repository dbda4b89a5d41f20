// Keys that work everywhere. `g` and a letter switches the screen; `?` shows this list. Only Ctrl-K works while a field has the focus.

export interface Screen {
  id: string;
  title: string;
  key: string;
  icon: string;
}

export const SCREENS: readonly Screen[] = [
  { id: "dashboard", title: "Dashboard", key: "d", icon: "gauge" },
  { id: "pools", title: "Pools", key: "p", icon: "disk" },
  { id: "volumes", title: "Volumes", key: "v", icon: "volume" },
  { id: "hosts", title: "Hosts", key: "h", icon: "host" },
  { id: "levels", title: "Service levels", key: "l", icon: "level" },
  { id: "analytics", title: "Analytics", key: "a", icon: "chart" },
  { id: "capacity", title: "Capacity", key: "c", icon: "capacity" },
  { id: "protection", title: "Protection", key: "r", icon: "shield" },
  { id: "activity", title: "Activity", key: "t", icon: "pulse" },
  { id: "settings", title: "Settings", key: "s", icon: "gear" },
];

export interface Shortcut {
  keys: string;
  what: string;
}

export const SHORTCUTS: readonly Shortcut[] = [
  ...SCREENS.map(({ key, title }) => ({ keys: `g ${key}`, what: title })),
  { keys: "Ctrl K", what: "Search for a volume, host, pool or screen" },
  { keys: "?", what: "Show this list" },
  { keys: "/", what: "Find in the list on this screen" },
  { keys: "Esc", what: "Close a dialog or a menu" },
  { keys: "space", what: "Analytics: pause or resume" },
  { keys: "← →", what: "Analytics: back and forward in time" },
];

const TOGETHER_MS = 1200;

export function listen(go: (screen: string) => void, help: () => void, find: () => void): () => void {
  let prefix = 0;
  const handler = (event: KeyboardEvent): void => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      if (!document.querySelector("dialog[open]")) find();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "?") {
      event.preventDefault();
      help();
    } else if (event.key === "/") {
      const field = document.querySelector<HTMLInputElement>("main input[type=search]");
      if (!field) return;
      event.preventDefault();
      field.focus();
    } else if (event.key === "g") {
      prefix = event.timeStamp;
    } else if (event.timeStamp - prefix < TOGETHER_MS) {
      prefix = 0;
      const screen = SCREENS.find(({ key }) => key === event.key);
      if (!screen) return;
      event.preventDefault();
      go(screen.id);
    }
  };
  addEventListener("keydown", handler);
  return () => removeEventListener("keydown", handler);
}

export function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(input|textarea|select)$/i.test(target.tagName));
}
