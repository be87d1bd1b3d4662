"""A Postgres that is not what the settings take it for is told of."""

from duly_core import connecting


def test_a_pooler_that_refuses_our_settings_is_told_of_once(capsys):
    connecting._say_it_is_a_pooler.cache_clear()

    for _ in range(3):
        connecting._say_if_it_is_a_pooler("FATAL:  unsupported startup parameter: options")
    connecting._say_if_it_is_a_pooler("connection refused")

    assert capsys.readouterr().out.count("store.pooled = true") == 1
    connecting._say_it_is_a_pooler.cache_clear()
