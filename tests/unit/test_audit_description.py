"""What the audit log says of a request."""

from duly.v1 import frontend_pb2
from duly_core.access.audit import describe


def test_an_instant_that_does_not_exist_is_said_to_be_invalid():
    request = frontend_pb2.ListTasksRequest()
    request.finished_after.nanos = 2_147_483_647
    assert describe(request) == '{"finished_after":"invalid"}'
