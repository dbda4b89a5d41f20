import { svelte } from "@sveltejs/vite-plugin-svelte";
import { readdirSync, readFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

// `npm run dev` shows the daemon at FOREBAY_URL, by default the one that `make run` starts. The page logs in like any other; the proxy only
// makes both one origin.
const daemon = process.env.FOREBAY_URL ?? "http://127.0.0.1:8080";

const PERMISSIVE = /^(MIT|ISC|0BSD|BSD-[23]-Clause|Apache-2\.0)$/;

/** The licences of whatever of other people's is in the bundle, in one file beside it; no licence, or one that asks for more than its text, fails the build. */
function licences(): Plugin {
  return {
    name: "licences",
    generateBundle(_, bundle) {
      const modules = Object.values(bundle).flatMap((chunk) => (chunk.type === "chunk" ? chunk.moduleIds : []));
      const names = new Set(modules.map((id) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(id)?.[1]).filter((name) => name !== undefined));
      const texts = [...names].sort().map((name) => {
        const directory = `node_modules/${name}`;
        const { license } = JSON.parse(readFileSync(`${directory}/package.json`, "utf8")) as { license?: string };
        const file = readdirSync(directory).find((entry) => /^licen[cs]e/i.test(entry));
        if (!file || !license || !PERMISSIVE.test(license)) throw new Error(`${name}: licence ${license ?? "unknown"}`);
        return `${name}: ${license}\n\n${readFileSync(`${directory}/${file}`, "utf8").trim()}\n`;
      });
      this.emitFile({ type: "asset", fileName: "licences.txt", source: texts.join("\n----\n\n") });
    },
  };
}

export default defineConfig({
  plugins: [svelte(), licences()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 700,
  },
  server: {
    host: "127.0.0.1",
    proxy: {
      "/api": {
        target: daemon,
        ws: true,
        // The daemon asks of pages that they are its own.
        headers: { origin: daemon, host: new URL(daemon).host },
      },
    },
  },
});
