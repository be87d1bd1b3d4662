/** Reads the google.rpc.Status that comes with a refusal: the field at fault, and when to send the request again. */

import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import type { Metadata } from "@grpc/grpc-js";

const HEADER = "grpc-status-details-bin";

/** What a refusal says beside its code and message. */
export interface StatusDetails {
  /** A Duly Frontend gave this status; gRPC's own have no details. */
  isAnswer: boolean;
  /** With INVALID_ARGUMENT. */
  field: string;
  /** With NOT_FOUND: what there is not, such as `cell`. Empty: the message alone says it. */
  resourceType: string;
  /** The server is overloaded: send the request again after so many milliseconds. */
  retryDelayMs: number | undefined;
}

export function readDetails(metadata: Metadata): StatusDetails {
  const [value] = metadata.get(HEADER);
  const details: StatusDetails = { isAnswer: value !== undefined, field: "", resourceType: "", retryDelayMs: undefined };
  if (!(value instanceof Uint8Array)) return details;
  try {
    for (const any of fields(value, 3)) {
      const type = text(fields(any, 1)[0]);
      const message = fields(any, 2)[0] ?? new Uint8Array();
      if (type.endsWith("/google.rpc.RetryInfo")) details.retryDelayMs = milliseconds(fields(message, 1)[0]);
      if (type.endsWith("/google.rpc.ResourceInfo")) details.resourceType = text(fields(message, 1)[0]);
      if (type.endsWith("/google.rpc.BadRequest")) details.field = text(fields(fields(message, 1)[0], 1)[0]);
    }
  } catch {
    // details that are broken say nothing
  }
  return details;
}

/** The values of a field that is bytes, text or a message. */
function fields(message: Uint8Array | undefined, number: number): Uint8Array[] {
  const found: Uint8Array[] = [];
  const reader = new BinaryReader(message ?? new Uint8Array());
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (field === number && type === WireType.LengthDelimited) found.push(reader.bytes());
    else reader.skip(type, field);
  }
  return found;
}

function milliseconds(duration: Uint8Array | undefined): number {
  let total = 0;
  const reader = new BinaryReader(duration ?? new Uint8Array());
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    if (type === WireType.Varint && field === 1) total += Number(reader.int64()) * 1000;
    else if (type === WireType.Varint && field === 2) total += reader.int32() / 1e6;
    else reader.skip(type, field);
  }
  return total;
}

function text(bytes: Uint8Array | undefined): string {
  return new TextDecoder().decode(bytes);
}
