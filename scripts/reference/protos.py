"""The wire's descriptors, with the comments of the .proto files."""

from pathlib import Path
from tempfile import TemporaryDirectory

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

_PROTO = Path(__file__).parents[2] / "proto"


class File:
    """One .proto file; `comment` finds what stands above an element, by its path in the descriptor."""

    def __init__(self, descriptor: FileDescriptorProto) -> None:
        self.descriptor = descriptor
        self.name = descriptor.name
        self._comments = {
            tuple(location.path): " ".join(location.leading_comments.split())
            for location in descriptor.source_code_info.location
        }

    def comment(self, *path: int) -> str:
        """Return the comment above an element, on one line."""
        return self._comments.get(path, "")


def files() -> list[File]:
    """Return all files of the wire, by name."""
    names = sorted(str(path.relative_to(_PROTO)) for path in _PROTO.rglob("*.proto"))
    included = Path(grpc_tools.__file__).parent / "_proto"
    with TemporaryDirectory() as folder:
        written = Path(folder, "descriptors")
        options = [f"-I{_PROTO}", f"-I{included}", "--include_source_info", f"--descriptor_set_out={written}"]
        if protoc.main(["protoc", *options, *names]):
            raise RuntimeError("protoc cannot read proto/: see its message above")
        return [File(file) for file in FileDescriptorSet.FromString(written.read_bytes()).file]
