// What the conformance suite asks a worker to offer: duly conformance -- node conformance.mjs PROTO_FOLDER
import { appendFileSync, existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

export default {
  'conformance.echo': payload => payload,
  'conformance.bytes': payload => payload,
  'conformance.context': (_, { attempt, fence, checkpointed }) => ({ attempt, fence, checkpoint: checkpointed }),
  'conformance.end': ({ outcome }) => {
    throw Object.assign(new Error('as asked'), outcome === 'snooze' ? { snooze: 5 } : { fatal: outcome === 'fatal' })
  },
  'conformance.tick': async ({ file, stubborn }, context) => {
    context.progress(0.5)
    context.checkpoint({ at: 1 })
    while (!existsSync(`${file}.stop`)) {
      appendFileSync(file, `${process.pid} ${context.fence}\n`)
      await sleep(50, undefined, stubborn ? {} : { signal: context.signal })
    }
  },
  'conformance.crash': () => process.kill(process.pid, 'SIGKILL')
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  // no top-level await: the worker imports this module
  import('./worker.mjs').then(({ work }) =>
    work({ protos: process.argv[2], callbacks: import.meta.url, owner: 'conformance', version: '1' }))
}
