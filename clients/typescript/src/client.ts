/** The client. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";

import type { AttributeValue } from "./attributes.js";
import { Caller, sleep, type CallOptions, type Connecting } from "./calls.js";
import {
  DulyError,
  InvalidTaskError,
  RequestError,
  ScheduleManyError,
  TaskFailedError,
  TokenTooEarlyError,
  UnavailableError,
  WaitTimeoutError,
  fromItem,
} from "./errors.js";
import {
  CompletionSchema,
  FrontendService,
  type GetTaskResult,
  type NewTask as Sent,
  type ScheduleResult,
} from "./gen/duly/v1/frontend_pb.js";
import { ErrorCode, OnConflict, Priority, TaskStatus as Status } from "./gen/duly/v1/task_pb.js";
import { newTask, queueName, type TaskOptions } from "./new_task.js";
import { encode, type Payload } from "./payload.js";
import { Task, statusName, type PriorityName, type Scheduled, type TaskStatus } from "./task.js";

/** What names a task: its id, the answer of `schedule`, a Task, or its lambda and idempotency key. */
export type TaskRef = string | { readonly taskId: string } | TaskKey;

/** A task's lambda and the key that it was scheduled with. */
export interface TaskKey {
  readonly lambda: string;
  readonly idempotencyKey: string;
  readonly domain?: string;
  readonly lambdaVersion?: string;
  readonly requires?: readonly string[];
}

/** A task for `scheduleMany`. */
export interface NewTask extends TaskOptions {
  lambda: string;
  payload?: Payload;
}

/** Which tasks a list has; what is left out is not filtered by. */
export interface TaskFilter {
  lambda?: string;
  collection?: string;
  statuses?: Iterable<TaskStatus>;
  priorities?: Iterable<PriorityName>;
  /** Of all of these; 17 and "17" are found alike. */
  attributes?: Readonly<Record<string, AttributeValue>>;
  /** Of this cell. An installation without cells refuses it. */
  cell?: string;
}

const LONGEST_POLL_MS = 20_000;
const SHORTEST_POLL_MS = 100;
/** How much longer than the caller waits an answer may take. */
const POLL_GRACE_MS = 5_000;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;
/** Before items of a cell that was away are sent again. */
const FIRST_AWAY_PAUSE_MS = 100;
const LONGEST_AWAY_PAUSE_MS = 2_000;
const TASKS_PER_CALL = 10_000;
const BYTES_PER_CALL = 6 * 1024 * 1024;

/**
 * A client of one Frontend, or of several that do the same. It opens a connection to each, and may be used by any number of callers at a time.
 *
 *     const client = new Client();
 *     const task = await client.schedule("hello.greet", { name: "Ada" }, { delayMs: 2_000 });
 *     console.log((await client.wait(task)).result);
 *     client.close();
 */
export class Client {
  readonly #caller: Caller;

  constructor(connecting: Connecting = {}) {
    this.#caller = new Caller(connecting);
  }

  /**
   * Schedule a task; once this resolves, the task is durable.
   *
   * Rejects with InvalidTaskError, UnknownLambdaError, PayloadTooLargeError, KeyConflictError, QuotaExceededError,
   * UnknownResourceError, EncodingError, PermissionDeniedError, UnauthenticatedError, UnavailableError.
   */
  async schedule(
    lambda: string,
    payload: Payload = null,
    options: TaskOptions & CallOptions = {},
  ): Promise<Scheduled> {
    const task = newTask(lambda, payload, options);
    try {
      const [result] = await this.#write([task], options);
      if (result instanceof DulyError) throw result;
      return result!;
    } catch (error) {
      if (error instanceof UnavailableError) error.taskId = task.taskId;
      throw error;
    }
  }

  /**
   * Schedule many tasks. Each is written or refused for itself.
   *
   * Rejects with ScheduleManyError, once all were tried, if any were not written: its `results` tell which. An UnavailableError in them has the
   * id that the task has if it was written.
   */
  async scheduleMany(tasks: Iterable<NewTask>, options: CallOptions = {}): Promise<Scheduled[]> {
    const sent = [...tasks].map((each) => newTask(each.lambda, each.payload ?? null, each));
    const results: (Scheduled | DulyError)[] = [];
    for (const some of inCalls(sent)) {
      try {
        results.push(...(await this.#write(some, options)));
      } catch (error) {
        if (!(error instanceof DulyError)) throw error; // the caller's own abort
        results.push(...some.map((task) => ofOne(task, error)));
      }
    }
    const written = results.filter((each): each is Scheduled => !(each instanceof DulyError));
    if (written.length < results.length) throw new ScheduleManyError(results);
    return written;
  }

  /** Read a task. Rejects with TaskNotFoundError. */
  async get(task: TaskRef, options: CallOptions = {}): Promise<Task> {
    const taskIds = [await this.#idOf(task, options)];
    const { results } = await this.#caller.call(FrontendService.method.getTask, { taskIds }, options);
    return read(results);
  }

  /**
   * List tasks, the newest first, without payload and result.
   *
   *     for await (const task of client.list({ lambda: "mail.send", statuses: ["FATAL_FAILURE"] })) console.log(task.failure);
   *
   * If a cell does not answer, its tasks are missing: see PartialAnswerWarning. Rejects with UnknownCellError, InvalidTaskError.
   */
  async *list(which: TaskFilter = {}, options: CallOptions & { pageSize?: number } = {}): AsyncGenerator<Task, void, undefined> {
    const request = {
      lambda: which.lambda ?? "",
      collection: which.collection ?? "",
      cell: which.cell ?? "",
      statuses: [...(which.statuses ?? [])].map((name) => number(Status, name, "statuses")),
      priorities: [...(which.priorities ?? [])].map((name) => number(Priority, name, "priorities")),
      attributes: Object.entries(which.attributes ?? {}).map(([name, value]) => ({ name, value: String(value) })),
      pageSize: options.pageSize ?? 100,
    };
    let pageToken = "";
    do {
      const page = await this.#caller.call(FrontendService.method.listTasks, { ...request, pageToken }, options);
      for (const task of page.tasks) yield new Task(task);
      pageToken = page.nextPageToken;
    } while (pageToken);
  }

  /**
   * Wait until a task has ended, through a Frontend's restart.
   *
   * `timeoutMs`: for how long; default: for ever. Rejects with WaitTimeoutError, TaskNotFoundError, and, with `throwOnFailure`,
   * TaskFailedError. An abort ends the wait; the task goes on.
   */
  async wait(
    task: TaskRef,
    options: { timeoutMs?: number; throwOnFailure?: boolean; signal?: AbortSignal } = {},
  ): Promise<Task> {
    const { signal } = options;
    const until = Date.now() + (options.timeoutMs ?? Infinity);
    const timeoutMs = options.timeoutMs === undefined ? undefined : options.timeoutMs + POLL_GRACE_MS;
    const taskIds = [await this.#idOf(task, { signal, timeoutMs })];
    for (;;) {
      const askedAt = Date.now();
      const pollMs = Math.max(0, Math.min(LONGEST_POLL_MS, until - askedAt));
      const found = await this.#poll(taskIds, pollMs, until, signal);
      if (found?.isFinal) {
        if (options.throwOnFailure && found.status !== "SUCCESS") throw new TaskFailedError(found);
        return found;
      }
      if (found && Date.now() >= until) throw new WaitTimeoutError(found);
      await sleep(Math.max(0, askedAt + SHORTEST_POLL_MS - Date.now()), signal);
    }
  }

  /**
   * Cancel a task: one that waits ends at once, a callback that runs is asked to stop.
   *
   * `kill`: it is made to. Resolves with its status then. Rejects with TaskFinalError, TaskNotFoundError.
   */
  async cancel(task: TaskRef, options: CallOptions & { kill?: boolean } = {}): Promise<TaskStatus> {
    const taskIds = [await this.#idOf(task, options)];
    const request = { taskIds, kill: options.kill ?? false };
    const { results } = await this.#caller.call(FrontendService.method.cancelTask, request, options);
    const result = only(results);
    if (result.error) throw fromItem(result.error);
    return statusName(result.status);
  }

  /**
   * Complete a task whose callback handed it over: it ends as SUCCESS, with this result. A repeated call is answered as the first.
   *
   * `token`: what the callback gave out. Rejects with TokenNotCurrentError, TaskFinalError (it has ended otherwise), TokenTooEarlyError
   * (its callback still runs, after all of `timeoutMs`).
   */
  async complete(token: string, result: Payload = null, options: CallOptions = {}): Promise<TaskStatus> {
    const { data, encoding } = encode(result);
    const success = { result: data, resultEncoding: encoding };
    return this.#complete({ token, outcome: { case: "success", value: success } }, options);
  }

  /**
   * Say that the work of a task failed that its callback handed over. It runs again if attempts are left, and `retry` is not false.
   *
   * Resolves with its status: RETRIABLE_FAILURE or FATAL_FAILURE. Rejects as `complete` does.
   */
  async fail(
    token: string,
    message: string,
    options: CallOptions & { retry?: boolean; retryAfterMs?: number } = {},
  ): Promise<TaskStatus> {
    const { retry = true, retryAfterMs } = options;
    const failure = {
      message,
      isFatal: !retry,
      ...(retryAfterMs === undefined ? {} : { retryAfter: durationFromMs(retryAfterMs) }),
    };
    return this.#complete({ token, outcome: { case: "failure", value: failure } }, options);
  }

  async #complete(completion: MessageInitShape<typeof CompletionSchema>, options: CallOptions): Promise<TaskStatus> {
    const until = Date.now() + (options.timeoutMs ?? this.#caller.timeoutMs);
    let pauseMs = FIRST_PAUSE_MS;
    for (;;) {
      const timeoutMs = Math.max(1, until - Date.now());
      const request = { completions: [completion] };
      const { results } = await this.#caller.call(FrontendService.method.completeTasks, request, { ...options, timeoutMs });
      const result = only(results);
      if (!result.error) return statusName(result.status);
      const error = fromItem(result.error);
      if (!(error instanceof TokenTooEarlyError) || Date.now() + pauseMs >= until) throw error;
      await sleep(pauseMs * (0.5 + Math.random() / 2), options.signal);
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
    }
  }

  /** Close the connection. Calls that are under way end with ClosedError or UnavailableError. */
  close(): void {
    this.#caller.close();
  }

  async #write(tasks: Sent[], options: CallOptions): Promise<(Scheduled | DulyError)[]> {
    const until = Date.now() + (options.timeoutMs ?? this.#caller.timeoutMs);
    const results = await this.#send(tasks, options);
    for (let pauseMs = FIRST_AWAY_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_AWAY_PAUSE_MS)) {
      // the tasks of cells that answer are written: the others are sent again by themselves, with their ids
      const away = [...results.keys()].filter((place) => results[place]!.error?.code === ErrorCode.CELL_UNAVAILABLE);
      const waitMs = pauseMs * (0.5 + Math.random() / 2);
      if (!away.length || Date.now() + waitMs >= until) break;
      await sleep(waitMs, options.signal);
      try {
        const again = await this.#send(away.map((place) => tasks[place]!), { ...options, timeoutMs: Math.max(1, until - Date.now()) });
        away.forEach((place, position) => (results[place] = again[position]!));
      } catch (error) {
        // the other answers are good; of none, what became of all is the error itself
        if (error instanceof UnavailableError || (error instanceof DulyError && away.length < tasks.length)) break;
        throw error;
      }
    }
    return results.map((result, place) => {
      const found = scheduled(result);
      return found instanceof DulyError ? ofOne(tasks[place]!, found) : found;
    });
  }

  async #send(tasks: Sent[], options: CallOptions): Promise<ScheduleResult[]> {
    const { results } = await this.#caller.call(FrontendService.method.schedule, { tasks }, options);
    if (results.length !== tasks.length) throw new RequestError("the Frontend answered another number of tasks");
    return results;
  }

  /** Undefined: no Frontend answered, and there is time left. */
  async #poll(
    taskIds: string[],
    pollMs: number,
    until: number,
    signal: AbortSignal | undefined,
  ): Promise<Task | undefined> {
    try {
      const request = { taskIds, timeout: durationFromMs(pollMs) };
      const { results } = await this.#caller.call(FrontendService.method.waitTask, request, { signal, timeoutMs: POLL_GRACE_MS }, pollMs);
      return read(results);
    } catch (error) {
      if (error instanceof UnavailableError && Date.now() < until) return undefined;
      throw error;
    }
  }

  async #idOf(task: TaskRef, options: CallOptions): Promise<string> {
    if (typeof task === "string") return task;
    if ("taskId" in task) return task.taskId;
    const lambda = queueName(task.lambda, task.lambdaVersion, task.domain, task.requires);
    const keys = [{ lambda, idempotencyKey: task.idempotencyKey }];
    const { results } = await this.#caller.call(FrontendService.method.findTask, { keys }, options);
    const result = only(results);
    if (result.error) throw fromItem(result.error);
    return result.taskId;
  }
}

function* inCalls(tasks: Sent[]): Generator<Sent[]> {
  let some: Sent[] = [];
  let bytes = 0;
  for (const task of tasks) {
    const size = task.payload.length + 512;
    if (some.length && (some.length === TASKS_PER_CALL || bytes + size > BYTES_PER_CALL)) {
      yield some;
      [some, bytes] = [[], 0];
    }
    some.push(task);
    bytes += size;
  }
  if (some.length) yield some;
}

/** The error of a call, for one of its tasks. */
function ofOne(task: Sent, error: DulyError): DulyError {
  if (!(error instanceof UnavailableError)) return error;
  const unknown = new UnavailableError(error.message);
  unknown.taskId = task.taskId;
  return unknown;
}

function scheduled(result: ScheduleResult): Scheduled | DulyError {
  if (result.error) return fromItem(result.error, result.taskId);
  const { taskId, created, conflict } = result;
  if (!conflict) return { taskId, created };
  return { taskId, created, conflict: conflict === OnConflict.REPLACE ? "REPLACE" : "IGNORE" };
}

function read(results: GetTaskResult[]): Task {
  const { task, error } = only(results);
  if (error) throw fromItem(error);
  if (!task) throw new RequestError("the Frontend answered neither a task nor an error");
  return new Task(task);
}

/** The number of a member of an enum. */
function number(members: Readonly<Record<string, string | number>>, name: string, field: string): number {
  const found = members[name];
  if (typeof found !== "number" || found === 0) throw new InvalidTaskError(`${field}: there is no ${JSON.stringify(name)}`, field);
  return found;
}

function only<T>(results: T[]): T {
  const [result] = results;
  if (result === undefined || results.length !== 1) throw new RequestError("the Frontend answered another number of tasks");
  return result;
}
