"""The sessions that tests leave to the next one."""

import psycopg
import pytest

from tests.fixtures.warm_sessions import WarmSessions, _Kept


def test_a_session_that_was_ended_meanwhile_is_not_lent(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = WarmSessions()
    monkeypatch.setattr(sessions, "is_paused", False)
    sessions.begin("x")
    with psycopg.connect(dsn, autocommit=True) as admin:
        alive, ended = (psycopg.connect(dsn, autocommit=True) for _ in range(2))
        assert all(sessions.keep("x", (), _Kept(each.pgconn, None, None)) for each in (alive, ended))
        admin.execute("select pg_terminate_backend(%s, 20000)", [ended.info.backend_pid])

        lent = [sessions.take("x", ()), sessions.take("x", ())]

    assert [each and each.pgconn for each in lent] == [alive.pgconn, None]
    alive.close()
