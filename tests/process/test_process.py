"""Where a local socket is: in a folder that nobody else can have prepared."""

import os
import tempfile
from pathlib import Path

import pytest

from duly_core.errors import SettingsError
from duly_core.process.parent import default_socket


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the temporary folder has for this user."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"duly-{os.geteuid()}"


def test_the_folder_is_made_for_this_user_alone(folder: Path) -> None:
    assert default_socket() == default_socket() == f"unix:{folder}/controller.sock"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_reach_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)

    with pytest.raises(SettingsError, match="0700"):
        default_socket()


def test_a_link_to_a_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "theirs")

    with pytest.raises(SettingsError, match="0700"):
        default_socket()


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    another = os.geteuid() + 1
    folder.with_name(f"duly-{another}").mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: another)

    with pytest.raises(SettingsError, match="belongs to this user"):
        default_socket()


def test_the_users_runtime_folder_is_preferred(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")

    assert default_socket("worker-1") == "unix:/run/user/7/worker-1.sock"
    assert not folder.exists()
