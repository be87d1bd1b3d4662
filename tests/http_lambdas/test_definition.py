"""The file of HTTP lambdas: what it may say, and what is refused with its place."""

import contextlib
import copy
import tomllib
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly import RegistrationError
from duly.http_lambdas.definition import _Reader, read_file
from duly.lambdas.toml_file import TomlFile
from duly.webhooks import key_from_text, new_key

KEY = new_key()
GOOD = """
owner = "team-mail"
version = "7"
[keys]
"2026-11" = { file = "keys/new" }
old = { environment = "OLD_HOOK_KEY" }
[network]
allow = ["10.1.0.0/16"]
connect_timeout = "2s"
[lambdas."mail.send"]
url = "https://mail.example.org:8443/duly?tenant=3"
keys = ["2026-11", "old"]
max_runtime = "30s"
completion_timeout = "2h"
max_attempts = 4
requires = ["region=eu"]
result_limit = 1000
backoff = { initial = "500ms", factor = 3, maximum = "5m" }
[webhooks."mail.ended"]
url = "https://10.1.2.3/ended"
keys = ["old"]
"""


def read(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch):
    (folder / "keys").mkdir(exist_ok=True)
    (folder / "keys" / "new").write_text(f"{KEY}\n")
    (folder / "keys" / "bad").write_text("s3cret-in-clear")
    (folder / "http.toml").write_text(text)
    monkeypatch.setenv("OLD_HOOK_KEY", KEY)
    return read_file(folder / "http.toml")


def test_a_file_says_urls_keys_and_policies(tmp_path, monkeypatch) -> None:
    definition = read(tmp_path, GOOD, monkeypatch)

    mail, ended = definition.lambdas
    assert (definition.owner, definition.version, definition.allowed) == (
        "team-mail",
        "7",
        (ip_network("10.1.0.0/16"),),
    )
    assert mail.keys == {"2026-11": key_from_text(KEY), "old": key_from_text(KEY)}
    assert mail.policy.max_runtime == timedelta(seconds=30)
    assert (mail.completion_timeout, ended.completion_timeout) == (timedelta(hours=2), None)
    assert tuple(mail.policy.requires) == ("region=eu",)
    assert mail.policy.backoff.maximum == timedelta(minutes=5)
    assert (mail.is_webhook, ended.is_webhook) == (False, True)
    assert ended.policy.max_runtime == timedelta(minutes=1)
    assert "tenant" not in repr(mail)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('owner = "team-mail"', 'ownr = "x"', "ownr: unknown here: there are owner, version"),
        (
            'file = "keys/new"',
            'key = "whsec_AAAA"',
            "keys.2026-11: say where the key is, never the key itself",
        ),
        ('{ file = "keys/new" }', '"whsec_AAAA"', "keys.2026-11: say where the key is, never the key itself"),
        ('"keys/new"', '"keys/none"', "keys/none: No such file"),
        ('"keys/new"', '"keys/bad"', "keys/bad: a signing key begins with whsec_"),
        (
            '"OLD_HOOK_KEY"',
            '"NO_HOOK_KEY"',
            "NO_HOOK_KEY is not set, or executor.callback_environment does not name",
        ),
        ('"2026-11" =', '"a b" =', "keys.a b: the id of a key is"),
        ('"10.1.0.0/16"', '"10.1.2.3/16"', "network.allow: '10.1.2.3/16' is no network"),
        ('"2s"', "2", "network.connect_timeout: 2 is no duration"),
        ('["10.1.0.0/16"]', "[5]", "network.allow: 5 is no network"),
        ('"2s"', '"99999999999999d"', "is no duration"),
        ('"2s"', '"0s"', "network.connect_timeout: '0s' is no duration"),
        ('"2h"', '"8d"', "mail.send.completion_timeout: must be from"),
        (
            '[webhooks."mail.ended"]',
            '[webhooks."mail.ended"]\ncompletion_timeout = "1h"',
            "webhooks.mail.ended.completion_timeout: unknown here",
        ),
        ('"2h"', '"10ms"', "mail.send.completion_timeout: must be from"),
        ("https://mail", "http://mail", "lambdas.mail.send.url: http:// sends payloads and results in clear"),
        ("https://mail", "ftp://mail", "'ftp' is no scheme"),
        ("https://mail", "https://ann:pw@mail", "a user and a password do not belong into a URL"),
        ("tenant=3", "tenant=3#top", "a fragment (#...) is never sent"),
        ("/duly", "/du ly", "not a URL"),
        (":8443", ":84430", "not a URL"),
        ("https://mail.example.org:8443", "https://", "not a URL"),
        ("https://10.1.2.3", "https://10.2.2.3", "webhooks.mail.ended.url: 10.2.2.3 is not a public address"),
        ("https://10.1.2.3", "https://[::ffff:7f00:1]", "is not a public address"),
        ("https://10.1.2.3", "https://2130706433", "2130706433 is neither a name nor an address"),
        ("https://10.1.2.3", "https://0x7f.0X1", "0x7f.0x1 is neither a name nor an address"),
        ("https://10.1.2.3", "https://127.1.", "127.1. is neither a name nor an address"),
        ("https://mail", "https://m" + 63 * "a", "mail.send.url: "),
        ("https://mail.", "https://mail..", "is no name of a host"),
        ("https://mail", f"https://{60 * 'mail.'}", "is no name of a host"),
        ('["2026-11", "old"]', "[]", "lambdas.mail.send.keys: name the keys that sign"),
        ('["2026-11", "old"]', '["old", "old", "old", "old", "old", "old"]', "at most 5 keys sign a request"),
        ('["2026-11", "old"]', '["new"]', "there is no key 'new' in [keys]"),
        ("max_attempts = 4", "max_attempts = 0", "max_attempts must be a whole number from 1"),
        ("max_attempts = 4", "max_atempts = 4", "lambdas.mail.send.max_atempts: unknown here"),
        ('["region=eu"]', "3", "lambdas.mail.send.requires: must be a list of labels"),
        ('"region=eu"', '"Region EU"', "lambdas.mail.send: requires"),
        ("factor = 3", 'factor = "3"', "lambdas.mail.send.backoff.factor: must be a number"),
        ('url = "https://10', 'link = "https://10', "webhooks.mail.ended.link: unknown here"),
        ("[network]", "[network", "not TOML"),
    ],
)
def test_a_mistake_is_told_with_its_place(old, new, complaint, tmp_path, monkeypatch) -> None:
    assert GOOD.count(old) == 1

    with pytest.raises(RegistrationError) as refused:
        read(tmp_path, GOOD.replace(old, new), monkeypatch)

    assert complaint in str(refused.value)
    assert "s3cret" not in str(refused.value)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "[lambdas]", "lambdas = 3", 'lambdas = { "a.b" = 3 }'])
def test_a_file_without_lambdas_is_refused(text, tmp_path, monkeypatch) -> None:
    with pytest.raises(RegistrationError):
        read(tmp_path, text, monkeypatch)


def test_a_file_that_is_missing_is_told() -> None:
    with pytest.raises(RegistrationError, match=r"nowhere\.toml: No such file"):
        read_file(Path("nowhere.toml"))


def _places(table, path=()):
    for name, value in table.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from _places(value, (*path, name))


_SAID = tomllib.loads(GOOD.replace('{ file = "keys/new" }', '{ environment = "OLD_HOOK_KEY" }'))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([*_places(_SAID)]), _VALUES)
def test_whatever_stands_in_a_file_it_is_read_or_refused(place, value) -> None:
    said = copy.deepcopy(_SAID)
    table = said
    for name in place[:-1]:
        table = table[name]
    table[place[-1]] = value

    with contextlib.suppress(RegistrationError):
        _Reader(TomlFile(Path("http.toml")), {"OLD_HOOK_KEY": KEY}).file(said)
