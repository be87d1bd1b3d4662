"""Links to attachments: who can use one, and for how long."""

import time

import pytest
from cryptography.fernet import Fernet, MultiFernet

from duly_console.attachment_links import LIFETIME, AttachmentLinks, Linked
from duly_console.session_cookie import Session, SessionCookies

LINKED = Linked("01a215d0-58fe-71dd-87b7-e3da6e9d037a", bytes(range(32)), "report.pdf")


@pytest.fixture
def keys() -> MultiFernet:
    return MultiFernet([Fernet(Fernet.generate_key())])


def ticket_of(path: str) -> str:
    return path.removeprefix("/attachments/")


def test_a_link_leads_its_person_to_the_attachment(keys: MultiFernet) -> None:
    links = AttachmentLinks(keys)

    ticket = ticket_of(links.write(LINKED, "ann", "session"))

    assert links.read(ticket, "ann", "session") == LINKED
    assert links.read(ticket, "bob", "session") is None
    assert links.read(ticket, "ann", "another session") is None
    assert "report" not in ticket


def test_a_link_expires(keys: MultiFernet, monkeypatch: pytest.MonkeyPatch) -> None:
    links = AttachmentLinks(keys)
    ticket = ticket_of(links.write(LINKED, "ann", "session"))
    late = time.time() + LIFETIME.total_seconds() + 2

    monkeypatch.setattr("cryptography.fernet.time.time", lambda: late)

    assert links.read(ticket, "ann", "session") is None


def test_nothing_else_is_a_link(keys: MultiFernet) -> None:
    links = AttachmentLinks(keys)
    others = AttachmentLinks(MultiFernet([Fernet(Fernet.generate_key())]))
    cookies = SessionCookies.open("", LIFETIME)
    links_of_cookies = AttachmentLinks(cookies.keys)

    assert links.read(ticket_of(others.write(LINKED, "", "")), "", "") is None
    assert links.read("x", "", "") is None
    assert links.read("é", "", "") is None
    assert links_of_cookies.read(cookies.write(Session.new("token")), "", "") is None
    assert cookies.read(ticket_of(links_of_cookies.write(LINKED, "", ""))) is None
