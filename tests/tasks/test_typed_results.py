"""A client reads the results of what it scheduled into the types that callbacks declare, through a real Frontend."""

import asyncio
from dataclasses import dataclass

import pytest

import duly
from tests.fixtures.graph_states import claim_work, end
from tests.fixtures.task_states import LAMBDA


@dataclass
class Greeted:
    text: str


async def test_a_client_that_schedules_a_callback_gets_its_result_typed(frontend, task_states):
    app = duly.App()

    @app.callback(LAMBDA)
    async def greet(name: str) -> Greeted:
        raise NotImplementedError

    await task_states.register()
    async with duly.AsyncClient(frontend.address) as client:
        handle = await client.schedule(greet, "Ada")
        named = await client.schedule(LAMBDA, result_type=Greeted)
        await end(task_states.store, await claim_work(task_states.store), result=b'{"text": "Hello"}')

        assert (await client.wait(handle)).result.text == "Hello"
        assert (await client.get(named)).result.text == "Hello"
        assert (await client.wait(str(handle))).result == {"text": "Hello"}
        with pytest.raises(duly.RegistrationError):
            await client.schedule(LAMBDA, result_type=complex)
    with duly.Client(frontend.address) as blocking:
        assert await asyncio.to_thread(lambda: blocking.wait(handle).result.text) == "Hello"
