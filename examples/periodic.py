"""Periodic tasks: a report that covers the time since the tick before, and a heartbeat every second.

duly up examples.periodic:app
duly tables show report.hourly --next 10
"""

from datetime import timedelta

import duly

app = duly.App(owner="you@example.org", version="1")


@app.callback("report.build")
def build(kind: str, ctx: duly.TaskContext) -> dict[str, str]:
    """Build the report of the hour that ends with the tick: the same, however late it runs and however often."""
    end = ctx.tick_at or ctx.due_at  # without a tick: a client scheduled it
    start = end - timedelta(hours=1)
    return {"kind": kind, "from": start.isoformat(), "to": end.isoformat()}


@app.callback("heartbeat.note", max_runtime=timedelta(seconds=30))
def note(_: None, ctx: duly.TaskContext) -> str:
    """Return the tick that it runs for."""
    return str(ctx.tick_at)


# In the zone of those who read it. After an outage all that was missed within two days is built.
app.time_table(
    "report.hourly",
    build,
    "sales",
    cron="0 8-18 * * 1-5",
    zone="Europe/Berlin",
    catch_up=duly.CatchUp.ALL,
    catch_up_window=timedelta(days=2),
)
# One at a time: while a heartbeat takes longer than a second, ticks are left out.
app.time_table("heartbeat", note, every=timedelta(seconds=1), overlap=duly.Overlap.SKIP)
