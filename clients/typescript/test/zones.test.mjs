// Frontends in zones, behind proxies that can be cut: which of them gets a call.
import assert from "node:assert/strict";
import net from "node:net";
import { after, before, beforeEach, test } from "node:test";

import { Server, ServerCredentials, status } from "@grpc/grpc-js";

import * as duly from "../dist/index.js";
import { splitPeers } from "../dist/peers.js";

/** A Frontend that refuses each GetTask with its own name, behind a proxy. */
class Frontend {
  #server = new Server();
  #sockets = new Set();
  #proxy;
  #cut = false;
  refuses = status.NOT_FOUND;

  constructor(name) {
    this.name = name;
    const bytes = (each) => each;
    const codec = { requestSerialize: bytes, requestDeserialize: bytes, responseSerialize: bytes, responseDeserialize: bytes };
    const path = "/duly.v1.FrontendService/GetTask";
    this.#server.addService({ getTask: { path, requestStream: false, responseStream: false, ...codec } }, {
      getTask: (_, answer) => answer({ code: this.refuses, details: name }),
    });
  }

  async start() {
    const behind = await new Promise((resolve, reject) =>
      this.#server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => (error ? reject(error) : resolve(port))));
    this.#proxy = net.createServer((near) => {
      const far = net.connect(behind, "127.0.0.1");
      for (const [from, to] of [[near, far], [far, near]]) {
        this.#sockets.add(from);
        from.on("data", (data) => this.#cut || to.write(data)).on("error", () => {}).on("close", () => (this.#sockets.delete(from), to.destroy()));
      }
    });
    await new Promise((resolve) => this.#proxy.listen(0, "127.0.0.1", resolve));
    this.address = `127.0.0.1:${this.#proxy.address().port}`;
  }

  /** Lose what is sent, and tell nobody. */
  cut() {
    this.#cut = true;
  }

  heal() {
    if (this.#cut) for (const socket of this.#sockets) socket.destroy(); // bytes of them were lost
    this.#cut = false;
    this.refuses = status.NOT_FOUND;
  }

  stop() {
    this.#proxy.close();
    for (const socket of this.#sockets) socket.destroy();
    this.#server.forceShutdown();
  }
}

const [east, east2, west] = ["east", "east2", "west"].map((name) => new Frontend(name));
before(() => Promise.all([east, east2, west].map((each) => each.start())));
after(() => [east, east2, west].forEach((each) => each.stop()));
beforeEach(() => [east, east2, west].forEach((each) => each.heal()));

/** Which Frontend got the next call. */
const called = (client) => client.get("x").then(assert.fail, (error) => (error instanceof duly.TaskNotFoundError ? error.message : Promise.reject(error)));

/** Which Frontends got so many calls, in turn. */
async function callers(client, count) {
  const names = [];
  for (let call = 0; call < count; call++) names.push(await called(client));
  return names;
}

async function until(what, client, names) {
  const ends = Date.now() + 20_000;
  for (let found = ""; ; found = await called(client)) {
    if (names.includes(found)) return;
    assert.ok(Date.now() < ends, `${what}: the calls still go to ${found}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function using(address, zone, act) {
  const client = new duly.Client({ address, zone });
  try {
    await act(client);
  } finally {
    client.close();
  }
}

const zoned = () => `east=${east.address},west=${west.address},east=${east2.address}`;

test("Frontends of the own zone get the calls, in turn", () =>
  using(zoned(), "east", async (client) => {
    await until("both are connected", client, ["east"]);
    await until("both are connected", client, ["east2"]);

    const names = await callers(client, 20);

    assert.deepEqual([...new Set(names)].sort(), ["east", "east2"]);
    assert.ok(names.filter((name) => name === "east").length >= 5, names.join());
  }));

test("the zone of the environment is that of the client", async () => {
  process.env.DULY_RPC_ZONE = "west";
  try {
    await using(zoned(), undefined, async (client) => assert.deepEqual([...new Set(await callers(client, 10))], ["west"]));
  } finally {
    delete process.env.DULY_RPC_ZONE;
  }
});

for (const [how, harm] of [
  ["is cut off", (each) => each.cut()],
  ["cannot serve", (each) => (each.refuses = status.UNAVAILABLE)],
]) {
  test(`a zone that ${how} costs no call, and is used again once it is back`, () =>
    using(zoned(), "east", async (client) => {
      await until("the own zone", client, ["east", "east2"]);

      [east, east2].forEach(harm);
      const meanwhile = await callers(client, 5);
      [east, east2].forEach((each) => each.heal());

      assert.deepEqual([...new Set(meanwhile)], ["west"]);
      await until("the own zone is back", client, ["east", "east2"]);
    }));
}

test("a zone that is silent from the beginning costs no call", async () => {
  [east, east2].forEach((each) => each.cut());

  await using(zoned(), "east", async (client) => {
    assert.equal(await called(client), "west");
    [east, east2].forEach((each) => each.heal());
    await until("the own zone is back", client, ["east", "east2"]);
  });
});

for (const [why, zone] of [["no zone", ""], ["a zone without Frontends", "north"]]) {
  test(`all Frontends get the calls of a client with ${why}`, () =>
    using(zoned(), zone, async (client) => {
      for (const name of ["east", "east2", "west"]) await until("it is connected", client, [name]);
      assert.deepEqual([...new Set(await callers(client, 6))].sort(), ["east", "east2", "west"]);
    }));
}

test("lists of addresses mean what they mean in Python", () => {
  // PEERS: [[text, [[address, zone], ...] or null], ...]
  for (const [text, peers] of JSON.parse(process.env.PEERS)) {
    if (peers) assert.deepEqual(splitPeers(text).map(({ address, zone }) => [address, zone]), peers, text);
    else assert.throws(() => splitPeers(text), /is not an address/, text);
  }
});

test("a name that no zone can have, and a token in clear to one of several, are refused", () => {
  assert.throws(() => new duly.Client({ zone: "a b" }), /is not the name of a zone/);
  assert.throws(() => new duly.Client({ address: "east=127.0.0.1:1,west=10.0.0.1:1", token: "t" }), /in clear/);
});
