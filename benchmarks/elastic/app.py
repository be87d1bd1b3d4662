"""The application of the minutes for real: a task that takes a while and costs nothing."""

import time

import duly

app = duly.App(owner="bench@example.org", version="1")


@app.callback("elastic.wait")
def wait(seconds: float) -> None:
    """Take so long."""
    time.sleep(seconds)
