"""The walk of docs/incident.md: a bad deploy fails, a breaker pauses it, the fix runs, dead letters are redriven."""

from collections.abc import Iterator

import pytest

import duly
from scripts.incident.installation import Installation, installation
from scripts.incident.normalize import Normalizer
from scripts.incident.page import page
from scripts.incident.walk import Story, walk

# long: starts a whole stack and three workers, and waits until a breaker has opened, tried probes twice, and closed
pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with installation(tmp_path_factory.mktemp("incident")) as started:
        yield started


@pytest.fixture(scope="module")
def story(running: Installation) -> Story:
    return walk(running, "10s", lambda _name, _path, _heading: None)


def test_the_status_names_the_breaker_and_the_cause_and_is_healthy_in_the_end(story: Story) -> None:
    assert "CRITICAL    breaker open" in story.outputs["status"]
    assert "breaker open" not in story.outputs["status-fixed"]
    assert "duly redrive --lambda mail.send --cause" in story.outputs["status-fixed"]
    assert "Healthy" in story.outputs["status-after"].splitlines()[1]


def test_the_breaker_pauses_the_lambda_and_says_why(story: Story) -> None:
    assert "breaker:mail.send" in story.outputs["top"]
    assert "runs failed" in story.outputs["gates"]
    assert "the gate 'breaker:mail.send' holds it back" in story.outputs["explain-held"]


def test_the_failure_and_the_deploy_that_caused_it_are_shown(story: Story) -> None:
    assert "KeyError: 'recipient'" in story.outputs["get-dead"]
    assert "2026.11.2  in force" in story.outputs["lambda"]


def test_the_breaker_tries_probes_and_closes_after_the_fix(story: Story) -> None:
    moves = [line for line in story.outputs["audit"].splitlines() if "breaker  Breaker" in line]

    assert "closed" in story.outputs["breakers-closed"]
    assert len(moves) >= 5  # opened, half open, opened again, half open, closed


def test_redriven_tasks_succeed(running: Installation, story: Story) -> None:
    with duly.Client(running.address) as client:
        tasks = list(client.list(lambda_name="mail.send", page_size=1000))
        dead, held = client.get(story.dead), client.get(story.held)

    assert "no dead letters" in story.outputs["dead-letters-after"]
    assert {task.status for task in tasks} == {duly.TaskStatus.SUCCESS}
    assert (dead.redrives, held.redrives, held.fence) == (1, 0, 1)


def test_the_history_has_the_failed_runs_the_redrive_and_the_success(story: Story) -> None:
    history = story.outputs["explain-dead"].partition("history:")[2]

    kinds = ["scheduled", "run ended", "fatal_failure", "redriven", "success"]
    places = [history.index(kind) for kind in kinds]
    assert places == sorted(places)


def test_the_page_has_every_output_that_its_template_names(story: Story) -> None:
    text = page(story, Normalizer())

    assert "<!-- output:" not in text
    assert str(story.dead) not in text
