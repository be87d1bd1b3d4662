"""What runs in the pictures: an application of a shop, some of whose tasks fail."""

import random
import time
from datetime import timedelta

import duly

app = duly.App(owner="shop-team@example.org", version="2.4.1")
_FAST = duly.Backoff(initial=timedelta(milliseconds=50), factor=1.0, maximum=timedelta(milliseconds=100))


@app.callback("mail.send", max_attempts=3, backoff=_FAST)
def send_mail(mail: dict[str, str]) -> str:
    """Send, unless the address is refused."""
    if mail["to"].endswith(".invalid"):
        raise ConnectionRefusedError(f"the server of {mail['to'].partition('@')[2]} refuses mail")
    return f"250 queued as {abs(hash(mail['to'])) % 10**8}"


@app.callback("billing/invoice.create")
def create_invoice(order: int) -> dict[str, object]:
    """Return the invoice."""
    time.sleep(random.random() / 20)  # noqa: S311 (a picture needs no secret)
    return {"order": order, "lines": 3, "total": "129.90"}


@app.callback("image.resize", max_attempts=2, backoff=_FAST)
def resize_image(name: str, ctx: duly.TaskContext) -> str:
    """Take a while."""
    for step in range(200):
        ctx.progress(step / 200, f"tile {step} of 200")
        time.sleep(0.5)
    return name


@app.callback("node.read")
def read_node(name: str) -> str:
    """Return at once, or fail for good."""
    if name == "n7":
        raise duly.FatalFailure("n7 does not answer on its management address")
    return name


@app.callback("report.build")
def build_report(kind: str) -> str:
    """Return at once."""
    return kind


app.time_table("report.nightly", build_report, "sales", cron="0 2 * * *", zone="Europe/Berlin")
app.time_table("report.quarter-hour", build_report, "stock", every=timedelta(minutes=15))
