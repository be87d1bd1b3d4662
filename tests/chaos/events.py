"""Events that tasks wait for: the client of a task sends one, or two people use one address; the run itself does after the traffic."""

import asyncio
import json
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from random import Random

from duly_wire.v1 import event_addresses_pb2, events_pb2, task_pb2
from tests.chaos.calls import Calls
from tests.chaos.history import AddressUse
from tests.chaos.kinds import EVENT_KEY

_WITHIN_S = 5.0
_ONE_IN_GUESSED = 3
"""Addresses: somebody tries a token that nobody made."""
_SERVICE = "event_addresses"


def sent_to(task_ids: Iterable[str]) -> events_pb2.SendEventsRequest:
    """Return the request with the event of each task, which is the same each time."""
    return events_pb2.SendEventsRequest(
        events=[
            events_pb2.NewEvent(
                key=EVENT_KEY.format(task_id),
                value=b'"sent"',
                value_encoding=task_pb2.ENCODING_JSON,
                event_id="1",
            )
            for task_id in task_ids
        ]
    )


class LateEvents:
    """Sends the events of tasks whose client is gone: it never had an answer to the task, or to its event."""

    def __init__(self, calls: Calls, told: Collection[str]) -> None:
        """Make them; `told`: tasks whose event was acknowledged, which must not need another."""
        self._calls = calls
        self._told = told

    async def send(self, waiting: Iterable[str]) -> None:
        """Send them to those of these tasks; what is not answered soon is left to the next time."""
        late = [task_id for task_id in waiting if task_id not in self._told]
        if late:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WITHIN_S):
                    await self._calls.call("SendEvents", sent_to(late), "events")


class Addresses:
    """Two people use the address of an event at the same time, and somebody guesses one."""

    def __init__(self, calls: Calls, random: Random, uses: list[AddressUse]) -> None:
        """Make them; `uses` is where they are noted, before there is an answer."""
        self._calls = calls
        self._random = random
        self._uses = uses

    async def use(self, task_id: str) -> list[str]:
        """Make an address and use it; return the answers that must not be."""
        key = EVENT_KEY.format(task_id)
        new = event_addresses_pb2.NewEventAddress(key=key, title="Ship it?")
        request = event_addresses_pb2.CreateEventAddressesRequest(addresses=[new])
        answer, _ = await self._calls.call("CreateEventAddresses", request, _SERVICE)
        (made,) = answer.results
        if made.HasField("error"):
            return [f"no address of {key}: {made.error.message}"]
        guess = made.token[::-1]
        people = [(made.token, "first", False), (made.token, "second", False), (guess, "guess", True)]
        if self._random.randrange(_ONE_IN_GUESSED):
            people.pop()
        found = await asyncio.gather(*(self._use(key, *each) for each in people))
        return [problem for problem in found if problem]

    async def _use(self, key: str, token: str, value: str, is_guessed: bool) -> str:
        use = AddressUse(key, json.dumps(value), "", guessed=is_guessed)
        place = len(self._uses)
        self._uses.append(use)
        request = event_addresses_pb2.UseEventAddressRequest(token=token, value=use.value.encode())
        answer, tries = await self._calls.call("UseEventAddress", request, _SERVICE)
        if answer.HasField("error"):
            return f"a use of the address of {key}: {answer.error.message}"
        state = event_addresses_pb2.EventAddressState.Name(answer.state)
        self._uses[place] = replace(
            use, answer=state.removeprefix("EVENT_ADDRESS_STATE_").lower(), tries=tries
        )
        return ""
