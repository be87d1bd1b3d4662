-- Named constants of the schema, the functions and the statements. Python has the same enums, limits and defaults, and a test
-- compares them; batches and events are known here alone.

-- fragment: kind.callback
1

-- fragment: kind.exception
2

-- fragment: kind.max_runtime
3

-- fragment: kind.crash
4

-- fragment: kind.quarantined
5

-- fragment: kind.attempts_exhausted
6

-- fragment: kind.expired
7

-- fragment: kind.bad_payload
8

-- fragment: kind.bad_result
9

-- fragment: kind.no_callback
10

-- fragment: kind.session_failed
11

-- fragment: kind.graph_skipped
12

-- fragment: kind.not_decrypted
13

-- fragment: kind.gate_dropped
14

-- fragment: kind.graph_failed
15

-- fragment: kind.completion_timeout
16

-- fragment: kind.event_timeout
17

-- fragment: encoding.json
1

-- fragment: encoding.raw
2

-- fragment: role.input
1

-- fragment: role.result
2

-- fragment: role.stdout
3

-- fragment: role.stderr
4

-- fragment: role.file
5

-- fragment: encoding.attachment
4

-- fragment: encoding.encrypted
3

-- fragment: policy.max_attempts
coalesce(lambda.max_attempts, 10)

-- fragment: policy.max_crashes
coalesce(lambda.max_crashes, 3)

-- fragment: policy.max_runtime
coalesce(lambda.max_runtime, interval '0 days 3600 seconds')

-- fragment: policy.backoff_initial
coalesce(lambda.backoff_initial, interval '0 days 1 seconds')

-- fragment: policy.backoff_factor
coalesce(lambda.backoff_factor, 2)

-- fragment: policy.backoff_max
coalesce(lambda.backoff_max, interval '0 days 600 seconds')

-- fragment: policy.payload_limit
coalesce(lambda.payload_limit, 262144)

-- fragment: policy.crash_window
coalesce(lambda.crash_window, interval '3 days 0 seconds')

-- fragment: session_order.due
2

-- fragment: session_policy.skip
1

-- fragment: session_policy.block
2

-- fragment: session_policy.fail_rest
3

-- fragment: edge.succeeded
1

-- fragment: edge.failed
2

-- fragment: edge.cancelled
4

-- fragment: edge.timed_out
8

-- fragment: edge.skipped
16

-- fragment: units.unlimited
1000000

-- fragment: rate.most
1000000

-- fragment: hosts.missed_reports
3

-- fragment: lambdas.most_label_queues
50

-- fragment: batch.units
-- What the tasks of one pick may ask of a resource in all: it stays an integer.
1000000000

-- fragment: batch.unparked
-- Tasks that one use row releases at a time, of a lambda and priority.
1000

-- fragment: batch.parked_keys
-- Keys of a resource whose parked tasks are released in one statement.
200

-- fragment: batch.use_rows
-- Use rows that one statement changes.
2000

-- fragment: batch.put_off
-- Tasks that one statement reads for those that a rate put off.
5000

-- fragment: batch.doomed
-- Tasks of a failed session that one statement marks: an end must not outlast statement_timeout.
1000

-- fragment: batch.graph_steps
-- Rows of skipped nodes that the end of one node decides.
200

-- fragment: events.most
-- Events that a task keeps.
200

-- fragment: events.first
-- Of these the oldest ones.
50

-- fragment: watched.run
-- Kinds of rows of task_event.
1

-- fragment: watched.task
2

-- fragment: watched.graph
3

-- fragment: turns.probes
64

-- fragment: turns.further
1000

-- fragment: turns.last_place
1000000
