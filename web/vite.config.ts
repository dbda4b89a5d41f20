import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// `npm run dev` shows the daemon at FOREBAY_URL, by default the one that `make run` starts. The page logs in like any other; the proxy only
// makes both one origin.
const daemon = process.env.FOREBAY_URL ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [svelte()],
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
