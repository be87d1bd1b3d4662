/** A task to be, as it is sent. */

import { create, toBinary } from "@bufbuild/protobuf";
import { durationFromMs, timestampFromDate } from "@bufbuild/protobuf/wkt";

import { attributesBytes, type AttributeValue } from "./attributes.js";
import { InvalidTaskError } from "./errors.js";
import { NewTaskSchema, UniqueSchema, type NewTask as Sent, type Unique as UniqueMessage } from "./gen/duly/v1/frontend_pb.js";
import { HeldWhile, OnConflict, Priority, ResourceNeedsSchema, SessionOrder, SessionPolicy, SessionSchema } from "./gen/duly/v1/task_pb.js";
import { newTaskId } from "./ids.js";
import { encode, type Payload } from "./payload.js";
import type { PriorityName } from "./task.js";

/** What a task may be told beside its lambda and payload; docs/clients.md says more of each. */
export interface TaskOptions {
  /** Not before this time. */
  at?: Date;
  /** Not before so many milliseconds have passed, counted on the store's clock. */
  delayMs?: number;
  /** If it waits to start at this time, it fails. */
  expiresAt?: Date;
  priority?: PriorityName;
  collection?: string;
  /** The same key never makes a second task of the same lambda. Give either a key or a task id. */
  idempotencyKey?: string;
  /** A UUIDv7 of your own, such as newTaskId(). Default: a new one, if there is no key. */
  taskId?: string;
  /** Only workers of this domain run it. */
  domain?: string;
  /** Only workers of this version run it. */
  lambdaVersion?: string;
  /** Only workers with these labels run it. */
  requires?: readonly string[];
  /** Tasks of one session run one at a time, in order. */
  session?: string | { key: string; order?: "SCHEDULED" | "DUE"; onFailure?: "SKIP" | "BLOCK" | "FAIL_REST" };
  /** Units of resources that it takes while it runs. */
  resources?: readonly { name: string; key?: string; weight?: number }[];
  /** Whose work it is. */
  fairKey?: string;
  /** What you find it by: at most 8. All who may read the task see them. */
  attributes?: Readonly<Record<string, AttributeValue>>;
  /** While another task has the key, this one is ignored, is refused or replaces what that one runs with: docs/unique.md. */
  unique?: string | Unique;
  /** It runs once the calls with the key pause, with the latest payload. */
  debounce?: Debounce;
}

/** One task of a key at a time, within a lambda. */
export interface Unique {
  /** Default: a digest of the payload. */
  key?: string;
  heldWhile?: "PENDING" | "LIVE";
  /** The key is taken for so long after its task was scheduled, too. */
  periodMs?: number;
  onConflict?: "IGNORE" | "REJECT" | "REPLACE";
}

/** Due `waitMs` after the last call, and `atMostMs` after the first one at the latest. */
export interface Debounce {
  key: string;
  waitMs: number;
  atMostMs: number;
}

/** Throws EncodingError, InvalidTaskError. */
export function newTask(lambda: string, payload: Payload, options: TaskOptions): Sent {
  const { data, encoding } = encode(payload);
  const { at, delayMs, idempotencyKey, taskId, session, resources } = options;
  if (at !== undefined && delayMs !== undefined) throw new InvalidTaskError("give at or delayMs, not both", "delayMs");
  if (idempotencyKey && taskId) throw new InvalidTaskError("give idempotencyKey or taskId, not both", "taskId");
  const task = create(NewTaskSchema, {
    lambda: queueName(lambda, options.lambdaVersion, options.domain, options.requires),
    payload: data,
    payloadEncoding: encoding,
    collection: options.collection ?? "",
    fairKey: options.fairKey ?? "",
    idempotencyKey: idempotencyKey ?? "",
    taskId: taskId ?? (idempotencyKey ? "" : newTaskId()),
    priority: options.priority === undefined ? Priority.UNSPECIFIED : known(Priority, options.priority, "priority"),
  });
  if (at !== undefined) task.when = { case: "scheduledAt", value: timestampFromDate(valid(at, "at")) };
  if (delayMs !== undefined) task.when = { case: "delay", value: durationFromMs(finite(delayMs, "delayMs")) };
  if (options.expiresAt !== undefined) task.expiresAt = timestampFromDate(valid(options.expiresAt, "expiresAt"));
  if (session !== undefined) {
    const { key, order, onFailure } = typeof session === "string" ? { key: session } : session;
    task.session = create(SessionSchema, {
      key,
      order: order === undefined ? SessionOrder.UNSPECIFIED : known(SessionOrder, order, "session.order"),
      onFailure:
        onFailure === undefined ? SessionPolicy.UNSPECIFIED : known(SessionPolicy, onFailure, "session.onFailure"),
    });
  }
  if (resources?.length) {
    const needs = resources.map(({ name, key = "", weight = 1 }) => ({ name, key, weight }));
    task.resources = toBinary(ResourceNeedsSchema, create(ResourceNeedsSchema, { needs }));
  }
  if (options.attributes !== undefined) task.attributes = attributesBytes(options.attributes);
  if (options.unique !== undefined || options.debounce !== undefined) {
    task.unique = toBinary(UniqueSchema, uniqueOf(options.unique, options.debounce));
  }
  return task;
}

function uniqueOf(unique: string | Unique | undefined, debounce: Debounce | undefined): UniqueMessage {
  if (debounce !== undefined) {
    if (unique !== undefined) throw new InvalidTaskError("give unique or debounce, not both", "debounce");
    const [wait, atMost] = [finite(debounce.waitMs, "debounce.waitMs"), finite(debounce.atMostMs, "debounce.atMostMs")];
    return create(UniqueSchema, {
      key: debounce.key,
      debounce: { wait: durationFromMs(wait), atMost: durationFromMs(atMost) },
    });
  }
  if (unique === "") throw new InvalidTaskError("unique must not be empty: {} takes a digest of the payload", "unique");
  const { key, heldWhile = "PENDING", periodMs, onConflict = "IGNORE" } = (
    typeof unique === "string" ? { key: unique } : unique ?? {}
  ) as Unique;
  return create(UniqueSchema, {
    key: key ?? "",
    heldWhile: known(HeldWhile, heldWhile, "unique.heldWhile"),
    onConflict: known(OnConflict, onConflict, "unique.onConflict"),
    ...(periodMs === undefined ? {} : { period: durationFromMs(finite(periodMs, "unique.periodMs")) }),
  });
}

/** The queue of a lambda, as duly_wire/queue_names.py writes it. */
export function queueName(lambda: string, version = "", domain = "", requires: readonly string[] = []): string {
  const labels = [...new Set(requires)].sort().join(",");
  const rest = `${version}${domain ? `~${domain}` : ""}${labels ? `:${labels}` : ""}`;
  return rest ? `${lambda}@${rest}` : lambda;
}

function known<T extends Record<string, number | string>>(names: T, name: string, field: string): number {
  const value = names[name];
  if (typeof value !== "number" || value === 0) throw new InvalidTaskError(`${field}: there is no ${JSON.stringify(name)}`, field);
  return value;
}

function valid(at: Date, field: string): Date {
  if (!(at instanceof Date) || Number.isNaN(at.getTime())) throw new InvalidTaskError(`${field} must be a valid Date`, field);
  return at;
}

function finite(milliseconds: number, field: string): number {
  if (!Number.isFinite(milliseconds)) throw new InvalidTaskError(`${field} must be a number of milliseconds`, field);
  return Math.round(milliseconds);
}
