// Against a running Duly (DULY_ADDRESS) whose worker serves tests.fixtures.callbacks.
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

import * as duly from "../dist/index.js";

const client = new duly.Client();
after(() => client.close());

test("a task runs and its result comes back", async () => {
  const payload = { deep: [1, null, "é"] };

  const task = await client.schedule("test.echo", payload, { priority: "HIGH", collection: "ts", fairKey: "ada" });
  const ended = await client.wait(task, { timeoutMs: 30_000, throwOnFailure: true });

  assert.equal(task.created, true);
  assert.deepEqual(ended.result, payload);
  assert.deepEqual([ended.status, ended.priority, ended.collection, ended.fence], ["SUCCESS", "HIGH", "ts", 1]);
  assert.ok(ended.finishedAt instanceof Date && ended.finishedAt >= ended.createdAt);
});

test("a key writes one task, and names it later", async () => {
  const first = await client.schedule("test.echo", 7, { idempotencyKey: "ts-key" });
  const again = await client.schedule("test.echo", 7, { idempotencyKey: "ts-key" });

  const found = await client.get({ lambda: "test.echo", idempotencyKey: "ts-key" });

  assert.deepEqual([again.taskId, again.created, found.taskId], [first.taskId, false, first.taskId]);
  await assert.rejects(client.schedule("test.echo", 8, { idempotencyKey: "ts-key" }), duly.KeyConflictError);
  await assert.rejects(client.get({ lambda: "test.echo", idempotencyKey: "none" }), duly.TaskNotFoundError);
});

test("one task of a unique key is pending, and gets the latest payload", async () => {
  const unique = { key: "ts-unique", onConflict: "REPLACE" };
  const first = await client.schedule("test.echo", 1, { unique: "ts-unique", delayMs: 3_600_000 });
  const ignored = await client.schedule("test.echo", 2, { unique: "ts-unique" });
  const replaced = await client.schedule("test.echo", 3, { unique, delayMs: 3_600_000 });
  const debounce = { key: "ts-debounce", waitMs: 60_000, atMostMs: 120_000 };
  const debounced = await client.schedule("test.echo", 4, { debounce });

  await assert.rejects(client.schedule("test.echo", 5, { unique: { ...unique, onConflict: "REJECT" } }), (error) => {
    assert.ok(error instanceof duly.UniqueKeyTakenError);
    assert.equal(error.taskId, first.taskId);
    return true;
  });
  assert.deepEqual(ignored, { taskId: first.taskId, created: false, conflict: "IGNORE" });
  assert.deepEqual(replaced, { taskId: first.taskId, created: false, conflict: "REPLACE" });
  assert.equal((await client.get(first)).payload, 3);
  assert.ok((await client.get(debounced)).scheduledAt.getTime() > Date.now());
  await Promise.all([client.cancel(first), client.cancel(debounced)]);
});

test("a task for later is cancelled before it runs", async () => {
  const at = new Date(Date.now() + 3_600_000);
  const later = await client.schedule("test.echo", null, { at });
  const delayed = await client.schedule("test.echo", null, { delayMs: 3_600_000 });

  assert.equal((await client.get(later)).scheduledAt.getTime(), at.getTime());
  await assert.rejects(client.wait(later, { timeoutMs: 300 }), (error) => {
    assert.ok(error instanceof duly.WaitTimeoutError);
    assert.equal(error.task.status, "NEW");
    return true;
  });
  assert.equal(await client.cancel(later), "CANCELLED");
  assert.equal(await client.cancel(delayed.taskId), "CANCELLED");
  await assert.rejects(client.cancel(later), duly.TaskFinalError);
  await assert.rejects(client.wait(later, { throwOnFailure: true }), duly.TaskFailedError);
});

test("a task that was handed over is completed by its token", async () => {
  const folder = await mkdtemp(join(tmpdir(), "duly-"));
  const [failed, done] = ["failed", "done"].map((name) => join(folder, name));
  const tasks = await client.scheduleMany([failed, done].map((payload) => ({ lambda: "test.hands_over", payload })));

  const statuses = [
    await client.fail(await token(failed), "no parcel", { retry: false }),
    await client.complete(await token(done), { parcel: 3 }),
    await client.complete(await token(done), { parcel: 3 }),
  ];

  const ended = await Promise.all(tasks.map((each) => client.wait(each, { timeoutMs: 30_000 })));
  assert.deepEqual(statuses, ["FATAL_FAILURE", "SUCCESS", "SUCCESS"]);
  assert.equal(ended[0].failure.message, "no parcel");
  assert.deepEqual(ended[1].result, { parcel: 3 });
  await assert.rejects(client.complete(await token(failed)), duly.TaskFinalError);
  await assert.rejects(client.complete("A".repeat(64)), duly.TokenNotCurrentError);
  await assert.rejects(client.complete("secret"), duly.InvalidTaskError);
  await rm(folder, { recursive: true });
});

/** What the callback wrote into this file. */
async function token(file) {
  for (let tries = 0; tries < 600; tries++) {
    const text = await readFile(file, "utf8").catch(() => "");
    if (text.length === 64) return text;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("no token");
}

test("many tasks are written or refused each for itself", async () => {
  const good = await client.scheduleMany([1, 2, 3].map((payload) => ({ lambda: "test.echo", payload })));

  const results = await Promise.all(good.map(async (each) => (await client.wait(each, { timeoutMs: 30_000 })).result));
  assert.deepEqual(results, [1, 2, 3]);
  await assert.rejects(client.scheduleMany([{ lambda: "test.echo" }, { lambda: "no.such.lambda" }]), (error) => {
    assert.ok(error instanceof duly.ScheduleManyError);
    assert.ok(error.results[1] instanceof duly.UnknownLambdaError);
    assert.equal(error.results[0].created, true);
    return true;
  });
});

test("refusals are typed", async () => {
  await assert.rejects(client.schedule("no.such.lambda"), duly.UnknownLambdaError);
  await assert.rejects(client.schedule("test.echo", "x".repeat(300_000)), duly.PayloadTooLargeError);
  await assert.rejects(client.get(duly.newTaskId()), duly.TaskNotFoundError);
  await assert.rejects(client.get("no id"), duly.InvalidTaskError);
  await assert.rejects(client.schedule("test.echo", null, { resources: [{ name: "none" }] }), duly.UnknownResourceError);
  const tooFar = client.schedule("test.echo", null, { delayMs: 400 * 86_400_000 });
  await assert.rejects(tooFar, (error) => error instanceof duly.InvalidTaskError && error.field !== "");
});

test("sessions and expiry go through", async () => {
  const expiresAt = new Date(Date.now() + 60_000);
  const session = { key: "ts", order: "DUE", onFailure: "BLOCK" };
  const [first, second] = await client.scheduleMany([
    { lambda: "test.echo", payload: 1, session, expiresAt },
    { lambda: "test.echo", payload: 2, session: "ts-2", expiresAt },
  ]);

  const ended = await Promise.all([first, second].map((each) => client.wait(each, { timeoutMs: 30_000 })));

  assert.deepEqual(ended.map((each) => [each.status, each.result]), [["SUCCESS", 1], ["SUCCESS", 2]]);
  assert.equal(ended[0].expiresAt.getTime(), expiresAt.getTime());
});

test("attributes come back with their types, and belong to what a repeat is compared with", async () => {
  const attributes = { order: 17, large: 2n ** 63n - 1n, least: -(2n ** 63n), name: 'é "1"', vip: true, late: false };
  const task = await client.schedule("test.echo", 1, { idempotencyKey: "ts-attributes", attributes });

  const again = await client.schedule("test.echo", 1, { idempotencyKey: "ts-attributes", attributes });

  assert.deepEqual((await client.get(task)).attributes, attributes);
  assert.deepEqual([again.taskId, again.created], [task.taskId, false]);
  assert.deepEqual((await client.get(await client.schedule("test.echo", 1))).attributes, {});
  await assert.rejects(client.schedule("test.echo", 1, { idempotencyKey: "ts-attributes", attributes: { order: 18 } }), duly.KeyConflictError);
  for (const bad of [{ Order: 1 }, { a: "" }, { a: "x".repeat(257) }, Object.fromEntries([..."abcdefghi"].map((name) => [name, 1]))]) {
    await assert.rejects(client.schedule("test.echo", 1, { attributes: bad }), (error) => {
      return error instanceof duly.InvalidTaskError && error.field.startsWith("attributes");
    });
  }
});

test("bytes come back as bytes, and a failure with its kind", async () => {
  const bytes = await client.schedule("test.echo", new Uint8Array([0, 255]), { delayMs: 3_600_000 });
  const failing = await client.schedule("test.raise_it", { secret: "4111" });

  const failed = await client.wait(failing, { timeoutMs: 30_000 });

  assert.deepEqual([...(await client.get(bytes)).payload], [0, 255]);
  assert.deepEqual([failed.status, failed.failure.kind, failed.failures], ["FATAL_FAILURE", "ATTEMPTS_EXHAUSTED", 1]);
});

test("an abort ends a wait, and the task goes on", async () => {
  const task = await client.schedule("test.echo", "x", { delayMs: 3_600_000 });
  const controller = new AbortController();
  const waiting = client.wait(task, { signal: controller.signal });

  controller.abort(new Error("no longer needed"));

  await assert.rejects(waiting, /no longer needed/);
  assert.equal((await client.get(task)).status, "NEW");
});
