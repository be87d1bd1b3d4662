-- Named constants of the statements and functions. A test holds them against the enums and the defaults in Python.

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

-- fragment: encoding.json
1

-- fragment: encoding.raw
2

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
