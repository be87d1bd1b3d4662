import subprocess
import sys

SCRIPT = """
import sys
import duly
import duly.testing
import duly.callbacks.loading
import duly.callbacks.invoke

app = duly.App(owner="team-mail")

@app.callback("mail.send")
async def send(payload: dict[str, str], ctx: duly.TaskContext) -> duly.CallbackOutcome:
    return duly.Success(payload)

assert duly.testing.run(app, "mail.send", {"to": "ann"}).result == {"to": "ann"}
print(sorted({name.partition(".")[0] for name in sys.modules} & {"grpc", "grpc_status", "pydantic"}))
print(sorted(set(sys.modules) & {"duly.fleet.views", "duly.explain.views", "duly.pools.pool", "duly.tasks.task"}))
"""


def test_writing_and_running_callbacks_loads_neither_grpc_nor_pydantic_nor_what_only_clients_see():
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=30, check=False
    )

    assert (ran.stdout.split(), ran.stderr) == (["[]", "[]"], "")


def test_every_public_name_can_be_had():
    import duly

    assert set(duly.__all__) <= set(dir(duly))
    assert all(getattr(duly, name) is not None for name in duly.__all__)
    assert not hasattr(duly, "NoSuchName")
