"""The lease terms that hold for claims of several answers: HSCs and cells see a change of the timeouts at different times."""

from google.protobuf import duration_pb2

from duly_wire.v1 import hsc_pb2


def shorter(terms: hsc_pb2.LeaseTerms, others: hsc_pb2.LeaseTerms) -> hsc_pb2.LeaseTerms:
    """Return the terms that hold for claims of both answers."""
    if not terms.HasField("claim_timeout"):
        return others
    if not others.HasField("claim_timeout"):
        return terms
    return hsc_pb2.LeaseTerms(
        claim_timeout=_least(terms.claim_timeout, others.claim_timeout),
        heartbeat_timeout=_least(terms.heartbeat_timeout, others.heartbeat_timeout),
    )


def _least(one: duration_pb2.Duration, other: duration_pb2.Duration) -> duration_pb2.Duration:
    return min(one, other, key=duration_pb2.Duration.ToNanoseconds)
