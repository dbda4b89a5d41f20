// What svelte-check and tsc do not see. The layout is prettier's.

import { defineConfig, globalIgnores } from "eslint/config";
import svelte from "eslint-plugin-svelte";
import ts from "typescript-eslint";
import config from "./svelte.config.js";

export default defineConfig(
  globalIgnores(["dist/", ".generated/", "public/"]),
  ts.configs.recommended,
  svelte.configs.recommended,
  {
    rules: {
      eqeqeq: ["error", "always", { null: "ignore" }],
      "no-console": "error",
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_", ignoreRestSiblings: true }],
      "@typescript-eslint/no-non-null-assertion": "off",
      "svelte/no-target-blank": "error",
      // Addresses are fragments of one page; no framework's router has to resolve them.
      "svelte/no-navigation-without-resolve": "off",
      // Maps and sets that do not change what is shown are plain on purpose: rings and series are drawn outside Svelte.
      "svelte/prefer-svelte-reactivity": "off",
      // `{" "}` keeps a space that the layout of the source would lose.
      "svelte/no-useless-mustaches": "off",
    },
  },
  {
    files: ["**/*.svelte", "**/*.svelte.ts"],
    languageOptions: { parserOptions: { parser: ts.parser, svelteConfig: config, extraFileExtensions: [".svelte"] } },
  },
  {
    // Programs of the build say what they do.
    files: ["docs/site.js"],
    rules: { "no-console": "off" },
  },
);
