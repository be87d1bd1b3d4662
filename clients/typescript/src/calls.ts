/** Calls of the Frontend: each has a deadline, is repeated while its outcome is unknown, and ends when the caller aborts. */

import { create, fromBinary, toBinary, type DescMethodUnary, type MessageInitShape, type MessageShape } from "@bufbuild/protobuf";
import { Metadata, credentials, status, type ServiceError } from "@grpc/grpc-js";

import {
  ClosedError,
  DulyError,
  InvalidTaskError,
  PermissionDeniedError,
  RequestError,
  TaskNotFoundError,
  UnauthenticatedError,
  UnavailableError,
  UnknownCellError,
} from "./errors.js";
import { warnOf } from "./partial_answers.js";
import { Places, checkZone, splitPeers, type Place } from "./peers.js";
import { readDetails, type StatusDetails } from "./status_details.js";

/** Where the Frontend is, and who calls. */
export interface Connecting {
  /**
   * HOST:PORT, or several with commas between them, each with its zone before it if you like: `east=a:7401,west=b:7401`.
   * Default: the variable DULY_ADDRESS, else 127.0.0.1:7401.
   */
  address?: string;
  /** Where this client is: Frontends of this zone get its calls while they serve. Default: the variable DULY_RPC_ZONE, else none. */
  zone?: string;
  /** PEM: the authorities that are trusted, and this client's own certificate. `{}`: TLS with Node's authorities. Default: no TLS. */
  tls?: { ca?: Uint8Array; cert?: Uint8Array; key?: Uint8Array };
  /** Shown with each call; a function is asked each time, so that it may read a file that changes. It has the call's `timeoutMs`. */
  token?: string | (() => string | Promise<string>);
  /** Send a token without TLS to another machine. */
  allowPlaintext?: boolean;
  /** Of a call with its repeats, in milliseconds. Default: 30,000. */
  timeoutMs?: number;
}

/** Of one call. */
export interface CallOptions {
  /** Ends the call: it rejects with the signal's reason. After `schedule` the outcome is then unknown. */
  signal?: AbortSignal | undefined;
  /** Of the call with its repeats, instead of the client's. */
  timeoutMs?: number | undefined;
}

const LONGEST_TRY_MS = 5_000;
/** The same while there are other Frontends to ask; twice as long after each try that was too short. */
const FIRST_TRY_OF_SEVERAL_MS = 2_000;
/** A try with less time says little about a Frontend that was late. */
const LEAST_TRY_MS = 500;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2_000;
const TOKEN = /^[\x21-\x7e]+$/;
const THIS_MACHINE = /^(localhost|127\.[0-9.]+|\[::1\]|unix:.*)(:\d+)?$/;

export class Caller {
  readonly address: string;
  readonly #places: Places;
  readonly #token: Connecting["token"];
  /** Of a call with its repeats. */
  readonly timeoutMs: number;
  #closed = false;

  /** Throws DulyError for an address without a port, for what is no name of a zone, and for a token that would be sent in clear. */
  constructor(connecting: Connecting) {
    this.address = connecting.address ?? process.env["DULY_ADDRESS"] ?? "127.0.0.1:7401";
    const peers = splitPeers(this.address);
    const zone = checkZone(connecting.zone ?? process.env["DULY_RPC_ZONE"] ?? "");
    const { tls, token } = connecting;
    if (token !== undefined && !tls && !connecting.allowPlaintext && !peers.every((peer) => THIS_MACHINE.test(peer.address))) {
      throw new DulyError(`a token would go to ${this.address} in clear: set tls, or allowPlaintext`);
    }
    this.#token = token;
    this.timeoutMs = connecting.timeoutMs ?? 30_000;
    this.#places = new Places(
      peers,
      zone,
      tls ? credentials.createSsl(buffer(tls.ca), buffer(tls.key), buffer(tls.cert)) : credentials.createInsecure(),
      {
        "grpc.max_receive_message_length": 16 * 1024 * 1024,
        "grpc.initial_reconnect_backoff_ms": 100,
        "grpc.max_reconnect_backoff_ms": 2_000,
        "grpc.enable_retries": 0,
      },
    );
  }

  /**
   * Make a call until its outcome is known, or time is up.
   *
   * `servedMs`: how long the Frontend may keep the call open by itself.
   */
  async call<M extends DescMethodUnary>(
    method: M,
    request: MessageInitShape<M["input"]>,
    options: CallOptions = {},
    servedMs = 0,
  ): Promise<MessageShape<M["output"]>> {
    const serialized = Buffer.from(toBinary(method.input, create(method.input, request)));
    const until = Date.now() + (options.timeoutMs ?? this.timeoutMs) + servedMs;
    let pauseMs = FIRST_PAUSE_MS;
    let tryMs = this.#places.count > 1 ? FIRST_TRY_OF_SEVERAL_MS : LONGEST_TRY_MS;
    for (let tries = 1; ; tries++) {
      if (this.#closed) throw new ClosedError("the client is closed");
      options.signal?.throwIfAborted();
      const token = await this.#nextToken(until, options.signal);
      if (this.#closed) throw new ClosedError("the client is closed");
      const askedAt = Date.now();
      const deadline = Math.min(until, askedAt + tryMs + servedMs);
      const place = this.#places.choose();
      const found = await this.#once(place, method, serialized, token, deadline, options.signal);
      if (!(found instanceof Refusal)) return found;
      if (found.speaksAgainst(deadline - askedAt)) place.noteFailure();
      const waitMs = found.pauseMs(tries < this.#places.count ? 0 : pauseMs); // the next Frontend is asked at once
      if (waitMs === undefined || Date.now() + waitMs >= until) throw found.toError(this.address);
      await sleep(waitMs, options.signal);
      if (tries >= this.#places.count) pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
      tryMs = Math.min(2 * tryMs, LONGEST_TRY_MS);
    }
  }

  close(): void {
    this.#closed = true;
    this.#places.close();
  }

  async #nextToken(until: number, signal: AbortSignal | undefined): Promise<string | undefined> {
    if (this.#token === undefined) return undefined;
    const token = typeof this.#token === "string" ? this.#token : await before(until, this.#token, signal);
    // grpc-js refuses it, too, but quotes it
    if (!TOKEN.test(token)) throw new DulyError("the token is empty, or has a space, a line break or a character that is not ASCII");
    signal?.throwIfAborted();
    return token;
  }

  async #once<M extends DescMethodUnary>(
    place: Place,
    method: M,
    request: Buffer,
    token: string | undefined,
    deadline: number,
    signal: AbortSignal | undefined,
  ): Promise<MessageShape<M["output"]> | Refusal> {
    const metadata = new Metadata();
    if (token !== undefined) metadata.set("authorization", `Bearer ${token}`);
    const { connection, ended } = place.use();
    return new Promise((resolve, reject) => {
      const call = connection.makeUnaryRequest(
        `/${method.parent.typeName}/${method.name}`,
        (bytes: Buffer) => bytes,
        (bytes: Buffer) => fromBinary(method.output, bytes) as MessageShape<M["output"]>,
        request,
        metadata,
        { deadline },
        (error, answer) => {
          ended();
          signal?.removeEventListener("abort", abort);
          if (signal?.aborted) reject(signal.reason);
          else if (error) resolve(new Refusal(error));
          else resolve(answer!);
        },
      );
      call.on("status", ({ metadata: trailing }) => warnOf(trailing));
      const abort = () => call.cancel();
      signal?.addEventListener("abort", abort, { once: true });
    });
  }
}

/** A call that did not succeed. */
class Refusal {
  readonly #details: StatusDetails;

  constructor(private readonly error: ServiceError) {
    this.#details = readDetails(error.metadata);
  }

  /** Whether others are better now; `tryMs`: how long this one had. */
  speaksAgainst(tryMs: number): boolean {
    const { code } = this.error;
    return code === status.UNAVAILABLE || (code === status.DEADLINE_EXCEEDED && tryMs >= LEAST_TRY_MS);
  }

  /** How long to wait before the same request is sent again; undefined: its outcome is known. */
  pauseMs(usualMs: number): number | undefined {
    const { retryDelayMs } = this.#details;
    if (retryDelayMs !== undefined) return retryDelayMs * (1 + Math.random());
    const unknown = [status.UNAVAILABLE, status.DEADLINE_EXCEEDED, status.CANCELLED].includes(this.error.code);
    return unknown ? usualMs * (0.5 + Math.random()) : undefined;
  }

  toError(address: string): DulyError {
    const { code, details } = this.error;
    const { field, isAnswer, resourceType, retryDelayMs } = this.#details;
    switch (code) {
      case status.INVALID_ARGUMENT:
        return new InvalidTaskError(!field || details.startsWith(`${field}: `) ? details : `${field}: ${details}`, field);
      case status.UNAUTHENTICATED:
        return new UnauthenticatedError(details);
      case status.PERMISSION_DENIED:
        return new PermissionDeniedError(details);
      case status.NOT_FOUND:
        return resourceType === "cell" ? new UnknownCellError(details) : new TaskNotFoundError(details);
      case status.DEADLINE_EXCEEDED:
        return new UnavailableError(`the Duly Frontend at ${address} did not answer in time`);
      case status.UNAVAILABLE:
      case status.CANCELLED:
        return new UnavailableError(
          isAnswer
            ? `the Duly Frontend at ${address} cannot serve now: ${details}`
            : `no Duly Frontend answers at ${address}: start one with \`duly up\`, or set address or DULY_ADDRESS (${details})`,
        );
      case status.UNIMPLEMENTED:
        return new RequestError(
          `what answers at ${address} is not a Duly Frontend, or one older than this client: ${details}`,
        );
      default:
        if (retryDelayMs !== undefined) {
          return new UnavailableError(`the Duly Frontend at ${address} cannot serve now: ${details}`);
        }
        return new RequestError(`the Duly Frontend at ${address} answered ${status[code]}: ${details}`);
    }
  }
}

/** Wait; rejects with the signal's reason when it aborts. */
export function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  });
}

/** What a token's function gives; rejects when time is up, or the signal aborts. */
async function before(until: number, token: () => string | Promise<string>, signal: AbortSignal | undefined): Promise<string> {
  const over = new AbortController();
  const abort = () => over.abort(signal!.reason);
  signal?.addEventListener("abort", abort, { once: true });
  const late = sleep(until - Date.now(), over.signal).then(() => {
    throw new UnavailableError("the function for the token gave none in time");
  });
  try {
    return await Promise.race([token(), late]);
  } finally {
    signal?.removeEventListener("abort", abort);
    over.abort();
    late.catch(() => undefined);
  }
}

function buffer(pem: Uint8Array | undefined): Buffer | null {
  return pem ? Buffer.from(pem) : null;
}
