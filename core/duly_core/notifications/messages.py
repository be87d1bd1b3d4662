"""Writes messages as their receivers read them: JSON of webhooks, JSON of Slack, e-mail. No I/O.

Names, and texts that others wrote, are hostile: none may break a line, a header or a link, mention people, or be markup.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

from duly_core.notifications.rules import Event, Item, Message, Stated
from duly_core.problems.kinds import Severity
from duly_core.problems.problem import clean

TYPE = "problems.changed"
_LONGEST_TITLE = 150
_ZERO_WIDTH_SPACE = "\u200b"
_MARKS = ("@", "*", "~", "`", "[", "](", "://")
"""What begins a mention, markup or a link: a space without width is put into it. Underscores are in many names."""
_WORDS = {Event.NEW: "new", Event.WORSE: "worse", Event.STILL: "still there", Event.RESOLVED: "resolved"}
_TEST = "a test: somebody asked Duly to send it"


def link_of(public_url: str, fingerprint: str = "") -> str:
    """Return the console's page of a problem; empty: nobody has said where the console is."""
    if not public_url:
        return ""
    return f"{public_url.rstrip('/')}/" + (f"#card-{fingerprint}" if fingerprint else "")


def title_of(message: Message) -> str:
    """Return a message in one line.

    >>> from datetime import UTC
    >>> title_of(Message(message_id="1", created_at=datetime.now(UTC), items=(), counts={}, worst=0))
    'a test: somebody asked Duly to send it'
    """
    if not message.counts:
        return _TEST
    level = f"{_severity(message.worst)}: " if message.worst else ""
    total = sum(message.counts.values())
    if total == 1 and message.items:
        item = message.items[0]
        prefix = "" if item.event is Event.NEW else f"{_WORDS[item.event]}: "
        return _shortened(f"{level}{prefix}{clean(item.problem.text)}")
    if [*message.counts] == [Event.RESOLVED.value]:
        return f"resolved: {total:,} problems"
    events = ", ".join(f"{number:,} {_WORDS[Event(event)]}" for event, number in message.counts.items())
    return f"{level}{total:,} problems ({events})"


def webhook_body(message: Message, target: str, public_url: str) -> bytes:
    """Return what is posted to a webhook."""
    said = {
        "type": TYPE if message.counts else "test",
        "timestamp": message.created_at.isoformat(),
        "data": {
            "id": message.message_id,
            "target": target,
            "title": title_of(message),
            "severity": _severity(message.worst) if message.worst else None,
            "counts": dict(message.counts),
            "problems": [_problem(each, public_url) for each in message.items],
            "left_out": message.left_out,
            "url": link_of(public_url) or None,
        },
    }
    return json.dumps(said, ensure_ascii=False).encode()


def _problem(item: Item, public_url: str) -> dict[str, Any]:
    problem = item.problem
    return {
        "event": item.event.value,
        "fingerprint": problem.fingerprint,
        "kind": problem.kind,
        "severity": _severity(problem.severity),
        "subject": clean(problem.subject),
        "since_at": problem.since_at.isoformat(),
        "text": clean(problem.text),
        "hits": clean(problem.hits),
        "url": link_of(public_url, problem.fingerprint) or None,
    }


def slack_body(message: Message, public_url: str) -> bytes:
    """Return what is posted to an incoming webhook of Slack, or of what reads the same, such as Mattermost."""
    lines = [f"*Duly: {escaped(title_of(message))}*"]
    if len(message.items) == 1 and not message.left_out:
        problem = message.items[0].problem
        lines += [_facts(problem, escape=True), link_of(public_url, problem.fingerprint)]
    else:
        lines += [_slack_line(each, public_url) for each in message.items]
        lines += [f"and {message.left_out:,} more"] if message.left_out else []
        lines += [link_of(public_url)]
    text = "\n".join(line for line in lines if line)
    return json.dumps({"text": text, "unfurl_links": False, "unfurl_media": False}).encode()


def _slack_line(item: Item, public_url: str) -> str:
    problem = item.problem
    words = escaped(f"{_WORDS[item.event]}, {_severity(problem.severity)}: {clean(problem.text)}")
    link = link_of(public_url, problem.fingerprint)
    return f"- {words}{f' (<{link}|open>)' if link else ''}"


def escaped(text: str) -> str:
    """Return a text in which Slack and Mattermost find no markup, no link and nobody's name.

    >>> escaped("<!channel> a&b")
    '&lt;!channel&gt; a&amp;b'
    """
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for mark in _MARKS:
        plain = plain.replace(mark, mark[:1] + _ZERO_WIDTH_SPACE + mark[1:])
    return plain


def email(
    message: Message, target: str, public_url: str, sender: str, recipients: Sequence[str]
) -> EmailMessage:
    """Return an e-mail. Its id follows from the message's, so that one that is sent again is the same."""
    mail = EmailMessage(policy=SMTP)
    mail["Subject"] = f"Duly: {title_of(message)}"
    mail["From"] = sender
    mail["To"] = ", ".join(recipients)
    mail["Date"] = message.created_at
    mail["Message-ID"] = f"<{message.message_id}@{sender.partition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["Duly-Notification-Id"] = message.message_id
    mail.set_content("\n".join(_mail_lines(message, target, public_url)) + "\n")
    return mail


def _mail_lines(message: Message, target: str, public_url: str) -> list[str]:
    lines = [title_of(message), ""]
    for each in message.items:
        problem = each.problem
        lines += [f"{_WORDS[each.event]}, {_severity(problem.severity)}: {clean(problem.text)}"]
        lines += [f"    {_facts(problem)}"]
        if link := link_of(public_url, problem.fingerprint):
            lines += [f"    {link}"]
        lines += [""]
    if message.left_out:
        lines += [f"and {message.left_out:,} more", ""]
    if link := link_of(public_url):
        lines += [link]
    return [*lines, f"Sent by Duly to the target {target}. `duly status` says how things stand now."]


def _facts(problem: Stated, *, escape: bool = False) -> str:
    since = f"since {_moment(problem.since_at)}"
    hits = clean(problem.hits)
    return f"{since}, hits {escaped(hits) if escape else hits}" if hits else since


def _moment(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%d %H:%M:%S UTC")


def _severity(number: int) -> str:
    return Severity(number).name.lower()


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TITLE else f"{text[: _LONGEST_TITLE - 1]}…"
