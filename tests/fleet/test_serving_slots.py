"""How many slots serve a lambda: those of the Executors that declare it, on hosts that are alive."""

from datetime import timedelta

from duly_core.counting.backlog import read_slots
from duly_wire.v1 import fleet_pb2_grpc
from tests.fleet.test_fleet_hosts import INTERVAL, a_report


async def test_slots_are_those_of_live_executors_that_serve_the_lambda(store, frontend, clock):
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    await fleet.ReportHost(a_report("silent", lambdas=("mail.send",)))
    await clock.tick(3 * INTERVAL + timedelta(seconds=1))
    await fleet.ReportHost(a_report("one", lambdas=("mail.send", "mail.read")))
    both = [
        {"executor_id": "a", "processes": 1, "slots": 4, "lambda_set": 0},
        {"executor_id": "b", "processes": 1, "slots": 2, "lambda_set": 1},
    ]
    sets = [
        {"lambdas": [{"name": "mail.send", "version": "2"}]},
        {"lambdas": [{"name": "mail.read", "version": "2"}]},
    ]
    await fleet.ReportHost(a_report("two", executors=both, lambda_sets=sets))
    await fleet.ReportHost(a_report("draining", lambdas=("mail.send",), draining=True))

    slots = await read_slots(store, ["mail.send", "mail.read", "mail.send@2", "nobody.has"])

    assert slots == {"mail.send": 16 + 4, "mail.read": 16 + 2, "mail.send@2": 4, "nobody.has": 0}
