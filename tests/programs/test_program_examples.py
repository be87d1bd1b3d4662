"""The programs of `examples/programs` and of the page on programs do what they say."""

import runpy
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from duly.programs import program_app
from duly.testing import run
from tests.fixtures.documents import blocks, python_blocks

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "programs"

pytestmark = pytest.mark.timeout(60)

needs_jq = pytest.mark.skipif(not shutil.which("jq"), reason="the shell example needs jq: install jq")
needs_node = pytest.mark.skipif(
    not shutil.which("node"), reason="the JavaScript example needs node: install nodejs"
)


@needs_jq
def test_the_shell_example_is_that_of_the_page_and_runs_as_the_page_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    (shown,) = blocks("programs.md", "bash")

    app = program_app(str(EXAMPLES / "checksum.sh"), ["text.checksum"])
    done, refused = run(app, "text.checksum", {"text": "hello"}), run(app, "text.checksum", {"text": 3})

    assert (EXAMPLES / "checksum.sh").read_text().endswith(shown)
    assert done.result["sha256"].startswith("2cf24dba")
    assert (refused.outcome, refused.failure_message) == (
        duly.Outcome.FATAL_FAILURE,
        "the payload has no text",
    )
    exec(python_blocks("programs.md")[1], {})  # noqa: S102 (the page's own test)


@needs_node
def test_the_example_in_javascript_goes_on_from_its_checkpoint_and_obeys_a_cancel() -> None:
    app = program_app(["node", str(EXAMPLES / "primes.mjs")], ["math.primes"])

    whole = run(app, "math.primes", {"limit": 25_000})
    rest = run(app, "math.primes", {"limit": 25_000}, attempt=2, checkpoint=whole.checkpoints[-1])
    cancelled = run(app, "math.primes", {"limit": 10**9}, cancelled=True)

    assert whole.result == rest.result == {"count": 2762}
    assert (len(whole.progress), len(rest.progress)) == (2, 0)
    assert cancelled.outcome is duly.Outcome.CANCELLED


@needs_node
def test_the_application_of_the_page_declares_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "handler.mjs").write_text("""console.log('{"type":"ready"}'); process.stdin.resume()""")
    (tmp_path / "images.py").write_text(python_blocks("programs.md")[0])
    monkeypatch.chdir(tmp_path)

    app = runpy.run_path("images.py")["app"]

    (declared,) = app.lambdas()
    assert (declared.name, declared.owner, declared.version) == ("image.resize", "team-images", "1.4.2")
    assert declared.backoff.initial.ToTimedelta() == timedelta(seconds=5)
