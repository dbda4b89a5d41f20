// The daemon under test: started on free ports, spoken to through its own command line, stopped whatever happens. Its disks are files under /var/tmp,
// which is no memory as /tmp may be: what is durable shall take its time.

import { spawn, execFile } from "node:child_process";
import { mkdtempSync, mkdirSync, openSync, rmSync, truncateSync, writeFileSync, readFileSync, closeSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
/** For a start, a command and an end; only a daemon that hangs takes so long, also while other tests use the processors. */
const PATIENCE_MS = 300_000;

export class Daemon {
  constructor(server) {
    this.server = server;
    this.directory = mkdtempSync(join(process.env.TMPDIR ?? "/var/tmp", "forebay-browser."));
    this.data = join(this.directory, "data");
    mkdirSync(this.data, { mode: 0o700 });
    this.disks = 0;
  }

  /** `serve`, or `demo` with a pool and some load. The ports stay the same over restarts. */
  async start(what = "serve") {
    const listen = this.addresses ?? { http: "127.0.0.1:0", nbd: "127.0.0.1:0", iscsi: ["127.0.0.1:0"] };
    const log = openSync(join(this.directory, "log"), "a");
    this.child = spawn(this.server, [what, "--data", this.data, "--listen", listen.http, "--nbd", listen.nbd, "--iscsi", listen.iscsi[0], "--shards", "2", "--memory", "256M"], { stdio: ["ignore", log, log] });
    closeSync(log);
    const exited = new Promise((_, reject) => this.child.once("exit", (code) => reject(new Error(`the daemon ended with ${code}:\n${this.log().slice(-3000)}`))));
    exited.catch(() => {});
    const ready = (async () => {
      for (;;) {
        try {
          if (this.log().includes(`ready, API`)) {
            this.addresses = JSON.parse(readFileSync(join(this.data, "addresses.json"), "utf8"));
            await this.command("version");
            const answer = await fetch(`http://${this.addresses.http}/api/v1/setup`);
            if (answer.ok) return;
          }
        } catch {
          // Not there yet.
        }
        await new Promise((done) => setTimeout(done, 100));
      }
    })();
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error(`the daemon is not ready after ${PATIENCE_MS / 1000} s:\n${this.log().slice(-3000)}`)), PATIENCE_MS).unref());
    await Promise.race([ready, exited, late]);
    this.url = `http://${this.addresses.http}`;
  }

  log() {
    return readFileSync(join(this.directory, "log"), "utf8");
  }

  get nbd() {
    const [host, port] = this.addresses.nbd.split(":");
    return { host, port: Number(port) };
  }

  /** A command of the owner's; what it prints. */
  async command(...words) {
    const { stdout } = await run(this.server, ["--data", this.data, ...words], { timeout: PATIENCE_MS, maxBuffer: 16 << 20 });
    return stdout;
  }

  async json(...words) {
    return JSON.parse(await this.command("--json", ...words));
  }

  async password(name, role, password) {
    const file = join(this.directory, `${name}.password`);
    writeFileSync(file, password, { mode: 0o600 });
    await this.command("user", "create", name, "--role", role, "--password-file", file);
  }

  /** A sparse file for a disk. */
  disk(bytes = 2 ** 30) {
    const path = join(this.directory, `disk${this.disks++}`);
    closeSync(openSync(path, "w"));
    truncateSync(path, bytes);
    return path;
  }

  signal(name) {
    this.child.kill(name);
  }

  async stop(signal = "SIGTERM") {
    if (!this.child || this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = new Promise((done) => this.child.once("exit", done));
    this.child.kill("SIGCONT");
    this.child.kill(signal);
    const timer = setTimeout(() => this.child.kill("SIGKILL"), PATIENCE_MS);
    await gone;
    clearTimeout(timer);
  }

  async end() {
    await this.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
