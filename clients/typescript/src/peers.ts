/** Frontends that do the same: how a list of their addresses is read, and which of them gets the next call. */

import { Client as Connection, connectivityState, type ChannelCredentials, type ChannelOptions } from "@grpc/grpc-js";

import { DulyError } from "./errors.js";

/** One Frontend of a list. */
export interface Peer {
  address: string;
  /** Where it is; empty: the list does not say. */
  zone: string;
}

const LAST_PORT = 65_535;
const HOST_AND_PORT = /^(?:\[[^[\]\s/]+\]|[^[\]\s/:,=]+):([0-9]{1,5})$/;
const OTHER_FORMS = /^(?:unix|dns|ipv4|ipv6):.+$/;
const LISTED = /^(ipv[46]):(.+)$/;
const ZONE = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/;
const IN_ZONE = /^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})=(.+)$/;
const ANY_ADDRESS = /^[^/]+:[0-9]+$/;

/** The Frontends of `a:1,b:2`, or, with their zones, of `east=a:1,west=b:2`. Throws DulyError. */
export function splitPeers(text: string): Peer[] {
  const peers = split(text).map((each) => {
    const [, zone, address] = IN_ZONE.exec(each) ?? [];
    return { address: address ?? each, zone: zone ?? "" };
  });
  if (peers.every(({ address }) => isAddress(address))) return peers;
  throw new DulyError(
    `${JSON.stringify(text)} is not an address: write HOST:PORT, such as 127.0.0.1:7401; several with commas between them, each with its zone before it (ZONE=HOST:PORT) if you like`,
  );
}

/** Throws DulyError for what is no name of a zone; empty: none. */
export function checkZone(name: string): string {
  if (name === "" || ZONE.test(name)) return name;
  throw new DulyError(
    `${JSON.stringify(name)} is not the name of a zone: write letters, digits, dots, hyphens and underscores, at most 63`,
  );
}

/** Splits `a:1,b:2`, `unix:/a,unix:/b`, or `ipv4:a:1,b:2`. */
function split(text: string): string[] {
  const [, scheme, listed] = LISTED.exec(text) ?? [];
  if (listed !== undefined) return listed.split(",").map((each) => `${scheme}:${each.trim()}`);
  const found: string[] = [];
  for (const each of text.split(",")) {
    const before = found.at(-1);
    if (before !== undefined && withoutZone(before).startsWith("unix:") && !endsPath(each.trim())) {
      found[found.length - 1] = `${before},${each}`; // of a path
    } else {
      found.push(each.trim());
    }
  }
  return found;
}

function endsPath(next: string): boolean {
  const address = withoutZone(next);
  return address.startsWith("unix:") || ANY_ADDRESS.test(address);
}

function withoutZone(text: string): string {
  return IN_ZONE.exec(text)?.[2] ?? text;
}

function isAddress(address: string): boolean {
  const port = HOST_AND_PORT.exec(address)?.[1];
  return port === undefined ? OTHER_FORMS.test(address) : Number(port) > 0 && Number(port) <= LAST_PORT;
}

// As those of the Python client (wire/duly_wire/peers.py).
const ALONE: ChannelOptions = { "grpc.keepalive_time_ms": 30_000 };
const ONE_OF_SEVERAL: ChannelOptions = {
  "grpc.keepalive_time_ms": 300,
  "grpc.keepalive_timeout_ms": 800,
  "grpc.keepalive_permit_without_calls": 0,
  "grpc.use_local_subchannel_pool": 1, // else a new connection would be the old one, which still tries
};
const ROUND_ROBIN: ChannelOptions = {
  "grpc.service_config": '{"loadBalancingConfig": [{"round_robin": {}}]}',
  "grpc.dns_min_time_between_resolutions_ms": 500,
};

const FIRST_AVOIDED_MS = 500;
const LONGEST_AVOIDED_MS = 10_000;
/** A failure that comes so long after the end of the pause before it is a first one. */
const FORGOTTEN_MS = 30_000;
/** A try to connect that takes longer is begun again: what is sent to a Frontend that is cut off is repeated ever more seldom. */
const LONGEST_CONNECT_MS = 4_000;

const RANKS = new Map([
  [connectivityState.READY, 0],
  [connectivityState.IDLE, 1],
  [connectivityState.CONNECTING, 2],
]);
const WORST = 3;
/** Frontends of the client's own zone come first, if they are at least as good as this. */
const LAST_GOOD = 1;

/** One Frontend, and what is known of it. */
export class Place {
  #connection: Connection | undefined;
  #calls = 0;
  #connectingSince = 0;
  #failures = 0;
  #avoidedUntil = 0;

  constructor(
    readonly isFar: boolean,
    private readonly connect: () => Connection,
  ) {}

  /** Makes a call; `ended` is to be called once it is over. */
  use(): { connection: Connection; ended: () => void } {
    this.#calls++;
    return { connection: (this.#connection ??= this.connect()), ended: () => void this.#calls-- };
  }

  /** Avoids it for a while, longer after each failure in a row. */
  noteFailure(): void {
    const now = Date.now();
    this.#failures = now - this.#avoidedUntil < FORGOTTEN_MS ? this.#failures + 1 : 1;
    const pauseMs = Math.min(FIRST_AVOIDED_MS * 2 ** Math.min(this.#failures, 10), LONGEST_AVOIDED_MS);
    this.#avoidedUntil = now + pauseMs * (0.5 + Math.random() / 2);
  }

  /** How good it is for the next call, the least first. It begins to connect, so that another is ready when one fails. */
  rank(): number {
    const rank = (RANKS.get(this.#state()) ?? WORST) + (Date.now() < this.#avoidedUntil ? WORST : 0);
    const far = Number(this.isFar);
    return 100 * (rank > LAST_GOOD ? 2 : far) + 10 * rank + far;
  }

  close(): void {
    this.#connection?.close();
  }

  #state(): connectivityState {
    this.#connection ??= this.connect();
    const state = this.#connection.getChannel().getConnectivityState(true);
    const now = Date.now();
    if (state !== connectivityState.CONNECTING) {
      this.#connectingSince = 0;
    } else if (!this.#connectingSince) {
      this.#connectingSince = now;
    } else if (!this.#calls && now - this.#connectingSince > LONGEST_CONNECT_MS) {
      this.#connection.close();
      this.#connection = this.connect();
      this.#connectingSince = now;
      return this.#connection.getChannel().getConnectivityState(true);
    }
    return state;
  }
}

/** The Frontends of one client. */
export class Places {
  readonly #places: Place[];
  #turn = 0;

  /** `zone`: where the client is; its Frontends get the calls while they serve. Empty: all are alike. */
  constructor(peers: readonly Peer[], zone: string, credentials: ChannelCredentials, options: ChannelOptions) {
    const some = zone !== "" && peers.some((peer) => peer.zone === zone);
    this.#places = peers.map((peer) => {
      const isName = peer.address.startsWith("dns:");
      const all = {
        ...options,
        ...(isName || peers.length > 1 ? ONE_OF_SEVERAL : ALONE),
        ...(isName ? ROUND_ROBIN : {}),
      };
      return new Place(some && peer.zone !== zone, () => new Connection(peer.address, credentials, all));
    });
    for (let last = this.#places.length - 1; last > 0; last--) {
      const other = Math.floor(Math.random() * (last + 1)); // clients spread over the Frontends
      [this.#places[last], this.#places[other]] = [this.#places[other]!, this.#places[last]!];
    }
  }

  get count(): number {
    return this.#places.length;
  }

  /** The Frontend for the next call: in turn, of those that seem best. */
  choose(): Place {
    const count = this.#places.length;
    if (count === 1) return this.#places[0]!;
    this.#turn = (this.#turn + 1) % count;
    const inTurn = [...this.#places.slice(this.#turn), ...this.#places.slice(0, this.#turn)];
    const ranks = inTurn.map((place) => place.rank());
    return inTurn[ranks.indexOf(Math.min(...ranks))]!;
  }

  close(): void {
    for (const place of this.#places) place.close();
  }
}
