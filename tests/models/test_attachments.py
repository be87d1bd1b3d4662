"""Attachments in the store and in a folder: what a task uses is never removed, and nothing that no task uses stays.

Each rule is a step of some process: an upload may stop after any of its steps, and a sweep after any of its own.
"""

import hashlib
import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from duly_core.attachments import store as attachments
from duly_core.attachments.blobs import BlobThreads
from duly_core.attachments.folder import FolderBlobs
from duly_core.attachments.rules import AttachmentUse, Role
from duly_core.attachments.store import Upload
from duly_core.attachments.sweep import Sweep, SweepRound
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QueueKey, namespace_of
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.results.store import set_results
from duly_core.tasks import bulk, claims, dead_letters, polling, schedule
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.lifecycle import FINAL
from duly_core.tasks.store import TaskFilter
from duly_core.tasks.task import ClaimedTask, NewTask, Proposal, Result, Scheduling, Session
from duly_wire.enums import FailureKind, Outcome, Priority
from duly_wire.ids import TaskId
from tests.models.world import EPOCH, World

EXAMPLES = int(os.environ.get("DULY_MODEL_EXAMPLES", "10"))
FAST = EXAMPLES < 1000
LAMBDAS = ("mail.send", "shop/mail.sort")
SECOND = timedelta(seconds=1)
LEASE, GRACE = 5 * SECOND, 2 * SECOND
CONTENTS = (b"one", b"two", b"")
OUTCOMES = (
    Outcome.SUCCESS,
    Outcome.FATAL_FAILURE,
    Outcome.RETRIABLE_FAILURE,
    Outcome.SNOOZED,
    Outcome.CRASHED,
)
CONTENT = st.sampled_from(CONTENTS)
SOME = st.lists(CONTENT, max_size=2)
LAMBDA = st.sampled_from([LAMBDAS[0], LAMBDAS[0], LAMBDAS[1]])
PICKS = st.integers(0, 1000)

USED = """
select used.namespace, used.hash, attachment.blob, attachment.size_bytes,
    attachment.stored_at is not null and attachment.removing_at is null
from attachment_use as used
join task using (task_id)
left join attachment using (namespace, hash)
"""
USES = "select task_id, by_run, hash from attachment_use where task_id in (select task_id from task)"


def digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def use(content: bytes, role: Role = Role.INPUT) -> AttachmentUse:
    return AttachmentUse(digest(content), len(content), "file", role=role)


class AttachmentMachine(RuleBasedStateMachine):
    world: World

    @initialize(has_queue=st.booleans())
    def begin(self, has_queue: bool) -> None:
        self.world.reset()
        self.now: datetime = EPOCH
        self.has_queue = has_queue
        self.count = 0
        self.claimed: dict[TaskId, ClaimedTask] = {}
        self.uses: dict[TaskId, dict[bool, list[bytes]]] = {}
        """What each task that was written uses, as this machine knows it: by whether a run kept it."""
        self.old_blobs: list[tuple[UUID, bytes]] = []
        self.folder = tempfile.TemporaryDirectory(prefix="duly-attachments-")
        self.blobs = FolderBlobs.open(self.folder.name)
        self.threads = BlobThreads(self.blobs, 1)
        self.sweep = Sweep(
            self.world.store, self.threads, GRACE, lambda: datetime.now(UTC) + timedelta(days=1)
        )
        policies = [LambdaPolicy(name, max_attempts=3, max_crashes=2) for name in LAMBDAS]
        self.world.run(lambdas.register(self.world.store, policies))

    def _begin_upload(self, content: bytes, name: str) -> None:
        part_hashes = digest(content) if content else b""
        upload = Upload(digest(content), len(content), part_hashes)
        begun = self.world.run(attachments.begin_uploads(self.world.store, namespace_of(name), [upload], 0))
        blob = begun[upload.hash].blob
        if blob is not None:
            self.old_blobs.append((blob, content))

    def _send_part(self, content: bytes, name: str) -> None:
        if content:
            (expected,) = self.world.run(
                attachments.expected_parts(
                    self.world.store, namespace_of(name), [(digest(content), 0)], GRACE
                )
            )
            if expected is not None and not expected.is_stored:
                self.blobs.put(expected.blob, 0, content)

    @rule(pick=PICKS)
    def send_part_late(self, pick: int) -> None:
        """A Frontend looked up where a part goes, and writes it when the upload may be another's, or gone."""
        if self.old_blobs:
            blob, content = self.old_blobs[pick % len(self.old_blobs)]
            if content:
                self.blobs.put(blob, 0, content)

    def _finish_upload(self, content: bytes, name: str) -> None:
        namespace, content_hash = namespace_of(name), digest(content)
        known = self.world.run(attachments.unfinished_uploads(self.world.store, namespace, {content_hash}))
        for each in known.values():
            if sum(self.blobs.sizes(each.blob).values()) == len(content):
                self.world.run(
                    attachments.finish_uploads(self.world.store, namespace, {content_hash: each.blob})
                )

    @rule(content=CONTENT, name=LAMBDA, steps=st.sampled_from([1, 2, 3, 3, 3]))
    def upload(self, content: bytes, name: str, steps: int) -> None:
        """An upload that may stop after any of its steps."""
        for step in (self._begin_upload, self._send_part, self._finish_upload)[:steps]:
            step(content, name)

    def _schedule(self, contents: list[bytes], name: str, in_session: bool) -> None:
        self.count += 1
        task_id = bytes.fromhex("019b0000000070008000000000000000")[:14] + self.count.to_bytes(2)
        task = NewTask(
            task_id,
            name,
            b"{}",
            session=Session("s") if in_session else None,
            attachments=tuple(map(use, contents)),
        )
        stored = self._stored(namespace_of(name))
        first, again = (self.world.run(schedule.schedule(self.world.store, [task]))[0] for _ in range(2))
        if set(map(digest, contents)) <= stored:
            assert (first.verdict, again.verdict) == (Scheduling.CREATED, Scheduling.REPEATED)
            self.uses[task_id] = {False: [digest(each) for each in contents], True: []}
        else:
            assert first.verdict is Scheduling.ATTACHMENT_MISSING

    @rule(contents=SOME, name=LAMBDA, uploads=st.sampled_from([True, True, False]), in_session=st.booleans())
    def schedule(self, contents: list[bytes], name: str, uploads: bool, in_session: bool) -> None:
        for each in contents if uploads else ():
            self.upload(each, name, 3)
        self._schedule(contents, name, in_session)

    @rule(pick=PICKS, outcome=st.sampled_from([None, *OUTCOMES]), contents=SOME)
    def run(self, pick: int, outcome: Outcome | None, contents: list[bytes]) -> None:
        """What is due is claimed, and one of those that run ends with what it kept; None: none does."""
        for name in LAMBDAS:
            self._claim(name)
        if outcome is not None:
            for each in contents[:1]:
                self.upload(each, LAMBDAS[0], 3)
            self._end(pick, outcome, contents)

    @rule(how=st.sampled_from(["purge", "drop"]))
    def remove_ended(self, how: str) -> None:
        for name in LAMBDAS if how == "purge" else ():
            self._purge(name)
        if how == "drop":
            self._drop_what_ended()

    @rule(steps=st.lists(st.integers(0, 4), max_size=4), waits=st.booleans())
    def sweep_in_part(self, steps: list[int], waits: bool) -> None:
        """Steps of sweeps, in any order, or one whole sweep."""
        if waits:
            self.time_passes(6)
        for step in steps or range(5):
            (
                self._forget_uses,
                self._mark,
                self._remove_content_and_die,
                self._remove_marked,
                self._remove_orphans,
            )[step]()

    def _claim(self, name: str) -> None:
        queues = [QueueKey(name, priority) for priority in Priority]
        if self.has_queue:
            due = self.world.run(polling.enqueue(self.world.store, dict.fromkeys(queues, 10), LEASE))
            asked = [(Proposal(each.task_id, os.urandom(16), name), "host") for each in due]
            found = self.world.run(claims.claim(self.world.store, asked, LEASE)) if asked else []
        else:
            picks = [Pick(queue, 10, 0) for queue in queues]
            work = claims.claim_work(self.world.store, picks, [Caller("host", os.urandom(14))], 10, LEASE)
            found = list(self.world.run(work).tasks)
        for each in found:
            if each is not None:
                self.claimed[each.task_id] = each
                told = [bytes.fromhex(said["hash"]) for said in each.attachments or ()]
                assert told == self.uses[each.task_id][False]

    def _end(self, pick: int, outcome: Outcome, contents: list[bytes]) -> None:
        if not self.claimed:
            return
        task = self.claimed.pop(sorted(self.claimed)[pick % len(self.claimed)])
        stored = self._stored(namespace_of(task.lambda_name))
        result = Result(
            task.task_id,
            task.token,
            outcome,
            b"{}" if outcome is Outcome.SUCCESS else None,
            failure_kind=None if outcome in (Outcome.SUCCESS, Outcome.SNOOZED) else FailureKind.CALLBACK,
            retry_after=SECOND if outcome is Outcome.SNOOZED else None,
            attachments=tuple(use(each, Role.RESULT) for each in contents),
        )
        written = self.world.run(set_results(self.world.store, [result]))
        again = self.world.run(set_results(self.world.store, [result]))
        if written.verdicts[0].name == "APPLIED" and contents:
            kept = [digest(each) for each in contents if digest(each) in stored]
            self.uses[task.task_id][True] = kept
        assert again.verdicts[0].name != "APPLIED"

    @rule(seconds=st.sampled_from([1, 6, 30]))
    def time_passes(self, seconds: int) -> None:
        """Claims run out: their tasks are taken up, or quarantined."""
        self.now += seconds * SECOND
        self.world.fix(self.now, 0.5)
        room = {QueueKey(name, priority): 10 for name in LAMBDAS for priority in Priority}
        self.world.run(
            polling.handle_timeouts(self.world.store, room if self.has_queue else None, LEASE, 100)
        )

    @rule()
    def redrive(self) -> None:
        dead = self.world.dead_letters()
        if dead:
            self.world.run(dead_letters.redrive(self.world.store, sorted(dead)))

    def _purge(self, name: str) -> None:
        wanted = TaskFilter(lambda_name=name, statuses=frozenset(FINAL))
        self.world.run(bulk.purge_where(self.world.store, wanted, bulk.Place(), 100))
        self._forget_the_gone()

    def _drop_what_ended(self) -> None:
        """As a partition leaves: nobody looks at uses."""
        self._execute("delete from dead_letter")
        self._execute("delete from task where status is not null")
        self._forget_the_gone()

    def _forget_uses(self) -> None:
        self.world.run(self.sweep.forget_uses(SweepRound()))

    def _mark(self) -> None:
        self.world.run(self.sweep.mark())

    def _remove_content_and_die(self) -> None:
        """A sweep that ends before it forgets what it removed."""
        for (blob,) in self._execute("select blob from attachment where removing_at is not null"):
            self.blobs.remove(blob)

    def _remove_marked(self) -> None:
        self.world.run(self.sweep.remove_marked(SweepRound()))

    def _remove_orphans(self) -> None:
        self.world.run(self.sweep.remove_orphans(SweepRound()))

    @invariant()
    def what_a_task_uses_is_there(self) -> None:
        if not hasattr(self, "folder"):
            return
        for namespace, content_hash, blob, size, is_stored in self._execute(USED):
            assert is_stored, (namespace, content_hash)
            content = self.blobs.get(blob, 0) if size else b""
            assert content is not None
            assert digest(content) == content_hash

    @invariant()
    def the_uses_are_those_that_were_written(self) -> None:
        if not hasattr(self, "folder"):
            return
        found: dict[TaskId, dict[bool, list[bytes]]] = {
            task_id: {False: [], True: []} for task_id in self.uses
        }
        for task_id, by_run, content_hash in self._execute(f"{USES} order by task_id, by_run, position"):
            found[task_id.bytes][by_run].append(content_hash)
        assert found == self.uses

    def teardown(self) -> None:
        if not hasattr(self, "folder"):
            return
        self._execute("delete from task_assoc")
        self._execute("delete from task")
        self.now += 2 * GRACE
        self.world.fix(self.now, 0.5)
        self.sweep._searched_at = None
        self.world.run(self.sweep.run_once())
        left = [path.name for path in Path(self.folder.name).rglob("*") if path.is_file()]
        rows = self._execute("select hash from attachment") + self._execute("select 1 from attachment_use")
        usage = self._execute("select sum(bytes) from attachment_usage having sum(bytes) > 0")
        self.threads.close()
        self.folder.cleanup()
        assert (sorted(left), rows, usage) == (["store-id", "store-turn"], [], [])

    def _stored(self, namespace: str) -> set[bytes]:
        query = "select hash from attachment where namespace = %s and stored_at is not null and removing_at is null"
        return {row[0] for row in self._execute(query, [namespace])}

    def _forget_the_gone(self) -> None:
        left = {row[0].bytes for row in self._execute("select task_id from task")}
        self.uses = {task_id: uses for task_id, uses in self.uses.items() if task_id in left}
        self.claimed = {task_id: task for task_id, task in self.claimed.items() if task_id in left}

    def _execute(self, query: str, parameters: list[object] | None = None) -> list[tuple]:  # type: ignore[type-arg]
        return self.world.execute(query, parameters)


@pytest.mark.timeout(max(900, EXAMPLES * 3))
@pytest.mark.parametrize(
    "examples", [min(EXAMPLES, 8), pytest.param(EXAMPLES, marks=pytest.mark.long)], ids=["a few", "all"]
)
def test_what_tasks_use_is_never_removed_and_nothing_else_stays(world: World, examples: int) -> None:
    machine = type("AttachmentMachineOnADatabase", (AttachmentMachine,), {"world": world})
    budget = settings(
        max_examples=examples,
        stateful_step_count=40 if FAST else 80,
        derandomize=FAST,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=budget)
