"""SQS as bad as it may be: for a while, what its documents allow happens to a part of the calls."""

import asyncio
from dataclasses import replace

from tests.chaos.faulty_sqs import Chances
from tests.chaos.plan import Fault
from tests.chaos.stack import System


async def inject(system: System, fault: Fault) -> str:
    """Raise one chance, or take the whole service away."""
    sqs = system.sqs
    if sqs is None:
        return ""
    what = fault.kind.partition("_")[2]
    before = sqs.done.total()
    if what == "outage":
        sqs.begin_outage()
    else:
        sqs.chances = Chances(**{what: fault.amount})
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        sqs.end_outage()
        sqs.chances = replace(sqs.chances, **{what: 0}) if what != "outage" else sqs.chances
        sqs.let_go()
    done = sqs.done.total() - before
    return f"{what} for {fault.seconds:g} s, {done} times" if done else ""
