"""The router between the zones: a process that carries each packet, later, seldom or never, as the rules say."""

import heapq
import itertools
import json
import os
import random
import select
import signal
import socket
import time
from typing import NamedTuple


class Way(NamedTuple):
    """What happens to packets in one direction."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    """The share that is lost."""


CUT = Way(loss=1.0)

_NETWORK, _PLACE = 17, 18
"""Which bytes of an IPv4 packet say where it goes: to a network (97: by the rules, 98: by the back door), and a place there."""
_BY_THE_RULES = 97
_IPV4 = 4
_LONGEST = 65536
_A_TURN = 64
"""Packets of one zone before it is another's turn."""


def route(tuns: dict[int, int], control: socket.socket, seed: int) -> None:
    """Carry packets until the control socket is closed. `tuns`: the place of each device, by its descriptor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    randomness = random.Random(f"duly-zones/{seed}/router")
    devices = {place: tun for tun, place in tuns.items()}
    rules: dict[tuple[int, int], Way] = {}
    latest: dict[tuple[int, int], float] = {}
    delayed: list[tuple[float, int, int, bytes]] = []
    number = itertools.count()
    poll = select.epoll()
    for descriptor in (*tuns, control.fileno()):
        poll.register(descriptor, select.EPOLLIN)
    while True:
        wait = max(0.0, delayed[0][0] - time.monotonic()) if delayed else -1
        for descriptor, _ in poll.poll(wait):
            if descriptor == control.fileno():
                said = control.recv(_LONGEST)
                if not said:
                    return
                source, target, *way = json.loads(said)
                rules.pop((source, target), None)
                if way:
                    rules[source, target] = Way(*way)
                continue
            source = tuns[descriptor]
            for _ in range(_A_TURN):
                try:
                    packet = os.read(descriptor, _LONGEST)
                except BlockingIOError:
                    break
                if packet[0] >> 4 != _IPV4:
                    continue
                target = packet[_PLACE]
                rule = rules.get((source, target)) if packet[_NETWORK] == _BY_THE_RULES else None
                if rule is None:
                    _deliver(devices, target, packet)
                elif randomness.random() >= rule.loss:
                    due = time.monotonic() + rule.delay_s + randomness.uniform(0, rule.jitter_s)
                    due = latest[source, target] = max(due, latest.get((source, target), 0.0))  # in order
                    heapq.heappush(delayed, (due, next(number), target, packet))
        now = time.monotonic()
        while delayed and delayed[0][0] <= now:
            _, _, target, packet = heapq.heappop(delayed)
            _deliver(devices, target, packet)


def _deliver(devices: dict[int, int], target: int, packet: bytes) -> None:
    if target in devices:
        try:
            os.write(devices[target], packet)
        except OSError:  # its queue is full, or the zone is being taken down: a lost packet
            return
