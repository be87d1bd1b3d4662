// A worker for Duly in JavaScript, from proto/ alone. It keeps the duties of docs/workers.md: `duly conformance` judges it.
//
//   import { work } from './worker.mjs'
//   await work({ protos: '../../../proto', callbacks: './callbacks.mjs', owner: 'team-a', version: '1' })
//
// Each run has a process of its own (child.mjs): it can be killed whatever it does, and its crash is its own.
import { fork } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { fileURLToPath } from 'node:url'
import grpc from '@grpc/grpc-js'
import protoLoader from '@grpc/proto-loader'

const SHARE_OF_LEASE = 0.8 // the rest is for the kill, and for clocks that differ
const BEATS_OF_LEASE = 0.15
const sleep = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds))
const now = () => performance.now() // never the wall clock: that may be set
const milliseconds = duration => Number(duration?.seconds ?? 0) * 1000 + (duration?.nanos ?? 0) / 1e6
const duration = ms => ({ seconds: Math.floor(ms / 1000), nanos: Math.round((ms % 1000) * 1e6) })
const key = bytes => bytes.toString('hex')

export async function work({ protos, callbacks, owner, version, frontend, hsc, slots = 4, drainGrace = 30_000 }) {
  const address = process.env.DULY_CONFORMANCE_ADDRESS
  const definition = protoLoader.loadSync(
    ['duly/v1/hsc.proto', 'duly/v1/registry.proto', 'duly/v1/fleet.proto'],
    { includeDirs: [protos], longs: String, enums: String, defaults: true, oneofs: true, keepCase: true })
  const { duly: { v1 } } = grpc.loadPackageDefinition(definition)
  const plain = grpc.credentials.createInsecure()
  const hscClient = new v1.HscService(hsc ?? address, plain)
  const frontendAddress = frontend ?? address
  const registryClient = new v1.RegistryService(frontendAddress, plain)
  const fleetClient = new v1.FleetService(frontendAddress, plain)
  const names = Object.keys((await import(callbacks)).default)
  const holder = `${hostname()}:${process.pid}:${key(randomBytes(4))}`
  const startedAt = { seconds: Math.floor(Date.now() / 1000), nanos: 0 }
  const runs = new Map() // by task id
  let lease = 60_000
  let lost = [] // prefixes of requests for work without an answer
  let draining = false
  let asking = null

  const call = (client, method, request, timeout, keep = () => {}) => new Promise((resolve, reject) => {
    keep(client[method](request, { deadline: Date.now() + timeout },
      (error, response) => error ? reject(error) : resolve(response)))
  })

  /** Until the answer is definite: with the same request, for a lost answer says nothing. */
  async function insist(client, method, request) {
    for (;;) {
      try {
        return await call(client, method, request, 5_000)
      } catch (error) {
        const passes = [grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED, grpc.status.RESOURCE_EXHAUSTED]
        if (!passes.includes(error.code)) throw error
        await sleep(200 + 300 * Math.random())
      }
    }
  }

  // ---- work -------------------------------------------------------------------------------------------

  async function ask() {
    const prefix = randomBytes(14) // new for each request: the tokens of its claims begin with it
    const told = lost
    lost = []
    const sent = now()
    let response
    try {
      response = await call(hscClient, 'ClaimWork', {
        holder, lambdas: names, max_tasks: slots - runs.size, timeout: duration(20_000), token_prefix: prefix, lost_prefixes: told
      }, 30_000, each => { asking = each })
    } catch (error) {
      lost = [...told, prefix] // claimed or not: nobody knows
      if (!draining) await sleep(500 + 500 * Math.random())
      return
    } finally {
      asking = null
    }
    lease = milliseconds(response.terms.heartbeat_timeout)
    // the lease began when the claim was made; the answer may have taken any time
    const deadline = sent + milliseconds(response.waited) + SHARE_OF_LEASE * milliseconds(response.terms.claim_timeout)
    for (const task of response.tasks) if (now() < deadline) start(task, deadline) // else it is somebody else's soon
  }

  function start(task, deadline) {
    const child = fork(fileURLToPath(new URL('./child.mjs', import.meta.url)), [callbacks], { serialization: 'advanced', detached: true })
    const run = { task, child, deadline, startedAt: { seconds: Math.floor(Date.now() / 1000), nanos: 0 }, news: {}, cancelled: false, endedFor: '', result: null }
    runs.set(key(task.claim.task_id), run)
    child.send({ lambda: task.lambda, payload: task.payload, raw: task.payload_encoding === 'ENCODING_RAW', attempt: task.attempt, fence: task.fence, checkpoint: task.checkpoint })
    child.on('message', message => {
      if (message.progress !== undefined) run.news.progress = message.progress
      if (message.checkpoint !== undefined) run.news.checkpoint = Buffer.from(message.checkpoint)
      if (message.result) run.result = message.result
    })
    const limit = setTimeout(() => end(run, 'max_runtime'), milliseconds(task.max_runtime))
    child.on('exit', (code, signal) => {
      clearTimeout(limit)
      settle(run, signal ?? `exit code ${code}`).catch(error => console.error('a result was refused:', error.message))
        .finally(() => runs.delete(key(task.claim.task_id)))
    })
  }

  /** Kill a callback with its process group. What is reported of it is reported when it is dead. */
  function end(run, reason) {
    run.endedFor ||= reason
    try { process.kill(-run.child.pid, 'SIGKILL') } catch {} // it has ended
  }

  async function settle(run, ending) {
    const { claim } = run.task
    if (run.endedFor === 'lost' || run.endedFor === 'deadline') return // the claim is void, or will be
    if (run.endedFor === 'drain') {
      const stopped = [{ task_id: claim.task_id, started_at: run.startedAt, reason: 'its worker had to stop', checkpoint: run.news.checkpoint }]
      return insist(hscClient, 'Release', { claims: [claim], stopped })
    }
    let result = run.result
    if (run.endedFor === 'max_runtime') result = { outcome: 'OUTCOME_RETRIABLE_FAILURE', failure_kind: 'FAILURE_KIND_MAX_RUNTIME', failure_message: 'ran longer than its max_runtime and was killed' }
    else if (run.endedFor === 'kill') result = { outcome: 'OUTCOME_CANCELLED' }
    else if (!result) result = { outcome: 'OUTCOME_CRASHED', failure_kind: 'FAILURE_KIND_CRASH', failure_message: `the callback's process ended: ${ending}` }
    if (result.result) result.result = Buffer.from(result.result)
    if (result.outcome !== 'OUTCOME_SUCCESS') result.checkpoint = run.news.checkpoint
    await insist(hscClient, 'SetResults', { results: [{ ...result, claim, started_at: run.startedAt }] })
  }

  // ---- leases -----------------------------------------------------------------------------------------

  async function beat() {
    for (let last = 0; ; await sleep(50)) {
      for (const run of runs.values()) if (now() > run.deadline) end(run, 'deadline')
      if (runs.size === 0 || now() < last + BEATS_OF_LEASE * lease) continue
      last = now()
      renew([...runs.values()]).catch(() => {}) // the next one renews, or the deadline ends what runs
    }
  }

  async function renew(told) {
    const items = told.map(run => ({
      claim: run.task.claim, checkpoint: run.news.checkpoint,
      ...run.news.progress === undefined ? {} : { progress: run.news.progress }
    }))
    const sent = now()
    const response = await call(hscClient, 'Heartbeat', { items, holder }, BEATS_OF_LEASE * lease)
    const kill = new Set(response.kill_task_ids.map(key))
    lease = milliseconds(response.terms.heartbeat_timeout)
    response.verdicts.forEach((verdict, place) => {
      const run = told[place]
      if (verdict === 'HEARTBEAT_VERDICT_LOST_CLAIM') return end(run, 'lost')
      run.deadline = sent + SHARE_OF_LEASE * lease // from the send: the answer may have taken long
      if (kill.has(key(run.task.claim.task_id))) end(run, 'kill')
      else if (verdict === 'HEARTBEAT_VERDICT_CANCEL_REQUESTED' && !run.cancelled) {
        run.cancelled = true
        if (run.child.connected) run.child.send({ cancel: true })
      }
    })
  }

  // ---- the host ---------------------------------------------------------------------------------------

  const report = (stopped = false) => call(fleetClient, 'ReportHost', {
    host_id: holder, name: hostname(), version, queue_backend: 'store', started_at: startedAt, interval: duration(10_000), draining, stopped,
    executors: stopped ? [] : [{ executor_id: holder, pid: process.pid, version, processes: slots, slots: 1, busy_slots: runs.size, started_at: startedAt }],
    lambdas_digest: Buffer.alloc(16, holder),
    lambda_sets: [{ lambdas: names.map(name => ({ name, version })) }]
  }, 5_000).catch(() => {}) // people look at it; it decides nothing

  async function drain() {
    draining = true
    asking?.cancel()
    report()
    const until = now() + drainGrace
    while (runs.size && now() < until) await sleep(20)
    for (const run of runs.values()) end(run, 'drain')
    while (runs.size) await sleep(20)
    if (lost.length) await insist(hscClient, 'Release', { token_prefixes: lost })
    await report(true)
    process.exit(0)
  }

  await insist(registryClient, 'RegisterLambdas', { lambdas: names.map(name => ({ name, owner, version })) })
  process.on('SIGTERM', drain)
  process.on('SIGINT', drain)
  beat()
  report()
  setInterval(report, 8_000).unref()
  while (!draining) {
    if (runs.size < slots) await ask()
    else await sleep(20)
  }
}
