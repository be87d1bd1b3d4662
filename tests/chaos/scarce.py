"""What the tasks of a run wait for each other in: resources with few units, and sessions."""

from random import Random

import duly
from duly_wire.v1 import frontend_pb2, task_pb2

DATABASE, TENANT, MAIL = "chaos.database", "chaos.tenant", "chaos.mail"
QUOTA = "lambda:chaos.work_async"
CAPACITIES = {DATABASE: 3, TENANT: 1, MAIL: 1_000_000, QUOTA: 2}
"""So few that tasks wait for each other; those of the tenants are for each key. No task names the quota of its lambda."""
PER_KEY = frozenset({TENANT})
RATES = {MAIL: duly.Rate(4, burst=2)}
SESSIONS = tuple(f"chaos-{number}" for number in range(6))
_POLICIES = (*[duly.SessionPolicy.SKIP] * 2, duly.SessionPolicy.FAIL_REST)
_TENANTS = ("t0", "t1", "t2")
_HEAVIEST = 4
"""More than there are, which counts as all of them."""
_ONE_IN_LIMITED = 5


def choose_needs(random: Random) -> tuple[duly.ResourceNeed, ...]:
    """What the next task names: mostly nothing."""
    if random.randrange(_ONE_IN_LIMITED):
        return ()
    units = duly.ResourceNeed(DATABASE, weight=random.randint(1, _HEAVIEST))
    tenant = choose_tenant(random)
    mail = duly.ResourceNeed(MAIL)
    return random.choice([(units,), (tenant,), (units, tenant), (mail,), (mail, units)])


def choose_tenant(random: Random) -> duly.ResourceNeed:
    """What a task takes of one tenant."""
    return duly.ResourceNeed(TENANT, key=random.choice(_TENANTS))


def choose_session(random: Random) -> duly.Session:
    """A session that others are in, too. None blocks it: nobody would unblock it."""
    return duly.Session(random.choice(SESSIONS), on_failure=random.choice(_POLICIES))


def told(needs: tuple[duly.ResourceNeed, ...]) -> str:
    """Return them as the history has them."""
    return " ".join(
        f"{need.name}/{need.key}={need.weight}"
        for need in sorted(needs, key=lambda need: (need.name, need.key))
    )


def told_of(task: frontend_pb2.NewTask) -> str:
    """The same of a request."""
    needs = task_pb2.ResourceNeeds.FromString(task.resources).needs
    return told(tuple(duly.ResourceNeed(need.name, key=need.key, weight=need.weight or 1) for need in needs))
