"""`meta.properties`: the node and the cluster that a log directory belongs to.

It is written once, when the directory is formatted. A node refuses a directory of another node or another cluster.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from penstock.io.files import FileSystem, read_file, write_file_atomically
from penstock.model.ids import Uuid, uuid_from_text, uuid_text

META_PROPERTIES = "meta.properties"
VERSION = 1


class MetaProperties(NamedTuple):
    cluster_id: str
    node_id: int
    directory_id: Uuid


class MalformedMetaProperties(ValueError):
    pass


def write_meta_properties(files: FileSystem, directory: str, meta: MetaProperties) -> None:
    text = (
        f"#\nnode.id={meta.node_id}\ndirectory.id={uuid_text(meta.directory_id)}\nversion={VERSION}\n"
        f"cluster.id={meta.cluster_id}\n"
    )
    write_file_atomically(files, os.path.join(directory, META_PROPERTIES), text.encode())


def read_meta_properties(files: FileSystem, directory: str) -> MetaProperties | None:
    """Read the file; None if the directory was never formatted."""
    path = os.path.join(directory, META_PROPERTIES)
    try:
        text = read_file(files, path).decode()
    except FileNotFoundError:
        return None
    lines = [line.strip() for line in text.splitlines()]
    fields = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith(("#", "!")))
    try:
        if int(fields["version"]) != VERSION:
            raise MalformedMetaProperties(f"{path}: version {fields['version']} is not known")
        return MetaProperties(fields["cluster.id"], int(fields["node.id"]), uuid_from_text(fields["directory.id"]))
    except KeyError as error:
        raise MalformedMetaProperties(f"{path}: {error.args[0]} is missing") from error
    except ValueError as error:
        raise MalformedMetaProperties(f"{path}: {error}") from error
