"""Messages as webhooks, Slack and mail get them: names and texts of others are text, and nothing else."""

import json
from datetime import UTC, datetime
from email import message_from_bytes, policy

import pytest

from duly_core.notifications.messages import email, escaped, slack_body, title_of, webhook_body
from duly_core.notifications.rules import Event, Item, Message, Stated, message_of

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
CONSOLE = "https://duly.example.com"
HOSTILE = "mail.send\r\nBcc: eve@example.com\n\n<!channel> @all [x](https://evil.example) `a`\x1b[2J\u202e"


def an_item(event: Event = Event.NEW, text: str = "no live host serves mail.send", severity: int = 3) -> Item:
    stated = Stated(
        fingerprint="0123456789abcdef",
        kind="no_host",
        severity=severity,
        subject="mail.send",
        since_at=NOON,
        text=text,
        hits="3 tasks of mail.send",
    )
    return Item(event=event, problem=stated)


def a_message(*items: Item) -> Message:
    return message_of(items or [an_item()], "7e57", NOON)


def test_a_webhook_says_which_problems_changed_with_links() -> None:
    said = json.loads(webhook_body(a_message(), "ops", CONSOLE))

    assert said == {
        "type": "problems.changed",
        "timestamp": "2026-11-27T12:00:00+00:00",
        "data": {
            "id": "7e57",
            "target": "ops",
            "title": "critical: no live host serves mail.send",
            "severity": "critical",
            "counts": {"new": 1},
            "problems": [
                {
                    "event": "new",
                    "fingerprint": "0123456789abcdef",
                    "kind": "no_host",
                    "severity": "critical",
                    "subject": "mail.send",
                    "since_at": "2026-11-27T12:00:00+00:00",
                    "text": "no live host serves mail.send",
                    "hits": "3 tasks of mail.send",
                    "url": "https://duly.example.com/#card-0123456789abcdef",
                }
            ],
            "left_out": 0,
            "url": "https://duly.example.com/",
        },
    }


def test_without_the_consoles_address_there_are_no_links() -> None:
    said = json.loads(webhook_body(a_message(), "ops", ""))

    assert (said["data"]["url"], said["data"]["problems"][0]["url"]) == (None, None)
    assert "://" not in json.loads(slack_body(a_message(), ""))["text"]


@pytest.mark.parametrize(
    ("items", "title"),
    [
        ([an_item()], "critical: no live host serves mail.send"),
        ([an_item(Event.RESOLVED)], "resolved: no live host serves mail.send"),
        ([an_item(Event.STILL)], "critical: still there: no live host serves mail.send"),
        ([an_item(severity=2), an_item(Event.RESOLVED)], "warning: 2 problems (1 new, 1 resolved)"),
        ([an_item(Event.RESOLVED), an_item(Event.RESOLVED)], "resolved: 2 problems"),
        ([an_item(text="x" * 400)], f"critical: {'x' * 139}…"),
    ],
)
def test_a_title_says_in_one_line_what_changed(items, title) -> None:
    assert title_of(a_message(*items)) == title


def test_slack_gets_text_without_mentions_markup_or_links_of_others() -> None:
    body = json.loads(slack_body(a_message(an_item(text=HOSTILE)), CONSOLE))
    text = body["text"]
    lines = text.splitlines()

    assert (body["unfurl_links"], body["unfurl_media"]) == (False, False)
    assert "<!channel>" not in text
    assert "@all" not in text
    assert "](" not in text
    assert "`" not in text.replace("`\u200b", "")
    assert [line for line in lines if "://" in line] == ["https://duly.example.com/#card-0123456789abcdef"]
    assert len(lines) == 3


def test_what_is_escaped_reads_as_it_was() -> None:
    shown = escaped("a_b *c* <d> & @e").replace("\u200b", "")

    assert shown == "a_b *c* &lt;d&gt; &amp; @e"


def test_names_of_others_add_no_header_and_no_recipient_to_a_mail() -> None:
    mail = email(a_message(an_item(text=HOSTILE)), "ops", CONSOLE, "duly@example.com", ["ann@example.com"])
    read = message_from_bytes(mail.as_bytes(), policy=policy.default)

    assert read["Bcc"] is None
    assert (read["To"], read["From"]) == ("ann@example.com", "duly@example.com")
    assert "\n" not in read["Subject"]
    assert "\x1b" not in read.get_content()
    assert not [line for line in read.get_content().splitlines() if line.startswith("Bcc")]


def test_a_mail_that_is_sent_again_has_the_same_id() -> None:
    first, second = (
        email(a_message(), "ops", CONSOLE, "duly@example.com", ["ann@example.com"]) for _ in range(2)
    )

    assert first["Message-ID"] == "<7e57@example.com>" == second["Message-ID"]
    assert (first["Auto-Submitted"], first["Duly-Notification-Id"]) == ("auto-generated", "7e57")
    assert "https://duly.example.com/#card-0123456789abcdef" in first.get_content()


def test_a_test_says_that_it_is_one() -> None:
    test = Message(message_id="7e57", created_at=NOON, items=(), counts={}, worst=0)

    assert json.loads(webhook_body(test, "ops", CONSOLE))["type"] == "test"
    assert "a test" in json.loads(slack_body(test, CONSOLE))["text"]
    assert "a test" in email(test, "ops", CONSOLE, "duly@example.com", ["ann@example.com"])["Subject"]
