"""Files on any file system that Hadoop knows: batches of rows, and small notes.

A batch is written to a place of its own (`_penstock/...`, which readers of Spark pass over) and then moved, file by
file, under names with the batch's number. A batch that is written again first removes what an earlier attempt has
moved. So the files of a batch are all there in the end, and once; for a moment a reader may see some of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STAGING = "_penstock"


def write_files(
    frame: DataFrame,
    kind: str,
    path: str,
    name: str,
    partition_by: tuple[str, ...],
    options: Mapping[str, str],
    *,
    replace: bool,
) -> None:
    """`name` is the batch's, and no other's; `replace`: it may have been written before."""
    files = Files(frame.sparkSession, path)
    staged = f"{path}/{_STAGING}/{name}"
    writer = frame.write.format(kind).mode("overwrite").options(**options)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.save(staged)
    root = files.qualified(staged)
    if replace:
        for stale in [each for each in files.under(path) if _name(each).startswith(f"{name}-")]:
            if not stale.startswith(root):
                files.delete(stale)
    made = sorted(each for each in files.under(staged) if not _name(each).startswith(("_", ".")))
    for number, each in enumerate(made):
        place = each.removeprefix(root).rpartition("/")[0]
        extension = _name(each).partition(".")[2]
        files.move(each, f"{path}{place}/{name}-{number:04d}.{extension}")
    files.delete(staged)


class Files:
    """Of the file system that a path is on."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._jvm: Any = session.sparkContext._jvm
        configuration = session._jsparkSession.sessionState().newHadoopConf()
        self._system = self._path(path).getFileSystem(configuration)

    def qualified(self, path: str) -> str:
        return str(self._system.makeQualified(self._path(path)).toString())

    def under(self, path: str) -> Iterator[str]:
        """All files below, at any depth."""
        if not self._system.exists(self._path(path)):
            return
        found = self._system.listFiles(self._path(path), True)
        while found.hasNext():
            yield str(found.next().getPath().toString())

    def names(self, path: str) -> list[str]:
        if not self._system.exists(self._path(path)):
            return []
        return sorted(str(each.getPath().getName()) for each in self._system.listStatus(self._path(path)))

    def size(self, path: str) -> int:
        return int(self._system.getFileStatus(self._path(path)).getLen())

    def move(self, source: str, target: str) -> None:
        self._system.mkdirs(self._path(target).getParent())
        if not self._system.rename(self._path(source), self._path(target)):
            raise OSError(f"{source} cannot be moved to {target}")

    def delete(self, path: str) -> None:
        self._system.delete(self._path(path), True)

    def write_note(self, path: str, value: Any) -> None:
        """Appears whole, or not at all."""
        draft = f"{path}.draft"
        stream = self._system.create(self._path(draft), True)
        try:
            stream.write(bytearray(json.dumps(value).encode()))
        finally:
            stream.close()
        self.delete(path)
        self.move(draft, path)

    def read_note(self, path: str) -> Any:
        stream = self._system.open(self._path(path))
        try:
            return json.loads(bytes(stream.readAllBytes()))
        finally:
            stream.close()

    def _path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
