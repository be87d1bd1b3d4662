"""What callers try that may not: every RPC by nobody and by strangers, and each role what belongs to others."""

from tests.chaos.access import AUDITOR, CLIENT, GRANTS, HOST, STRANGER
from tests.chaos.intruders import NOBODY, TRIED
from tests.fixtures.role_calls import METHODS


def test_every_rpc_is_tried_by_nobody() -> None:
    assert TRIED[NOBODY] == METHODS.keys()


def test_a_stranger_tries_all_but_what_names_only_itself_and_what_a_claims_token_decides() -> None:
    left = {path.rpartition("/")[2] for path in METHODS.keys() - TRIED[STRANGER]}

    assert left == {"GetAccess", "Heartbeat", "SetResults", "Release"}


def test_clients_try_what_hosts_and_operators_do() -> None:
    methods = {path.rpartition("/")[2] for path in TRIED[CLIENT]}

    assert {"ClaimTask", "ClaimWork", "Work", "PutResource", "SetSettings", "CreateToken"} <= methods
    assert not methods & {"Schedule", "GetTask", "CancelTask", "PutTimeTables"}


def test_auditors_try_no_reads() -> None:
    methods = {path.rpartition("/")[2] for path in TRIED[AUDITOR]}

    assert not {method for method in methods if method.startswith(("Get", "List", "Wait"))}
    assert {"Schedule", "CancelTask", "UpdateTask", "RegisterLambdas", "ClaimWork"} <= methods


def test_whoever_tries_has_a_token_unless_it_is_nobody() -> None:
    assert TRIED.keys() - GRANTS.keys() == {NOBODY}
    assert {CLIENT, HOST} <= GRANTS.keys()
