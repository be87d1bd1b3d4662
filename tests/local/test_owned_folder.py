"""What killed test sessions leave is removed, and nothing else."""

import signal
import subprocess
import sys

from duly_local.testing.owned_folder import PREFIX, owned_folder, remove_leftovers

OWNER = """
import sys
from pathlib import Path
from duly_local.testing.owned_folder import owned_folder
with owned_folder(Path(sys.argv[1])) as folder:
    (folder / "data").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_only_the_folder_of_a_killed_session_is_removed(tmp_path, request):
    killed = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=request.config.rootpath,
        text=True,
    )
    left = killed.stdout.readline().strip()
    without_mark = tmp_path / f"{PREFIX}other"
    without_mark.mkdir()
    with owned_folder(tmp_path) as held:
        assert remove_leftovers([tmp_path], young_s=0) == []
        killed.send_signal(signal.SIGKILL)
        killed.communicate()

        assert remove_leftovers([tmp_path]) == []  # it is young
        assert list(map(str, remove_leftovers([tmp_path], young_s=0))) == [left]

        assert sorted(tmp_path.iterdir()) == sorted([held, without_mark])
    assert list(tmp_path.iterdir()) == [without_mark]
