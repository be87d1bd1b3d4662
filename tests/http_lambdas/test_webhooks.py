"""Signatures of HTTP requests: what Standard Webhooks says, and what a receiver refuses."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from duly import SignatureError, webhooks

SENT_AT = datetime(2026, 11, 26, 12, tzinfo=UTC)
KEY, OTHER = b"k" * 32, b"o" * 32
BODY = b'{"to":"ann"}'


def signed(body=BODY, keys=None, **changed):
    said = {
        "task_id": "01a215a0-ca0b-73b6-8abb-0cb44ca4f999",
        "lambda_name": "mail.send",
        "attempt": 2,
        "fence": 7,
        "deadline": SENT_AT + timedelta(minutes=1),
        "now": SENT_AT.timestamp(),
    } | changed
    return webhooks.signed_headers({"new": KEY} if keys is None else keys, body, **said)


def test_a_signature_is_what_standard_webhooks_makes_of_its_own_example() -> None:
    key = webhooks.key_from_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")

    headers = signed(
        b'{"test": 2432232314}', {"k": key}, task_id="msg_p5jXN8AQM9LWM0D4loKWxJek", now=1614265330
    )

    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" in headers["webhook-signature"].split()


def test_a_receiver_reads_what_was_said_of_the_task() -> None:
    headers = {name.title(): value for name, value in signed().items()}

    delivery = webhooks.verify(headers, BODY, {"old": OTHER, "new": KEY}, now=SENT_AT + timedelta(minutes=4))

    assert (delivery.lambda_name, delivery.attempt, delivery.fence, delivery.key_id) == (
        "mail.send",
        2,
        7,
        "new",
    )
    assert delivery.deadline == SENT_AT + timedelta(minutes=1)
    assert delivery.body == BODY


def test_each_of_two_keys_verifies_while_keys_are_changed() -> None:
    headers = signed(keys={"old": OTHER, "new": KEY})

    by_old = webhooks.verify(headers, BODY, {"old": OTHER}, now=SENT_AT)
    by_new = webhooks.verify(headers, BODY, {"new": KEY}, now=SENT_AT)

    assert (by_old.key_id, by_new.key_id) == ("old", "new")


@pytest.mark.parametrize(
    ("changed", "body", "complaint"),
    [
        ({"webhook-id": "01a215a0-ca0b-73b6-8abb-0cb44ca4f998"}, BODY, "forged or changed"),
        ({"webhook-timestamp": str(int(SENT_AT.timestamp()) + 1)}, BODY, "forged or changed"),
        ({"duly-lambda": "mail.delete"}, BODY, "forged or changed"),
        ({"duly-attempt": "1"}, BODY, "forged or changed"),
        ({"duly-fence": "8"}, BODY, "forged or changed"),
        ({"duly-deadline": "2026-11-27T00:00:00.000Z"}, BODY, "forged or changed"),
        ({}, BODY + b" ", "forged or changed"),
        ({"webhook-timestamp": str(int(SENT_AT.timestamp()) - 301)}, BODY, "replayed"),
        ({"webhook-timestamp": str(int(SENT_AT.timestamp()) + 301)}, BODY, "replayed"),
        ({"webhook-timestamp": "9" * 12}, BODY, "seconds since 1970"),
        ({"webhook-timestamp": "٣"}, BODY, "not one line of ASCII"),
        ({"webhook-timestamp": "1e9"}, BODY, "seconds since 1970"),
        ({"duly-fence": "7\n"}, BODY, "not one line of ASCII"),
        ({"duly-fence": "-7"}, BODY, "whole number"),
        ({"duly-deadline": "soon"}, BODY, "RFC 3339"),
        ({"duly-deadline": "2026-11-26T12:00:00"}, BODY, "its zone"),
        ({"duly-fence": ""}, BODY, "no header duly-fence"),
        ({"webhook-signature": "v1,AAAA"}, BODY, "no signature with a key known here (new)"),
        ({"webhook-signature": "duly1,new:"}, BODY, "forged or changed"),
        ({"webhook-signature": "duly1,new:é"}, BODY, "not one line of ASCII"),
        ({"duly-lambda": "mail.send\udcff"}, BODY, "not one line of ASCII"),
        ({"webhook-signature": "duly1,other:AAAA"}, BODY, "no signature with a key known here (new)"),
    ],
)
def test_a_request_that_was_forged_changed_or_replayed_is_refused(changed, body, complaint) -> None:
    headers = signed() | changed

    with pytest.raises(SignatureError) as refused:
        webhooks.verify(headers, body, {"new": KEY}, now=SENT_AT)

    assert complaint in str(refused.value)


def test_what_duly_signs_is_what_the_page_on_it_says() -> None:
    headers = signed()
    lines = ["duly1", *(headers[name] for name in ("webhook-id", "webhook-timestamp", "duly-lambda"))]
    lines += [headers[name] for name in ("duly-attempt", "duly-fence", "duly-deadline")]

    mac = hmac.new(KEY, "".join(f"{line}\n" for line in lines).encode() + BODY, hashlib.sha256).digest()

    assert f"duly1,new:{base64.b64encode(mac).decode()}" in headers["webhook-signature"].split()


@pytest.mark.parametrize("text", ["secret", "whsec_!!!!", "whsec_c2hvcnQ=", "whsec_" + "A" * 100])
def test_a_key_that_is_none_is_refused_unquoted(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        webhooks.key_from_text(text)

    assert text.removeprefix("whsec_") not in str(refused.value)


def test_a_new_key_can_be_used() -> None:
    key = webhooks.new_key()

    headers = signed(keys={"k": webhooks.key_from_text(key)})

    assert webhooks.verify(headers, BODY, {"k": key}, now=SENT_AT).key_id == "k"


@given(
    st.sampled_from(sorted(signed())),
    st.integers(min_value=0),
    st.characters(min_codepoint=0, max_codepoint=0xDFFF),
)
def test_no_change_of_a_single_character_is_accepted(name: str, place: int, character: str) -> None:
    headers = signed()
    place %= len(headers[name])
    changed = headers[name][:place] + character + headers[name][place + 1 :]
    own = headers["webhook-signature"].partition(" ")[2]
    assume(changed != headers[name])
    assume(
        name != "webhook-signature" or own not in changed
    )  # that of Standard Webhooks is for other libraries

    with pytest.raises(SignatureError):
        webhooks.verify(headers | {name: changed}, BODY, {"new": KEY}, now=SENT_AT)
