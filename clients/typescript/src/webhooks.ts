/** Verifies the requests of HTTP lambdas and webhooks: docs/http-lambdas.md describes the scheme. */

import { createHmac, timingSafeEqual } from "node:crypto";

import { DulyError } from "./errors.js";

/** An HTTP request is not from who it says, or is too old. Answer 401, and do nothing. */
export class SignatureError extends DulyError {}

/** A request that was verified: nobody changed what is said here. */
export interface Delivery {
  /** The same for each attempt of the task: use it as the idempotency key. */
  readonly taskId: string;
  readonly lambda: string;
  readonly attempt: number;
  /** Greater with each claim of the task: refuse a write whose fence is smaller than one that you have seen. */
  readonly fence: bigint;
  /** When Duly gives the request up. */
  readonly deadline: Date;
  readonly sentAt: Date;
  /** Of the key that verified it. */
  readonly keyId: string;
  /** Answer 202 without Retry-After, and complete the task with it later. Keep it out of logs. No signature covers it. */
  readonly completionToken: string;
}

/** Of Node's `http`, and of `fetch`. */
export type RequestHeaders = { get(name: string): string | null } | { readonly [name: string]: string | string[] | undefined };

const SIGNED = ["webhook-id", "webhook-timestamp", "duly-lambda", "duly-attempt", "duly-fence", "duly-deadline"] as const;
const LINE = /^[\x20-\x7e]+$/;
const MOST_SIGNATURES = 20;

/**
 * Return what a request says, if one of the keys signed it and it is not too old. Throws SignatureError.
 *
 * - `body`: its bytes as they arrived, before anything parses them.
 * - `keys`: texts that begin with `whsec_`, by id.
 * - `toleranceMs`: how far its time may be from this clock; default five minutes.
 */
export function verifyWebhook(
  headers: RequestHeaders,
  body: Uint8Array,
  keys: { readonly [keyId: string]: string },
  { toleranceMs = 300_000, now = Date.now() }: { toleranceMs?: number; now?: number } = {},
): Delivery {
  const [taskId, timestamp, lambda, attempt, fence, deadline] = SIGNED.map((name) => header(headers, name)) as [
    string, string, string, string, string, string,
  ];
  if (!/^[0-9]{1,12}$/.test(timestamp)) throw new SignatureError("webhook-timestamp must be seconds since 1970");
  const sentAt = new Date(Number(timestamp) * 1000);
  if (!(Math.abs(now - sentAt.getTime()) <= toleranceMs)) {
    throw new SignatureError("the time of the request is too far from this clock: it was replayed, or a clock is wrong");
  }
  if (!/^[0-9]{1,9}$/.test(attempt)) throw new SignatureError("duly-attempt must be a whole number");
  if (!/^[0-9]{1,19}$/.test(fence)) throw new SignatureError("duly-fence must be a whole number");
  const until = new Date(deadline);
  if (Number.isNaN(until.getTime())) throw new SignatureError("duly-deadline must be a time of RFC 3339");
  const lines = ["duly1", taskId, timestamp, lambda, attempt, fence, deadline].map((line) => `${line}\n`).join("");
  const keyId = verified(header(headers, "webhook-signature"), keys, Buffer.concat([Buffer.from(lines), body]));
  const completionToken = value(headers, "duly-completion-token") ?? "";
  return { taskId, lambda, attempt: Number(attempt), fence: BigInt(fence), deadline: until, sentAt, keyId, completionToken };
}

function value(headers: RequestHeaders, name: string): string | undefined {
  const found = typeof headers.get === "function" ? headers.get(name) : (headers as Record<string, unknown>)[name];
  return typeof found === "string" && found !== "" ? found : undefined;
}

function header(headers: RequestHeaders, name: string): string {
  const found = value(headers, name);
  if (found === undefined) throw new SignatureError(`the request has no header ${name}`);
  if (!LINE.test(found)) throw new SignatureError(`the header ${name} is not one line of ASCII`);
  return found;
}

function verified(signatures: string, keys: { readonly [keyId: string]: string }, content: Buffer): string {
  for (const word of signatures.split(" ").slice(0, MOST_SIGNATURES)) {
    const [, keyId, signature] = /^duly1,([A-Za-z0-9._-]{1,64}):(.*)$/.exec(word) ?? [];
    if (keyId === undefined || signature === undefined || !Object.hasOwn(keys, keyId)) continue;
    const expected = createHmac("sha256", keyBytes(keys[keyId]!)).update(content).digest();
    const found = Buffer.from(signature, "base64");
    if (found.length === expected.length && timingSafeEqual(found, expected)) return keyId;
    throw new SignatureError(`the signature with the key ${keyId} is wrong: the request was forged or changed`);
  }
  throw new SignatureError(`no signature with a key known here (${Object.keys(keys).join(", ") || "none"})`);
}

function keyBytes(text: string): Buffer {
  const found = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(text.trim());
  const bytes = Buffer.from(found?.[1] ?? "", "base64");
  if (bytes.length < 24 || bytes.length > 64) throw new DulyError("a signing key is whsec_ and the base64 of 24 to 64 bytes");
  return bytes;
}
