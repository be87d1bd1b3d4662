"""The smallest application: one lambda.

duly up examples.hello:app
duly schedule hello.greet '{"name": "Ada"}' --wait
"""

from dataclasses import dataclass

import duly

app = duly.App(owner="you@example.org", version="1")


@dataclass
class Greeting:
    """What `hello.greet` takes: anything else is refused before the callback runs."""

    name: str


@app.callback("hello.greet")
def greet(greeting: Greeting, ctx: duly.TaskContext) -> dict[str, object]:
    """Return what is stored as the task's result."""
    return {"text": f"Hello, {greeting.name}!", "attempt": ctx.attempt}
