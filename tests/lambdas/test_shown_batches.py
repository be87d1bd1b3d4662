"""What people read of a lambda whose callback takes batches."""

from datetime import timedelta

import duly
from duly.lambdas.info import LambdaDetail
from duly_cli.lambdas.commands import lambda_lines
from duly_wire.v1 import registry_pb2


def shown(batch: duly.Batch | None) -> tuple[duly.Batch | None, str]:
    registered = registry_pb2.RegisteredLambda()
    declared = getattr(registered, "lambda")
    declared.name = "mail.index"
    if batch is not None:
        declared.batch.CopyFrom(batch.declare())
    detail = LambdaDetail.from_proto("mail.index", registry_pb2.GetLambdaResponse(in_force=registered))
    assert detail.in_force is not None
    return detail.in_force.batch, "\n".join(lambda_lines(detail))


def test_a_lambda_is_shown_with_its_batch_and_one_without_says_nothing_of_it() -> None:
    batch = duly.Batch(size=1_000, wait=timedelta(milliseconds=50))

    assert shown(batch)[0] == batch
    assert "batch  up to 1,000 tasks a call, the first waits 50ms" in shown(batch)[1]
    assert shown(None)[0] is None
    assert "batch" not in shown(None)[1]
