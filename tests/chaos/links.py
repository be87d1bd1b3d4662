"""Every connection of the system goes through here: a proxy for each pair that talks, and how a fault breaks one."""

from datetime import timedelta

from duly_local.ports import LOOPBACK
from tests.chaos.proxy import BACK, THERE, Proxy


class Links:
    """All proxies of a run, by the name of the pair."""

    def __init__(self) -> None:
        self._proxies: dict[str, Proxy] = {}

    async def open(self, name: str, port: int, target: str) -> None:
        """Listen on that port, and forward to `host:port`."""
        host, _, target_port = target.rpartition(":")
        proxy = self._proxies[name] = Proxy(host, int(target_port), host=LOOPBACK, port=port)
        await proxy.start()

    async def lead(self, name: str, target: str) -> None:
        """Forward to another `host:port` from now on."""
        host, _, port = target.rpartition(":")
        await self._proxies[name].lead_to(host, int(port))

    async def close(self) -> None:
        while self._proxies:
            _, proxy = self._proxies.popitem()
            await proxy.close()

    async def heal(self) -> None:
        """Be a good network again, everywhere."""
        for proxy in self._proxies.values():
            await proxy.heal()

    def __getitem__(self, name: str) -> Proxy:
        return self._proxies[name]

    def port(self, name: str) -> int:
        return self._proxies[name].port

    def address(self, name: str) -> str:
        """Where to connect to instead of to the target."""
        return self._proxies[name].address


async def spoil(proxy: Proxy, mode: str, amount: float) -> None:
    """Begin to misbehave; `amount` is the delay in seconds, or, for what is cut, whether it is lost for good."""
    if mode == "delay":
        delay = timedelta(seconds=amount)
        await proxy.delay(delay, jitter=delay / 2)
    elif mode == "blackhole":
        await proxy.blackhole(lose=bool(amount))
    elif mode == "cut_there":
        await proxy.half_open(THERE, lose=bool(amount))
    elif mode == "cut_back":
        await proxy.half_open(BACK, lose=bool(amount))
    elif mode == "refuse":
        await proxy.refuse()
        await proxy.reset()
    elif mode == "throttle":
        await proxy.throttle(int(amount))
