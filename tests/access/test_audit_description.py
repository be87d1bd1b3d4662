"""What the audit log says of a request."""

import json

from duly_core.access.audit_entries import describe
from duly_wire.v1 import frontend_pb2, gates_pb2, limits_pb2


def test_an_instant_that_does_not_exist_is_said_to_be_invalid():
    request = frontend_pb2.ListTasksRequest()
    request.finished_after.nanos = 2_147_483_647
    assert describe(request) == '{"finished_after":"invalid"}'


def test_what_a_call_changes_is_named():
    gate = gates_pb2.PutGateRequest(
        gate={"name": "night"}, update_mask={"paths": ["reason", "scope.session"]}
    )
    resource = limits_pb2.PutResourceRequest(resources=[{"name": "database"}])
    resource.update_masks["database"].paths.append("rate")

    assert json.loads(describe(gate)) == {"gate": {"name": "night"}, "update_mask": "reason,scope.session"}
    assert json.loads(describe(resource)) == {
        "resources": [{"name": "database"}],
        "update_masks": {"database": "rate"},
    }
