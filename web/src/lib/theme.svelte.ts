// Light or dark: what the system says, unless somebody chose. Colours for canvases are read from the style sheet, so that there is one list of them.

type Choice = "system" | "light" | "dark";
const KEY = "forebay.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function stored(): Choice {
  const value = localStorage.getItem(KEY);
  return value === "light" || value === "dark" ? value : "system";
}

class Theme {
  choice = $state<Choice>(stored());
  private systemDark = $state(system.matches);

  constructor() {
    system.addEventListener("change", () => (this.systemDark = system.matches));
  }

  get name(): "light" | "dark" {
    if (this.choice !== "system") return this.choice;
    return this.systemDark ? "dark" : "light";
  }

  choose(choice: Choice): void {
    this.choice = choice;
    if (choice === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, choice);
    this.apply();
  }

  apply(): void {
    document.documentElement.dataset.theme = this.name;
  }
}

export const theme = new Theme();

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
