// A lambda in JavaScript: duly worker --exec 'node examples/programs/primes.mjs' --lambda math.primes
// Counts the primes up to payload.limit. It tells how far it is, keeps that for the next attempt, and stops when it is cancelled.
// One JSON message a line: tasks come on stdin, everything else goes to stdout. The log is stderr.
import readline from 'node:readline'

const say = message => process.stdout.write(JSON.stringify(message) + '\n')
const cancelled = new Set()
const pause = () => new Promise(resolve => setImmediate(resolve)) // lets a cancel come in

function isPrime(number) {
  for (let divisor = 2; divisor * divisor <= number; divisor++) if (number % divisor === 0) return false
  return number > 1
}

async function run({ id, payload, attempt, checkpoint }) {
  const limit = payload?.limit
  if (!Number.isInteger(limit) || limit < 0) return say({ type: 'fatal', id, message: 'limit is not a whole number' })
  let { next, count } = checkpoint ?? { next: 2, count: 0 }
  console.error(`attempt ${attempt} begins at ${next}`)
  for (; next <= limit; next++) {
    count += isPrime(next)
    if (next % 10_000 === 0) {
      say({ type: 'progress', id, fraction: next / limit, note: `${count} primes so far` })
      say({ type: 'checkpoint', id, value: { next: next + 1, count } })
      await pause()
      if (cancelled.delete(id)) return say({ type: 'cancelled', id })
    }
  }
  say({ type: 'success', id, result: { count } })
}

readline.createInterface({ input: process.stdin }).on('line', line => {
  const message = JSON.parse(line)
  if (message.type === 'cancel') return cancelled.add(message.id)
  run(message).catch(error => say({ type: 'retry', id: message.id, message: String(error) }))
})
say({ type: 'ready' })
