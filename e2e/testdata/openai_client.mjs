// Uploads, attaches, waits and searches with OpenAI's client for Node. Arguments:
// folder of the client, address, key.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, base, key] = process.argv.slice(2);
const found = createRequire(folder + "/").resolve("openai");
const { default: OpenAI, toFile } = await import(pathToFileURL(found));
const client = new OpenAI({ baseURL: base + "/openai/v1", apiKey: key, maxRetries: 0 });

const file = await client.files.create({ file: await toFile(Buffer.from("# Otters\n\nOtters hold hands while asleep.\n"), "otter.md"), purpose: "assistants" });
assert.equal(await (await client.files.content(file.id)).text(), "# Otters\n\nOtters hold hands while asleep.\n");
const store = await client.vectorStores.create({ name: "animals", file_ids: [file.id] });
const polled = await client.vectorStores.files.poll(store.id, file.id, { pollIntervalMs: 100 });
assert.equal(polled.status, "completed");
const files = [];
for (let i = 0; i < 5; i++) files.push(await toFile(Buffer.from(`# Badger ${i}\n\nBadger ${i} digs.\n`), `badger${i}.md`));
const batch = await client.vectorStores.fileBatches.uploadAndPoll(store.id, { files });
assert.deepEqual([batch.status, batch.file_counts.completed], ["completed", 5]);
const ids = [];
for await (const f of client.vectorStores.files.list(store.id, { limit: 2 })) ids.push(f.id);
assert.equal(new Set(ids).size, 6);
const hits = await client.vectorStores.search(store.id, { query: "who holds hands?", max_num_results: 1 });
assert.equal(hits.data[0].file_id, file.id);
assert.match(hits.data[0].content[0].text, /hold hands/);
await assert.rejects(client.vectorStores.retrieve("vs_nothing"), OpenAI.NotFoundError);
assert.ok((await client.vectorStores.delete(store.id)).deleted);
