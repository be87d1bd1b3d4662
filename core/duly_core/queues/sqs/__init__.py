"""The queues on SQS."""
