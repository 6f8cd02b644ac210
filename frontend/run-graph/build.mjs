// Builds the element into one file of the package, with the licences of what it contains:
// `make frontend`, or `node build.mjs FOLDER`.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, transform } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const folder = process.argv[2] ?? here("../../src/nerve/web/static");
const parts = ["@dagrejs/dagre", "@dagrejs/graphlib"].map((name) => {
  const { version, license } = JSON.parse(readFileSync(here(`node_modules/${name}/package.json`)));
  return { name, version, license, text: readFileSync(here(`node_modules/${name}/LICENSE`), "utf8").trim() };
});
const contents = parts.map(({ name, version, license }) => `${name} ${version} (${license})`).join(", ");
const minifiedStyles = {
  name: "minified-styles",
  setup: ({ onLoad }) =>
    onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const { code } = await transform(readFileSync(path, "utf8"), { loader: "css", minify: true, target: "chrome123" });
      return { contents: code, loader: "text" };
    }),
};

await build({
  entryPoints: [here("src/run-graph.js")],
  outfile: join(folder, "run-graph.js"),
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  plugins: [minifiedStyles],
  banner: { js: `/* <run-graph>, built from frontend/run-graph; contains ${contents}: see run-graph.LICENSE */` },
  logLevel: "warning",
});
const licences = parts.map(({ name, version, text }) => `\n-- ${name} ${version} --\n\n${text}\n`);
writeFileSync(join(folder, "run-graph.LICENSE"), `run-graph.js contains code of these packages.\n${licences.join("")}`);
