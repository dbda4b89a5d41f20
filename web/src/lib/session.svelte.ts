// Who is logged in, and what that one may do.

import { tick } from "svelte";
import { get, on, post, remove, setCsrf, Trouble, type Schemas } from "./api";
import { toasts } from "./toasts.svelte";

export type Role = Schemas["Access"];
const RANK: Record<Role, number> = { viewer: 0, operator: 1, admin: 2 };
const MAY: Record<Role, string> = { viewer: "view everything", operator: "change volumes, levels and hosts", admin: "change everything" };

/** That somebody logged in with this browser; the login itself is in a cookie that scripts cannot see. */
const KNOWN = "forebay.known";

class Session {
  state = $state<"asking" | "setup" | "out" | "in" | "unreachable">("asking");
  name = $state("");
  role = $state<Role>("viewer");
  /** Somebody was in, and is no more without having wanted that. */
  ended = $state(false);

  constructor() {
    on("unauthenticated", () => {
      if (this.state !== "in") return;
      localStorage.removeItem(KNOWN);
      this.ended = true;
      this.state = "out";
    });
  }

  async ask(): Promise<void> {
    try {
      // Who was never in here need not be refused to find that out.
      if (localStorage.getItem(KNOWN)) {
        this.enter(await get("/api/v1/login"));
        return;
      }
    } catch (error) {
      if (error instanceof Trouble && error.problem.code === "unreachable") {
        this.state = "unreachable";
        return;
      }
      localStorage.removeItem(KNOWN);
    }
    try {
      const { needed } = await get("/api/v1/setup");
      this.state = needed ? "setup" : "out";
    } catch {
      this.state = "unreachable";
    }
  }

  async login(name: string, password: string): Promise<void> {
    this.enter(await post("/api/v1/login", { body: { name, password } }));
  }

  async setup(secret: string, name: string, password: string): Promise<void> {
    this.enter(await post("/api/v1/setup", { body: { secret, name, password } }));
  }

  async logout(): Promise<void> {
    // The screens go first: what they still ask for would be refused, and look as if the login had ended by itself.
    this.state = "asking";
    await tick();
    try {
      await remove("/api/v1/login", {});
    } finally {
      this.leave();
    }
  }

  /** The login is over, and that is known. */
  leave(): void {
    toasts.clear();
    setCsrf("");
    localStorage.removeItem(KNOWN);
    this.state = "out";
  }

  may(role: Role): boolean {
    return RANK[this.role] >= RANK[role];
  }

  /** Why not; empty when it may. */
  refusal(role: Role): string {
    if (this.may(role)) return "";
    return `This needs the ${role} role. You are logged in as ${this.role} and may ${MAY[this.role]}.`;
  }

  private enter(signed: Schemas["Login"]): void {
    toasts.clear();
    setCsrf(signed.csrf ?? "");
    this.name = signed.user.name;
    this.role = signed.user.role;
    localStorage.setItem(KNOWN, "yes");
    this.ended = false;
    this.state = "in";
  }
}

export const session = new Session();
