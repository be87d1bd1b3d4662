"""The statements that count queues. Each has one way to its rows, and reads a bounded number of them."""

from duly_core.counting.statements import COUNTING

PRESENT = COUNTING["present_queues"]

PENDING = COUNTING["pending_by_queue"]

NEXT_DUE = COUNTING["next_due_by_queue"]

TAKEN = COUNTING["taken_by_queue"]

WAITING = COUNTING["waiting_by_queue"]

SAMPLE = COUNTING["sample_of_queues"]

HOSTS = COUNTING["hosts_by_lambda"]

SCHEDULED_SINCE = COUNTING["scheduled_since"]
