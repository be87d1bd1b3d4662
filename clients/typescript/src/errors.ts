/** Every error of the client. Each has the name that it has in Duly's Python SDK. */

import { ErrorCode, type ItemError } from "./gen/duly/v1/task_pb.js";
import type { Scheduled, Task } from "./task.js";

/** What all errors of this client are; `name` is the class's. */
export class DulyError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The payload cannot be sent as JSON. */
export class EncodingError extends DulyError {}

/** A payload or result cannot be read: it is encrypted, or no JSON. */
export class DecodingError extends DulyError {}

/** The Frontend refused a request's content; `field` is the path of what is wrong, or empty. */
export class InvalidTaskError extends DulyError {
  constructor(
    message: string,
    readonly field = "",
  ) {
    super(message);
  }
}

/** No worker ever registered a lambda of this name. */
export class UnknownLambdaError extends DulyError {}

/** The payload exceeds its lambda's `payload_limit`. */
export class PayloadTooLargeError extends DulyError {}

/** The idempotency key or task id belongs to a task with another payload, priority, collection, session, resources, fair key or attributes. */
export class KeyConflictError extends DulyError {}

/** Another task has the unique key, and the call says REJECT, or REPLACE where that task cannot be changed. */
export class UniqueKeyTakenError extends DulyError {
  /** The task that has the key. */
  taskId = "";
}

/** No task has this id or key: it was never scheduled, or was removed after its retention. */
export class TaskNotFoundError extends DulyError {}

/** No cell has this name; the message has the names of all. */
export class UnknownCellError extends DulyError {}

/** The task had already ended, so it cannot be cancelled, or completed. An earlier try of your own cancel may have ended it. */
export class TaskFinalError extends DulyError {}

/** No task waits for this completion token: its attempt is over, or no task has it. */
export class TokenNotCurrentError extends DulyError {}

/** The callback that gave out this completion token still runs: try again. */
export class TokenTooEarlyError extends DulyError {}

/** No resource of this name is declared. */
export class UnknownResourceError extends DulyError {}

/** More tasks of the lambda are scheduled than its quota allows. The message says when to try again. */
export class QuotaExceededError extends DulyError {}

/** Whoever the token or certificate names may not do this. */
export class PermissionDeniedError extends DulyError {}

/** The Frontend identifies callers, and the token or certificate is missing, unknown, revoked or expired. */
export class UnauthenticatedError extends DulyError {}

/**
 * No Frontend answered within the time allowed.
 *
 * After `schedule` the outcome is unknown. `taskId` is the id that the task has if it was written, unless it has a key.
 */
export class UnavailableError extends DulyError {
  taskId = "";
}

/** The Frontend answered with another gRPC status, or refused for a reason that this client does not know. */
export class RequestError extends DulyError {}

/** The client was closed. */
export class ClosedError extends DulyError {}

/** The task had not ended at the timeout. It goes on; `task` is it as last seen. */
export class WaitTimeoutError extends DulyError {
  constructor(readonly task: Task) {
    super(`not final in time: ${task.taskId} (${task.status})`);
  }
}

/** The task ended without success. */
export class TaskFailedError extends DulyError {
  constructor(readonly task: Task) {
    const reason = task.failure ? `: ${task.failure.kind}, ${task.failure.message}` : "";
    super(`task ${task.taskId} (${task.lambda}) ended as ${task.status}${reason}`);
  }
}

/** Some tasks were refused, the others were written. `results` has one for each, in the order given. */
export class ScheduleManyError extends DulyError {
  constructor(readonly results: readonly (Scheduled | DulyError)[]) {
    const errors = results.filter((each) => each instanceof DulyError);
    super(`${errors.length} of ${results.length} tasks were not scheduled; the first: ${errors[0]?.message}`);
  }
}

const BY_CODE = new Map<ErrorCode, new (message: string) => DulyError>([
  [ErrorCode.UNKNOWN_LAMBDA, UnknownLambdaError],
  [ErrorCode.PAYLOAD_TOO_LARGE, PayloadTooLargeError],
  [ErrorCode.KEY_CONFLICT, KeyConflictError],
  [ErrorCode.NOT_FOUND, TaskNotFoundError],
  [ErrorCode.ALREADY_FINAL, TaskFinalError],
  [ErrorCode.UNKNOWN_RESOURCE, UnknownResourceError],
  [ErrorCode.QUOTA_EXCEEDED, QuotaExceededError],
  [ErrorCode.PERMISSION_DENIED, PermissionDeniedError],
  [ErrorCode.TOKEN_NOT_CURRENT, TokenNotCurrentError],
  [ErrorCode.TOKEN_TOO_EARLY, TokenTooEarlyError],
  [ErrorCode.UNIQUE_KEY_TAKEN, UniqueKeyTakenError],
  [ErrorCode.CELL_UNAVAILABLE, UnavailableError],
]);

/** The error of one item of a request, which is about a task. */
export function fromItem(error: ItemError, taskId = ""): DulyError {
  if (error.code === ErrorCode.INVALID_ARGUMENT) {
    return new InvalidTaskError(error.field ? `${error.field}: ${error.message}` : error.message, error.field);
  }
  const found = new (BY_CODE.get(error.code) ?? RequestError)(error.message);
  if (found instanceof UniqueKeyTakenError) found.taskId = taskId;
  return found;
}
