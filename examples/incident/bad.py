"""Version 2026.11.2: it reads a field that no client sends."""

from datetime import timedelta

import duly

app = duly.App(owner="shop-team@example.org", version="2026.11.2")
RETRIES = duly.Backoff(initial=timedelta(seconds=1), factor=2.0, maximum=timedelta(seconds=4))


@app.callback("mail.send", max_attempts=3, backoff=RETRIES)
def send(mail: dict[str, str]) -> str:
    """Send a mail, and return where it went."""
    return f"sent to {mail['recipient']}"
