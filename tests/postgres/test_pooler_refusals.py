"""A Postgres that is not what the settings take it for is told of."""

from duly_core.postgres import connection as pg_connection


def test_a_pooler_that_refuses_our_settings_is_told_of_once(capsys):
    pg_connection._say_it_is_a_pooler.cache_clear()

    for _ in range(3):
        pg_connection._say_if_it_is_a_pooler("FATAL:  unsupported startup parameter: options")
    pg_connection._say_if_it_is_a_pooler("connection refused")

    assert capsys.readouterr().out.count("store.pooled = true") == 1
    pg_connection._say_it_is_a_pooler.cache_clear()
