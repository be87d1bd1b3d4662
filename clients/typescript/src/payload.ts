/** Payloads and results: between values and bytes. */

import { DecodingError, EncodingError } from "./errors.js";
import { Encoding } from "./gen/duly/v1/task_pb.js";

/** What JSON has a word for. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json | undefined };

/** Bytes go as they are, everything else as JSON. */
export type Payload = Json | Uint8Array;

/** Bytes, and how they are to be read. */
export interface Encoded {
  data: Uint8Array;
  encoding: Encoding;
}

/** Throws EncodingError for what JSON would change without a word: NaN, Map, Set, a function, undefined in a list. */
export function encode(payload: Payload): Encoded {
  if (payload instanceof Uint8Array) return { data: payload, encoding: Encoding.RAW };
  if (payload === null || payload === undefined) return { data: new Uint8Array(), encoding: Encoding.JSON };
  let text: string;
  try {
    text = JSON.stringify(payload, refuse);
  } catch (error) {
    if (error instanceof EncodingError) throw error;
    throw new EncodingError(`JSON cannot carry the payload: ${(error as Error).message}`);
  }
  return { data: new TextEncoder().encode(text), encoding: Encoding.JSON };
}

/** Throws DecodingError for what is encrypted, and for what is no JSON. */
export function decode({ data, encoding }: Encoded): Payload {
  if (encoding === Encoding.RAW) return data;
  if (encoding === Encoding.ENCRYPTED) throw new DecodingError("encrypted: this client has no keys");
  if (encoding === Encoding.ATTACHMENT) throw new DecodingError("an attachment: this client cannot fetch any");
  if (data.length === 0) return null;
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(data)) as Json;
  } catch {
    throw new DecodingError("not JSON"); // the engine's own words quote the text
  }
}

function refuse(this: unknown, name: string, value: unknown): unknown {
  const kind =
    typeof value === "number" && !Number.isFinite(value)
      ? String(value)
      : typeof value === "function" || typeof value === "symbol" || typeof value === "bigint"
        ? typeof value
        : value === undefined && Array.isArray(this)
          ? "undefined"
          : value instanceof Map || value instanceof Set || ArrayBuffer.isView(value)
            ? value.constructor.name
            : "";
  if (kind) throw new EncodingError(`JSON cannot carry ${kind}${name ? ` (at ${JSON.stringify(name)})` : ""}`);
  return value;
}
