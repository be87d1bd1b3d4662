"""What one run found, as it is kept in a file: written anew after every measurement, so that a stop loses none."""

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.rounds import Measurement, summary
from benchmarks.system import System


class Results:
    """Collects, and keeps."""

    def __init__(self, machine: dict[str, str], options: dict[str, Any], file: Path | None) -> None:
        self._told = {name: value for name, value in options.items() if not isinstance(value, Path)}
        self._machine = machine
        self._systems: dict[str, dict[str, str]] = {}
        self._measurements: list[dict[str, Any]] = []
        self._more: dict[str, Any] = {}
        self._file = file

    @contextmanager
    def problems_of(self, part: str) -> Iterator[None]:
        """A part that fails must not cost the others' figures: why it did is kept where they would be."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (whatever it is)
            traceback.print_exc()
            self._more.setdefault("problems", {})[part] = f"{type(error).__name__}: {error}"
            self._write()

    def describe(self, system: System) -> None:
        """Say what will be measured; or that it will not, and why."""
        self._systems[system.name] = asdict(system.description) | {"not_run": system.missing()}

    def add(self, measurement: Measurement) -> None:
        """Keep it, and tell the terminal."""
        print(summary(measurement), flush=True)
        self._measurements.append(asdict(measurement))
        self._write()

    def append(self, part: str, found: dict[str, Any]) -> None:
        """Keep one figure of how cost grows, and tell the terminal."""
        told = {name: value for name, value in found.items() if name != "calibration"}
        print(f"{part}: {told}", flush=True)
        self._more.setdefault("growth", {}).setdefault(part, []).append(found)
        self._write()

    def put(self, name: str, found: Any) -> None:
        """Keep what one of the other parts found: floor, growth, footprint, sqs."""
        self._more[name] = found
        self._write()

    def as_json(self) -> dict[str, Any]:
        """The shape that report.py and plot.py read."""
        return {
            "machine": self._machine,
            "options": self._told,
            "systems": self._systems,
            "measurements": self._measurements,
            **self._more,
        }

    def _write(self) -> None:
        if self._file is not None:
            whole = self._file.with_name(self._file.name + ".new")
            whole.write_text(json.dumps(self.as_json(), indent=1), encoding="utf-8")
            whole.replace(self._file)  # so that a stop half-way through loses nothing
