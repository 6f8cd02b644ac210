// Unpacks the Chromium of the npm package into this folder: a program, and the libraries it needs. Keeps axe-core,
// which checks that pages can be used by everyone.
import { execFileSync } from "node:child_process";
import { copyFileSync, createReadStream, createWriteStream, rmSync } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";

const unpack = (from, to, mode) =>
  pipeline(
    createReadStream(`node_modules/@sparticuz/chromium/bin/${from}`),
    createBrotliDecompress(),
    createWriteStream(to, { mode }),
  );

await unpack("chromium.br", "chromium", 0o755);
await unpack("al2023.tar.br", "lib.tar", 0o644);
execFileSync("tar", ["-xf", "lib.tar"]);
rmSync("lib.tar");
copyFileSync("node_modules/axe-core/axe.min.js", "axe.min.js");
rmSync("node_modules", { recursive: true });
