import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from uuid import UUID

from duly_wire import ids
from duly_wire.ids import new_task_id, new_task_id_text, new_task_id_texts


def test_an_id_is_a_uuid_of_version_7_that_tells_its_time():
    before = time.time_ns() // 1_000_000

    made = new_task_id()

    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000


def test_ids_grow_within_a_millisecond_too():
    made = [new_task_id() for _ in range(10_000)]

    assert made == sorted(set(made))


def test_ids_grow_when_the_clock_is_set_back(monkeypatch):
    earlier = new_task_id()
    monkeypatch.setattr(time, "time_ns", lambda: 0)

    assert new_task_id() > earlier


def test_ids_of_several_threads_are_all_different():
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: new_task_id(), range(2000)))

    assert len(set(made)) == len(made)


def test_ids_that_are_made_several_at_a_time_are_such_ids_and_grow():
    texts = new_task_id_texts()
    before = new_task_id_text()

    made = [*islice(texts, 2_000)]

    assert [before, *made] == sorted({before, *made})
    assert new_task_id_text() > before
    assert {(UUID(each).version, str(UUID(each)) == each) for each in made} == {(7, True)}


def test_ids_grow_where_a_tail_runs_over(monkeypatch):
    generator = ids._Generator()
    monkeypatch.setattr(generator, "_millisecond", 1 << 47)  # of a clock that was set back since
    monkeypatch.setattr(generator, "_tail", (1 << 62) - 300)

    made = generator.next_texts(256)

    assert made == sorted({*made})
    assert {UUID(each).version for each in made} == {7}


FORK = """
import os, time
time.time_ns = lambda: 10**18  # one millisecond for all of it
from duly_wire.ids import new_task_id
new_task_id()
if child := os.fork():
    os.waitpid(child, 0)
print(new_task_id(), flush=True)
"""


def test_a_forked_child_does_not_go_on_from_its_parents_ids():
    # A process of its own: this one has threads of gRPC's, which do not survive a fork.
    ran = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=30, check=True)

    one, other = (UUID(line) for line in ran.stdout.split())
    assert one.bytes[8:11] != other.bytes[8:11]
