"""protoc itself, to compare with: it comes with grpcio-tools."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2 as pb

pytest.importorskip("grpc_tools")

import grpc_tools
from grpc_tools import protoc

_GOOGLE = Path(grpc_tools.__file__).parent / "_proto"


def compiled(directory: Path, text: str, others: Mapping[str, str]) -> pb.FileDescriptorProto | None:
    """The descriptor that protoc makes of a text, or None if it refuses."""
    for name, content in {**others, "schema.proto": text}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    result = directory / "result"
    result.unlink(missing_ok=True)
    arguments = ["", f"-I{directory}", f"-I{_GOOGLE}", f"--descriptor_set_out={result}", "schema.proto"]
    with _silent():
        status = protoc.main(arguments)
    if status != 0:
        return None
    return pb.FileDescriptorSet.FromString(result.read_bytes()).file[0]


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """protoc writes its complaints to the standard error of the process."""
    saved = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
