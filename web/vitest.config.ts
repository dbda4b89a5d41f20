import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// Components run as they do in a browser, where a test asks for a document.
export default defineConfig({ plugins: [svelte()], resolve: { conditions: ["browser"] }, test: { include: ["tests/**/*.test.ts"], environment: "node" } });
