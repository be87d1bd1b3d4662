"""Scripts and styles: read once, served under a path that changes with them."""

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

_FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
}


class StaticFiles:
    """The files of the folder `static`."""

    def __init__(self) -> None:
        self._files = {file.name: file.read_bytes() for file in _FOLDER.iterdir() if file.suffix in _TYPES}
        digest = hashlib.sha256(b"".join(self._files[name] for name in sorted(self._files)))
        self.version = digest.hexdigest()[:12]

    async def serve(self, request: Request) -> Response:
        """Return a file; a browser keeps it."""
        name = request.path_params["name"]
        if name not in self._files:
            return Response("not found", status_code=404, media_type="text/plain")
        kept = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(self._files[name], media_type=_TYPES[Path(name).suffix], headers=kept)
