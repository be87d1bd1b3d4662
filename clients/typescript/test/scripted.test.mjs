// Against a server that a test scripts (tests/typescript): what is repeated, what is shown, and what is refused here.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as duly from "../dist/index.js";

const { ADDRESS, SILENT, CA_FILE } = process.env;
const tls = { ca: readFileSync(CA_FILE) };

async function using(connecting, act) {
  const client = new duly.Client({ address: ADDRESS, tls, ...connecting });
  try {
    return await act(client);
  } finally {
    client.close();
  }
}

for (const lambda of ["unavailable.twice", "overloaded.once", "cancelled.once"]) {
  test(`${lambda}: the same task is sent again`, () =>
    using({}, async (client) => {
      const { taskId } = await client.schedule(lambda, 1);

      assert.match(taskId, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    }));
}

test("what stays unknown is told with the id that the task may have", () =>
  using({ timeoutMs: 400 }, (client) =>
    assert.rejects(client.schedule("unavailable.always", 1), (error) => {
      assert.ok(error instanceof duly.UnavailableError);
      assert.match(error.message, /cannot serve now: the store is away/);
      assert.equal(error.taskId.length, 36);
      return true;
    })));

test("of many tasks each is told what became of it, though a call failed", () =>
  using({ timeoutMs: 4_000 }, (client) => {
    const payload = new Uint8Array(3_500_000); // a call for each
    const tasks = ["good.before", "unavailable.always.again", "invalid.too", "good.after"].map((lambda) => ({ lambda, payload }));
    return assert.rejects(client.scheduleMany(tasks), (error) => {
      assert.ok(error instanceof duly.ScheduleManyError);
      const [before, unknown, refused, after] = error.results;
      assert.deepEqual([before.created, after.created], [true, true]);
      assert.ok(unknown instanceof duly.UnavailableError && refused instanceof duly.InvalidTaskError);
      assert.equal(unknown.taskId.length, 36);
      return true;
    });
  }));

test("tasks of a cell that is away are sent again, and the others are not", () =>
  using({ timeoutMs: 10_000 }, async (client) => {
    const tasks = ["cell.serves", "cell.away.once"].map((lambda) => ({ lambda, payload: 1 }));

    const written = await client.scheduleMany(tasks);

    assert.deepEqual(written.map((each) => each.created), [true, true]);
  }));

test("tasks that were written stay so if sending the others again is refused", () =>
  using({ timeoutMs: 10_000 }, (client) => {
    const tasks = ["cell.writes", "cell.away.refused"].map((lambda) => ({ lambda, payload: 1 }));
    return assert.rejects(client.scheduleMany(tasks), (error) => {
      assert.ok(error instanceof duly.ScheduleManyError);
      const [written, unknown] = error.results;
      assert.equal(written.created, true);
      assert.ok(unknown instanceof duly.UnavailableError); // its first call may have written it
      return true;
    });
  }));

test("a task of a cell that stays away is told with the id that it may have", () =>
  using({ timeoutMs: 600 }, (client) =>
    assert.rejects(client.schedule("cell.away.always", 1), (error) => {
      assert.ok(error instanceof duly.UnavailableError);
      assert.match(error.message, /cell b/);
      assert.equal(error.taskId.length, 36);
      return true;
    })));

test("a list that lacks cells is complete otherwise, and the program is warned", async () => {
  const warnings = [];
  const keep = (warning) => warnings.push(warning);
  process.on("warning", keep);
  try {
    await using({}, async (client) => {
      const listed = [];
      for await (const task of client.list({ statuses: ["SUCCESS"] })) listed.push([task.taskId, task.cell]);
      assert.deepEqual(listed, [["first", "a"], ["next", "a"]]);
    });
    await new Promise((resolve) => setImmediate(resolve));
  } finally {
    process.off("warning", keep);
  }
  assert.equal(warnings.length, 2); // one for each page
  assert.ok(warnings.every((each) => each instanceof duly.PartialAnswerWarning));
  assert.deepEqual(warnings[0].cells, ["b", "c"]);
  assert.equal(warnings[0].message, "not shown: cells b and c, which do not answer");
});

test("a list of one cell warns of nothing, and one of no cell is refused", async () => {
  const warnings = [];
  const keep = (warning) => warnings.push(warning);
  process.on("warning", keep);
  try {
    await using({}, async (client) => {
      for await (const task of client.list({ cell: "a" })) assert.equal(task.cell, "a");
      await assert.rejects(client.list({ cell: "c" }).next(), duly.UnknownCellError);
      await assert.rejects(client.list({ statuses: ["DONE"] }).next(), duly.InvalidTaskError);
    });
    await new Promise((resolve) => setImmediate(resolve));
  } finally {
    process.off("warning", keep);
  }
  assert.deepEqual(warnings, []);
});

test("a refusal names its field, and is not repeated", () =>
  using({}, (client) =>
    assert.rejects(client.schedule("invalid", 1), (error) => {
      assert.ok(error instanceof duly.InvalidTaskError);
      assert.deepEqual([error.field, error.message], ["tasks[0].lambda", "tasks[0].lambda: it is wrong"]);
      return true;
    })));

test("a token goes with each call, and a function is asked for it each time", () => {
  let asked = 0;
  return using({ token: async () => `t${++asked}` }, async (client) => {
    const refused = [];
    for (let call = 0; call < 2; call++) refused.push(await client.schedule("show.token", 1).catch((error) => error));

    assert.ok(refused.every((error) => error instanceof duly.PermissionDeniedError));
    assert.deepEqual(refused.map((error) => error.message), ["Bearer t1", "Bearer t2"]);
  });
});

test("a server of an unknown authority is not believed", () =>
  using({ tls: {}, timeoutMs: 500 }, (client) =>
    assert.rejects(client.schedule("show.token", 1), duly.UnavailableError)));

test("an abort ends a call", () =>
  using({}, async (client) => {
    const controller = new AbortController();
    const call = client.schedule("silent", 1, { signal: controller.signal });
    setTimeout(() => controller.abort(), 50);

    await assert.rejects(call, { name: "AbortError" });
    await assert.rejects(client.schedule("silent", 1, { signal: AbortSignal.abort() }), { name: "AbortError" });
  }));

test("an abort while the token is fetched sends nothing", async () => {
  const controller = new AbortController();
  const token = async () => (controller.abort(), "t");
  await using({ token }, (client) =>
    assert.rejects(client.schedule("aborted", 1, { signal: controller.signal }), { name: "AbortError" }));
});

test("a function that gives no token has no more time than its call, and ends with it", () =>
  using({ token: () => new Promise(() => {}), timeoutMs: 100 }, async (client) => {
    await assert.rejects(client.get("x"), (error) => error instanceof duly.UnavailableError && /token/.test(error.message));
    const controller = new AbortController();
    const call = client.get("x", { signal: controller.signal, timeoutMs: 60_000 });
    setTimeout(() => controller.abort(), 50);
    await assert.rejects(call, { name: "AbortError" });
  }));

test("a token that cannot be sent is refused unquoted", () =>
  using({ token: "s3cret\n" }, (client) =>
    assert.rejects(client.get("x"), (error) => {
      assert.ok(error instanceof duly.DulyError);
      assert.doesNotMatch(error.message, /s3cret/);
      return true;
    })));

test("a wait ends, though nobody answers", () =>
  using({ address: SILENT, timeoutMs: 60_000 }, async (client) => {
    const waits = [client.wait("x", { timeoutMs: 10 }), client.wait({ lambda: "x", idempotencyKey: "k" }, { timeoutMs: 10 })];
    const ends = Promise.allSettled(waits).then((each) => each.map(({ reason }) => reason.name));

    const found = await Promise.race([ends, new Promise((resolve) => setTimeout(resolve, 20_000, "too late").unref())]);

    assert.deepEqual(found, ["UnavailableError", "UnavailableError"]);
  }));

test("nobody there is told with what to do", () =>
  using({ address: SILENT, timeoutMs: 300 }, (client) =>
    assert.rejects(client.get("x"), (error) => {
      assert.ok(error instanceof duly.UnavailableError);
      assert.match(error.message, /start one with `duly up`/);
      return true;
    })));

test("a closed client says so", async () => {
  const client = new duly.Client({ address: ADDRESS, tls });
  client.close();

  await assert.rejects(client.get("x"), duly.ClosedError);
});

for (const [name, payload] of [
  ["NaN", { x: NaN }],
  ["Map", new Map()],
  ["Float64Array", { x: new Float64Array(1) }],
  ["undefined", [undefined]],
  ["bigint", 1n],
  ["function", { x() {} }],
]) {
  test(`JSON cannot carry ${name}`, () =>
    using({}, (client) => assert.rejects(client.schedule("echo", payload), duly.EncodingError)));
}

test("arguments that exclude each other, and wrong ones, are refused here", () =>
  using({}, async (client) => {
    for (const options of [
      { at: new Date(), delayMs: 1 },
      { idempotencyKey: "k", taskId: duly.newTaskId() },
      { at: new Date(NaN) },
      { delayMs: NaN },
      { priority: "HIGHEST" },
      { session: { key: "k", order: "BACKWARDS" } },
      { attributes: { a: 1.5 } },
      { attributes: { a: 2 ** 53 } },
      { attributes: { a: 2n ** 63n } },
      { attributes: { a: null } },
      { attributes: { a: { b: 1 } } },
    ]) {
      await assert.rejects(client.schedule("echo", 1, options), duly.InvalidTaskError);
    }
    assert.throws(() => new duly.Client({ address: "http://duly:7401" }), duly.DulyError);
    assert.throws(() => new duly.Client({ address: "duly.example.org:7401", token: "t" }), /in clear/);
  }));

test("domains, versions and labels make the name of a queue", () =>
  using({}, async (client) => {
    const names = [];
    for (const options of [{ domain: "lab" }, { lambdaVersion: "7" }, { domain: "lab", lambdaVersion: "7" }, { requires: ["gpu"] }, { domain: "lab", requires: ["region=eu", "gpu", "gpu"] }]) {
      names.push((await client.schedule("show.lambda", 1, options).catch((error) => error)).message);
    }

    assert.deepEqual(names, ["show.lambda@~lab", "show.lambda@7", "show.lambda@7~lab", "show.lambda@:gpu", "show.lambda@~lab:gpu,region=eu"]);
  }));
