"""Gives each component of a CycloneDX list its licence by SPDX: `python scripts/sbom_licences.py build/duly.cdx.json`.

Most distributions name theirs in their metadata. Of the others it was read in the file of the licence that they install.
"""

import json
import sys
from pathlib import Path
from typing import Any

READ = {
    "cronsim": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "protobuf": "BSD-3-Clause",
    "python-dateutil": "Apache-2.0 OR BSD-3-Clause",
    "s3transfer": "Apache-2.0",
    "uvloop": "Apache-2.0 OR MIT",
}


def name_licences(listed: dict[str, Any]) -> list[str]:
    """Fill in the licences of a list; return the components that have none by SPDX, and are not in READ."""
    unknown = []
    for component in listed["components"]:
        if expression := READ.get(component["name"].lower()):
            component["licenses"] = [{"expression": expression, "acknowledgement": "declared"}]
        elif not any(map(_is_spdx, component.get("licenses", ()))):
            unknown.append(f"{component['name']} {component['version']}")
    return unknown


def _is_spdx(licence: dict[str, Any]) -> bool:
    return "expression" in licence or "id" in licence.get("license", {})


def main() -> None:
    """Rewrite the file; exit 1 if a licence is unknown."""
    path = Path(sys.argv[1])
    listed = json.loads(path.read_text("utf-8"))
    unknown = name_licences(listed)
    path.write_text(json.dumps(listed, indent=2) + "\n", "utf-8")
    if unknown:
        sys.exit(
            f"{', '.join(unknown)}: read the licence that it installs, and name it in scripts/sbom_licences.py"
        )


if __name__ == "__main__":
    main()
