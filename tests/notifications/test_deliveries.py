"""Deliveries to real servers: what arrives, and what is said of those that do not, without a word of a secret."""

import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from duly import webhooks
from duly_core.errors import SettingsError
from duly_core.notifications.rules import Event, Item, Message, Stated, message_of
from duly_core.notifications.settings import NotificationSettings
from duly_frontend.notifications.deliveries import Deliveries, Outcome
from duly_local.certificates import make_authority, make_certificate
from duly_local.ports import free_ports
from tests.fixtures.receivers import authenticate, serving_mail

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
STATED = Stated(
    fingerprint="0123456789abcdef",
    kind="no_host",
    severity=3,
    subject="mail.send",
    since_at=NOON,
    text="no live host serves mail.send",
    hits="",
)
MESSAGE = message_of([Item(event=Event.NEW, problem=STATED)], "7e57-1d", NOON)
LOOPBACK = ("127.0.0.0/8",)
SECOND = timedelta(seconds=1)


async def delivered(target: dict[str, object], message: Message = MESSAGE, **settings: object) -> Outcome:
    told = {"allow": LOOPBACK, "allow_plaintext": True, "timeout": SECOND} | settings
    deliveries = Deliveries(NotificationSettings(targets={"ops": target}, **told), "https://duly.example.com")
    try:
        return await deliveries.deliver("ops", message, 1)
    finally:
        await deliveries.close()


def mail_target(address: str, **more: object) -> dict[str, object]:
    return {
        "kind": "email",
        "smtp": address,
        "tls": "none",
        "sender": "duly@example.com",
        "recipients": ["ann@example.com", "bob@example.com"],
    } | more


async def test_a_webhook_is_posted_with_its_id_and_signed_as_http_lambdas_are(receiver, tmp_path) -> None:
    old, new = webhooks.new_key(), webhooks.new_key()
    keys = tmp_path / "keys"
    keys.write_text(f"{new}\n{old}\n", encoding="utf-8")
    outcome = await delivered({"kind": "webhook", "url": receiver.url, "key_file": str(keys)})

    assert outcome.failure == ""
    ((request,), (body,)) = receiver.requests, receiver.bodies
    assert (request.path, request.headers["Content-Type"]) == ("/hooks/s3cret", "application/json")
    for key_id, key in (("1", new), ("2", old)):
        delivery = webhooks.verify(request.headers, body, {key_id: key})
        assert (delivery.task_id, delivery.lambda_name) == ("7e57-1d", "notifications:ops")
    assert receiver.said[0]["id"] == "7e57-1d"


async def test_slack_gets_its_own_json(receiver, monkeypatch) -> None:
    monkeypatch.setenv("OPS_HOOK", receiver.url)
    outcome = await delivered({"kind": "slack", "url_environment": "OPS_HOOK"})

    assert outcome.failure == ""
    assert b'"text": "*Duly: critical: no live host serves mail.send*' in receiver.bodies[0]


@pytest.mark.parametrize(
    ("status", "words"), [(500, "it answered 500"), (404, "it answered 404"), (302, "it answered 302")]
)
async def test_an_answer_that_is_no_success_is_a_failure_and_no_redirect_is_followed(
    receiver, status, words
) -> None:
    receiver.status, receiver.headers = status, {"Location": receiver.url}
    outcome = await delivered({"kind": "webhook", "url": receiver.url})

    assert outcome == Outcome(words)
    assert len(receiver.requests) == 1


async def test_a_receiver_says_when_it_wants_the_next_one(receiver) -> None:
    receiver.status, receiver.headers = 429, {"Retry-After": "90"}

    assert await delivered({"kind": "slack", "url": receiver.url}) == Outcome(
        "it answered 429", timedelta(seconds=90)
    )


async def test_a_receiver_that_never_answers_is_given_up_at_the_deadline(receiver) -> None:
    receiver.is_silent = True

    assert await delivered({"kind": "webhook", "url": receiver.url}) == Outcome("no answer within 1 s")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/s3cret", "http://localhost:9/s3cret", "http://169.254.169.254/s3cret"]
)
async def test_nothing_is_posted_to_an_address_that_is_not_allowed(url) -> None:
    outcome = await delivered({"kind": "webhook", "url": url}, allow=())

    assert "not public" in outcome.failure
    assert "s3cret" not in outcome.failure


async def test_a_port_where_nobody_listens_is_named_by_its_error_and_not_by_its_url() -> None:
    (port,) = free_ports(1)
    outcome = await delivered({"kind": "webhook", "url": f"http://127.0.0.1:{port}/s3cret"})

    assert outcome.failure == "no connection: Connection refused"


async def test_a_mail_arrives_with_its_headers(mail_receiver) -> None:
    outcome = await delivered(mail_target(mail_receiver.address))

    assert outcome.failure == ""
    (envelope,) = mail_receiver.envelopes
    assert envelope.rcpt_tos == ["ann@example.com", "bob@example.com"]
    assert b"Subject: Duly: critical: no live host serves mail.send" in envelope.content


async def test_a_recipient_that_is_refused_is_a_failure_that_names_how_many(mail_receiver) -> None:
    mail_receiver.refused = {"bob@example.com"}

    some = await delivered(mail_target(mail_receiver.address))
    mail_receiver.refused.add("ann@example.com")
    none = await delivered(mail_target(mail_receiver.address))

    assert some.failure == "the mail server took it for 1 of 2 recipients"
    assert none.failure == "the mail server refused all recipients"


@asynccontextmanager
async def mail_with_tls(folder, *, implicit: bool):
    make_authority(folder)
    make_certificate(folder, "mail", ["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "mail.pem", folder / "mail.key")
    options = {"ssl_context": context} if implicit else {"tls_context": context, "require_starttls": True}
    login = {"authenticator": authenticate, "auth_required": not implicit, "auth_require_tls": not implicit}
    async with serving_mail(**options, **login) as receiver:
        yield receiver, str(folder / "ca.pem")


@pytest.mark.parametrize("tls", ["starttls", "tls"])
async def test_a_mail_server_with_tls_and_a_login_gets_both(tmp_path, tls) -> None:
    (tmp_path / "password").write_text("s3cret\n", encoding="utf-8")
    async with mail_with_tls(tmp_path, implicit=tls == "tls") as (receiver, ca_file):
        target = mail_target(receiver.address, tls=tls, user="duly", password_file=str(tmp_path / "password"))
        right = await delivered(target, ca_file=ca_file, timeout=10 * SECOND)
        untrusted = await delivered(target, timeout=10 * SECOND)
        (tmp_path / "password").write_text("another", encoding="utf-8")
        wrong = await delivered(target, ca_file=ca_file, timeout=10 * SECOND)

    assert right.failure == ""
    assert len(receiver.envelopes) == 1
    assert "certificate" in untrusted.failure
    assert wrong.failure.startswith("the mail server answered 535")


async def test_a_mail_server_that_never_answers_is_given_up_at_the_deadline(silent_server) -> None:
    outcome = await delivered(mail_target(silent_server))

    assert outcome.failure in ("no answer within 1 s", "no answer in time")


async def test_a_secret_that_cannot_be_read_is_said_when_it_is_needed_and_at_the_start(
    receiver, tmp_path
) -> None:
    file = tmp_path / "url"
    file.write_text(receiver.url, encoding="utf-8")
    settings = NotificationSettings(
        targets={"ops": {"kind": "slack", "url_file": str(file)}}, allow=LOOPBACK, allow_plaintext=True
    )
    deliveries = Deliveries(settings, "")
    file.unlink()
    outcome = await deliveries.deliver("ops", MESSAGE, 1)
    await deliveries.close()

    assert outcome.failure == f"url_file {file} cannot be read: No such file or directory"
    with pytest.raises(SettingsError, match=r"notifications.targets.ops: url_file .* cannot be read"):
        Deliveries(settings, "")


@pytest.mark.parametrize("host", ["hooks..example.com", ".example.com", f"{'a' * 64}.example.com"])
async def test_a_host_that_cannot_be_a_name_is_refused_and_found_in_a_file_it_is_a_failure(
    receiver, tmp_path, host
) -> None:
    file = tmp_path / "url"
    file.write_text(receiver.url, encoding="utf-8")
    deliveries = Deliveries(
        NotificationSettings(
            targets={"ops": {"kind": "slack", "url_file": str(file)}}, allow=LOOPBACK, allow_plaintext=True
        ),
        "",
    )
    file.write_text(f"https://{host}/s3cret", encoding="utf-8")
    outcome = await deliveries.deliver("ops", MESSAGE, 1)
    await deliveries.close()

    assert outcome.failure.startswith("the URL is none: ")
    for target in ({"kind": "webhook", "url": f"https://{host}/s3cret"}, mail_target(f"{host}:25")):
        with pytest.raises(SettingsError, match=r"the URL is none|is not HOST:PORT") as refused:
            NotificationSettings.load(targets={"ops": target})
        assert "s3cret" not in str(refused.value)


def test_a_url_in_the_place_of_a_name_is_refused_and_not_shown() -> None:
    target = {"kind": "slack", "url_environment": "OPS_HOOK"}
    with pytest.raises(SettingsError, match="is no name of a target") as refused:
        NotificationSettings.load(targets={"https://hooks.example.com/s3cret": target})

    assert "s3cret" not in str(refused.value)
