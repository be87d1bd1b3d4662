/** Attributes: names and values of the caller's own, by which it finds tasks. */

import { create, toBinary } from "@bufbuild/protobuf";

import { InvalidTaskError } from "./errors.js";
import { AttributesSchema, type Attribute } from "./gen/duly/v1/task_pb.js";

/** A text of 1 to 256 bytes, an integer of 64 bits (a bigint above 2^53), or a flag. */
export type AttributeValue = string | number | bigint | boolean;

const LARGEST = 2n ** 63n;

/** What is sent with a task. Throws InvalidTaskError. */
export function attributesBytes(given: Readonly<Record<string, AttributeValue>>): Uint8Array {
  const attributes = Object.entries(given).map(([name, value]) => ({ name, value: wireValue(name, value) }));
  return toBinary(AttributesSchema, create(AttributesSchema, { attributes }));
}

/** The attributes of a task by name; an integer that a number cannot hold is a bigint. */
export function attributesOf(sent: readonly Attribute[]): Readonly<Record<string, AttributeValue>> {
  return Object.fromEntries(sent.map(({ name, value }) => [name, shown(value)]));
}

function wireValue(name: string, value: AttributeValue) {
  if (typeof value === "string") return { case: "text" as const, value };
  if (typeof value === "boolean") return { case: "flag" as const, value };
  if (typeof value === "bigint" || Number.isSafeInteger(value)) {
    const number = BigInt(value);
    if (number >= -LARGEST && number < LARGEST) return { case: "number" as const, value: number };
  }
  const said = JSON.stringify(name);
  throw new InvalidTaskError(`attributes: the value of ${said} must be a text, an integer of 64 bits (a bigint above 2^53), or a flag`, "attributes");
}

function shown(value: Attribute["value"]): AttributeValue {
  if (value.case !== "number") return value.value ?? "";
  const number = Number(value.value);
  return Number.isSafeInteger(number) ? number : value.value;
}
