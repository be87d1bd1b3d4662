/** A task as this client shows it. */

import { timestampDate, type Timestamp } from "@bufbuild/protobuf/wkt";

import { attributesOf, type AttributeValue } from "./attributes.js";
import { FailureKind, Priority, TaskStatus as Status, type Task as Sent } from "./gen/duly/v1/task_pb.js";
import { decode, type Payload } from "./payload.js";

/** As in docs/lifecycle.md. */
export type TaskStatus = Exclude<keyof typeof Status, "UNSPECIFIED">;

/** Which of a lambda's due tasks start first. */
export type PriorityName = Exclude<keyof typeof Priority, "UNSPECIFIED">;

/** The answer to `schedule`. */
export interface Scheduled {
  readonly taskId: string;
  /** False if the task was written before. */
  readonly created: boolean;
  /** What was done because another task, which `taskId` names, has the unique key; undefined: nobody had it. */
  readonly conflict?: "IGNORE" | "REPLACE";
}

/** The last thing that went wrong with a task. */
export interface Failure {
  readonly kind: Exclude<keyof typeof FailureKind, "UNSPECIFIED">;
  readonly message: string;
  readonly failedAt: Date | undefined;
}

const FINAL: ReadonlySet<TaskStatus> = new Set(["SUCCESS", "FATAL_FAILURE", "CANCELLED", "DROPPED"]);

/** How a task stood when the Frontend was asked. */
export class Task {
  readonly taskId: string;
  readonly lambda: string;
  readonly collection: string;
  readonly priority: PriorityName;
  readonly status: TaskStatus;
  readonly createdAt: Date | undefined;
  readonly scheduledAt: Date | undefined;
  readonly startedAt: Date | undefined;
  readonly finishedAt: Date | undefined;
  readonly expiresAt: Date | undefined;
  /** How often it was claimed. */
  readonly fence: number;
  readonly failures: number;
  readonly crashes: number;
  readonly cancelRequested: boolean;
  /** From 0 to 1, as its callback last told. */
  readonly progress: number;
  readonly progressNote: string;
  readonly failure: Failure | undefined;
  /** What it is found by. An integer that a number cannot hold is a bigint. */
  readonly attributes: Readonly<Record<string, AttributeValue>>;
  /** The cell that it lives in. Empty: the installation has no cells. */
  readonly cell: string;
  /** The caller may not see payload, result and failure message. */
  readonly payloadWithheld: boolean;
  readonly #sent: Sent;

  constructor(sent: Sent) {
    this.taskId = sent.taskId;
    this.lambda = sent.lambda;
    this.collection = sent.collection;
    this.priority = Priority[sent.priority] as PriorityName;
    this.status = statusName(sent.status);
    this.createdAt = date(sent.createdAt);
    this.scheduledAt = date(sent.scheduledAt);
    this.startedAt = date(sent.startedAt);
    this.finishedAt = date(sent.finishedAt);
    this.expiresAt = date(sent.expiresAt);
    this.fence = sent.fence;
    this.failures = sent.failures;
    this.crashes = sent.crashes;
    this.cancelRequested = sent.cancelRequested;
    this.progress = sent.progress;
    this.progressNote = sent.progressNote;
    this.failure = sent.lastFailure && {
      kind: FailureKind[sent.lastFailure.kind] as Failure["kind"],
      message: sent.lastFailure.message,
      failedAt: date(sent.lastFailure.failedAt),
    };
    this.attributes = attributesOf(sent.attributes);
    this.cell = sent.cell;
    this.payloadWithheld = sent.payloadWithheld;
    this.#sent = sent;
  }

  /** Whether it has ended. */
  get isFinal(): boolean {
    return FINAL.has(this.status);
  }

  /** Throws DecodingError. */
  get payload(): Payload {
    return decode({ data: this.#sent.payload, encoding: this.#sent.payloadEncoding });
  }

  /** What the callback returned; null before SUCCESS. Throws DecodingError. */
  get result(): Payload {
    return decode({ data: this.#sent.result, encoding: this.#sent.resultEncoding });
  }
}

/** The name of a status; a newer server may have others, which are shown by number. */
export function statusName(status: Status): TaskStatus {
  return (Status[status] ?? String(status)) as TaskStatus;
}

function date(timestamp: Timestamp | undefined): Date | undefined {
  return timestamp && timestampDate(timestamp);
}
