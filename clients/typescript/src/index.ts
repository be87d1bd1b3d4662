export type { AttributeValue } from "./attributes.js";
export type { CallOptions, Connecting } from "./calls.js";
export { Client, type NewTask, type TaskKey, type TaskRef } from "./client.js";
export * from "./errors.js";
export { newTaskId } from "./ids.js";
export type { Debounce, TaskOptions, Unique } from "./new_task.js";
export type { Json, Payload } from "./payload.js";
export { Task, type Failure, type PriorityName, type Scheduled, type TaskStatus } from "./task.js";
export { SignatureError, verifyWebhook, type Delivery, type RequestHeaders } from "./webhooks.js";
