// Write the Zarr v3 arrays of zarrita.js for `zarrita.zip`; beside each array NAME stands NAME.npy: what zarrita itself reads.
//
//     npm install zarrita@0.7.5 @zarrita/storage
//     cp tests/data/make_zarrita.mjs . && node make_zarrita.mjs DIRECTORY && (cd DIRECTORY && zip -qr ../zarrita.zip .)
//
// Not for fsbridge's own code.

import * as fs from "node:fs";
import * as path from "node:path";
import * as storage from "@zarrita/storage";
import * as zarr from "zarrita";

// 64-bit integers are left out: zarrita 0.7.5 cannot write a BigInt as fill value.
const root = process.argv[2];
const TYPES = {
  int8: ["|i1", Int8Array], uint8: ["|u1", Uint8Array], int16: ["<i2", Int16Array], uint16: ["<u2", Uint16Array],
  int32: ["<i4", Int32Array], uint32: ["<u4", Uint32Array],
  float32: ["<f4", Float32Array], float64: ["<f8", Float64Array],
};

function npy(file, descr, shape, bytes) {
  let header = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape.join(", ")},), }`;
  header = header.padEnd(117) + "\n";
  const head = Buffer.from("\x93NUMPY\x01\x00\x76\x00", "latin1");
  fs.writeFileSync(file, Buffer.concat([head, Buffer.from(header, "latin1"), Buffer.from(bytes)]));
}

async function write(name, dtype, codecs, extra = {}) {
  const [descr, Type] = TYPES[dtype];
  const shape = [7, 5];
  const store = new storage.FileSystemStore(path.join(root, name));
  const array = await zarr.create(store, { shape, chunkShape: [3, 4], dtype, codecs, fillValue: 3, ...extra });
  const values = new Type(20);
  for (let i = 0; i < 20; i++) values[i] = i * 7 - (descr[1] === "u" ? 0 : 50) + (descr[1] === "f" ? 0.25 : 0);
  await zarr.set(array, [zarr.slice(0, 4), null], { data: values, shape: [4, 5], stride: [5, 1] });
  const read = await zarr.get(array);
  const flat = new Type(35); // zarrita returns a transposed array in its own memory order
  for (let i = 0; i < 35; i++) flat[i] = read.data[Math.floor(i / 5) * read.stride[0] + (i % 5) * read.stride[1]];
  npy(path.join(root, name + ".npy"), descr, shape, flat.buffer);
}

const bytes = (endian) => ({ name: "bytes", configuration: { endian } });
for (const dtype of Object.keys(TYPES)) await write(`none_${dtype}`, dtype, []);
await write("default", "int32", undefined);
await write("bytes", "int32", [bytes("little")]);
await write("big", "int32", [bytes("big")]);
await write("only_zstd", "int16", [{ name: "zstd", configuration: { level: 5 } }]);
await write("blosc", "float64", [bytes("little"), { name: "blosc", configuration: { cname: "lz4", clevel: 5, shuffle: "shuffle", typesize: 8, blocksize: 0 } }]);
await write("transpose", "uint16", [{ name: "transpose", configuration: { order: [1, 0] } }, bytes("little")]);
await write("transpose_f", "uint16", [{ name: "transpose", configuration: { order: "F" } }, bytes("little")]);
await write("dots", "uint8", [bytes("little")], { chunkSeparator: "." });
await write("null_fill", "int32", [], { fillValue: undefined });
