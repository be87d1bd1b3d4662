"""A Postgres that cannot be what the settings take it for is refused with the mend, or told of."""

import pytest

from duly_controller import __main__ as controller
from duly_core import connecting
from duly_core.errors import SettingsError
from duly_store_consumer import __main__ as store_consumer


def test_a_store_consumer_behind_a_pooler_must_know_where_the_queue_is(monkeypatch):
    monkeypatch.setenv("DULY_STORE_POOLED", "true")

    with pytest.raises(SettingsError, match=r"store\.direct_dsn or queue\.dsn"):
        store_consumer.build()


def test_a_host_must_know_where_the_queue_is(monkeypatch):
    monkeypatch.delenv("DULY_QUEUE_DSN", raising=False)

    with pytest.raises(SettingsError, match="DULY_QUEUE_DSN"):
        controller.build([])


def test_a_pooler_that_refuses_our_settings_is_told_of_once(capsys):
    connecting._say_it_is_a_pooler.cache_clear()

    for _ in range(3):
        connecting._say_if_it_is_a_pooler("FATAL:  unsupported startup parameter: options")
    connecting._say_if_it_is_a_pooler("connection refused")

    assert capsys.readouterr().out.count("store.pooled = true") == 1
    connecting._say_it_is_a_pooler.cache_clear()
