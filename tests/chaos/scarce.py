"""The resources of a run: how many units there are, and what tasks take of them."""

from random import Random

import duly

DATABASE, TENANT, MAIL = "chaos.database", "chaos.tenant", "chaos.mail"
QUOTA = "lambda:chaos.work_async"
CAPACITIES = {DATABASE: 3, TENANT: 1, MAIL: 1_000_000, QUOTA: 2}
"""So few that tasks wait for each other; those of the tenants are for each key. No task names the quota of its lambda."""
PER_KEY = frozenset({TENANT})
RATES = {MAIL: duly.Rate(4, burst=2)}
_TENANTS = ("t0", "t1", "t2")
_HEAVIEST = 4
"""More than there are, which counts as all of them."""
_ONE_IN_LIMITED = 5


def choose_needs(random: Random) -> tuple[duly.ResourceNeed, ...]:
    """What the next task names: mostly nothing."""
    if random.randrange(_ONE_IN_LIMITED):
        return ()
    units = duly.ResourceNeed(DATABASE, weight=random.randint(1, _HEAVIEST))
    tenant = duly.ResourceNeed(TENANT, key=random.choice(_TENANTS))
    mail = duly.ResourceNeed(MAIL)
    return random.choice([(units,), (tenant,), (units, tenant), (mail,), (mail, units)])


def told(needs: tuple[duly.ResourceNeed, ...]) -> str:
    """Return them as the history has them."""
    return " ".join(
        f"{need.name}/{need.key}={need.weight}"
        for need in sorted(needs, key=lambda need: (need.name, need.key))
    )
