// One run of a callback, in a process of its own. worker.mjs starts it, and kills it.
const { default: callbacks } = await import(process.argv[2])
const controller = new AbortController()
process.on('disconnect', () => process.exit(1)) // the worker is dead: nobody renews the lease

process.on('message', async message => {
  if (message.cancel) return controller.abort()
  const context = {
    attempt: message.attempt,
    fence: message.fence,
    checkpointed: message.checkpoint.length ? JSON.parse(Buffer.from(message.checkpoint)) : null,
    signal: controller.signal,
    progress: fraction => process.send({ progress: fraction }),
    checkpoint: value => process.send({ checkpoint: JSON.stringify(value) })
  }
  let result
  try {
    const payload = Buffer.from(message.payload)
    const value = await callbacks[message.lambda](message.raw ? payload : JSON.parse(payload.toString() || 'null'), context)
    result = Buffer.isBuffer(value)
      ? { outcome: 'OUTCOME_SUCCESS', result: value, result_encoding: 'ENCODING_RAW' }
      : { outcome: 'OUTCOME_SUCCESS', result: JSON.stringify(value ?? null), result_encoding: 'ENCODING_JSON' }
  } catch (error) {
    result = failed(error)
  }
  process.send({ result }, () => process.exit(0))
})

function failed(error) {
  if (error.name === 'AbortError') return { outcome: 'OUTCOME_CANCELLED' }
  if (error.snooze !== undefined) return { outcome: 'OUTCOME_SNOOZED', retry_after: { seconds: error.snooze, nanos: 0 } }
  return {
    outcome: error.fatal ? 'OUTCOME_FATAL_FAILURE' : 'OUTCOME_RETRIABLE_FAILURE',
    failure_kind: 'FAILURE_KIND_EXCEPTION',
    failure_message: String(error.message).slice(0, 1000)
  }
}
