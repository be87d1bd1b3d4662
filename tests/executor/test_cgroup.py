"""Folders of control groups that somebody names: nothing is opened but what lies in the hierarchy, without links."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from duly_core.host.cgroup import Cgroup, ExecutorGroupName, Hierarchy
from tests.fixtures.programs import is_alive


@pytest.fixture
def hierarchy(tmp_path: Path) -> Hierarchy:
    """A folder that passes for a mounted hierarchy."""
    own = tmp_path / "mount" / "slice" / "worker"
    own.mkdir(parents=True)
    return Hierarchy(tmp_path / "mount", tmp_path.stat().st_dev, own)


@pytest.fixture
def victim() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["/bin/sleep", "1000"]) as process:
        yield process
        process.kill()


def test_a_folder_in_the_hierarchy_is_opened(hierarchy: Hierarchy) -> None:
    descriptor = hierarchy.open(hierarchy.own)

    assert os.fstat(descriptor).st_ino == hierarchy.own.stat().st_ino
    os.close(descriptor)


def test_no_link_on_the_way_is_followed(hierarchy: Hierarchy, tmp_path: Path) -> None:
    (tmp_path / "outside" / "group").mkdir(parents=True)
    (hierarchy.mount / "link").symlink_to(tmp_path / "outside")
    before = list(Path("/proc/self/fd").iterdir())

    for path in (hierarchy.mount / "link", hierarchy.mount / "link" / "group"):
        with pytest.raises(OSError):
            hierarchy.open(path)

    assert len(list(Path("/proc/self/fd").iterdir())) == len(before)


@pytest.mark.parametrize("path", ["outside", "mount/../outside", "mount/slice/../../outside", "mountain"])
def test_nothing_outside_the_hierarchy_is_opened(hierarchy: Hierarchy, tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "mountain").mkdir()

    with pytest.raises(OSError, match="no folder of the cgroup hierarchy"):
        hierarchy.open(tmp_path / path)


def test_a_folder_of_another_file_system_is_no_group(hierarchy: Hierarchy) -> None:
    other = replace(hierarchy, device=hierarchy.device + 1)

    with pytest.raises(OSError, match="is no cgroup"):
        other.open(hierarchy.own)


def test_a_group_may_be_one_of_this_worker_or_of_one_beside_it(hierarchy: Hierarchy) -> None:
    worker, beside = hierarchy.own, hierarchy.own.parent

    assert hierarchy.may_hold(worker / "duly-1-2-3")
    assert hierarchy.may_hold(beside / "another" / "duly-1-2-3")
    assert not hierarchy.may_hold(hierarchy.mount / "duly-1-2-3")
    assert not hierarchy.may_hold(beside)
    assert not hierarchy.may_hold(worker / ".." / ".." / "duly-1-2-3")


def test_what_only_looks_like_a_group_is_neither_killed_nor_written_nor_removed(
    tmp_path: Path, victim: "subprocess.Popen[bytes]"
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    fake = tmp_path / "duly-1-2-3"
    fake.mkdir()
    (fake / "cgroup.procs").write_text(f"{victim.pid}\n")
    (fake / "cgroup.events").write_text("populated 1\n")
    for name in ("cgroup.freeze", "cgroup.kill"):
        (fake / name).symlink_to(precious)
    group = Cgroup(fake)

    for act in (group.kill, group.kill_one_by_one, group.is_empty, group.members):
        with pytest.raises(OSError):
            act()
    group.remove()

    assert is_alive(victim.pid)
    assert precious.read_text() == "kept"
    assert fake.is_dir()


@pytest.mark.parametrize(
    "name",
    [
        "duly-a-b-c",
        "duly-1-2",
        "duly-1-2-3-4",
        "duly--1-2-3",
        "duly-1-2-\u0663",
        "x",
        "duly-1-" + "9" * 99 + "-3",
    ],
)
def test_a_folder_with_another_name_is_no_executors(name: str) -> None:
    assert ExecutorGroupName.parse(name) is None


def test_the_name_of_a_group_says_whose_it_is() -> None:
    name = ExecutorGroupName("4026531836", 77, 99)

    assert ExecutorGroupName.parse(str(name)) == name


def test_a_group_is_not_taken_for_empty_when_the_hierarchy_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hierarchy, "find", lambda: None)  # as without a free descriptor

    with pytest.raises(OSError, match="in sight"):
        Cgroup(tmp_path).is_empty()
    with pytest.raises(OSError, match="in sight"):
        Cgroup(tmp_path).kill()
