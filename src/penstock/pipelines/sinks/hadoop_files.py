"""Files, and small JSON files with notes, on any file system that Hadoop supports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    """The files of the file system that a path is on."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._jvm: Any = session.sparkContext._jvm
        self._gateway: Any = session.sparkContext._gateway
        self._configuration = session._jsparkSession.sessionState().newHadoopConf()
        self._system = self._path(path).getFileSystem(self._configuration)

    @property
    def are_raw_local(self) -> bool:
        """On a disk of this machine, without checksum files."""
        return str(self._system.getClass().getSimpleName()) == "RawLocalFileSystem"

    def qualified(self, path: str) -> str:
        return str(self._system.makeQualified(self._path(path)).toString())

    def under(self, path: str) -> Iterator[str]:
        """All files below the path, at any depth."""
        if not self._system.exists(self._path(path)):
            return
        found = self._system.listFiles(self._path(path), True)
        while found.hasNext():
            yield str(found.next().getPath().toString())

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

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
        """The file appears completely, or not at all."""
        draft = f"{path}.draft"
        stream = self._system.create(self._path(draft), True)
        try:
            stream.write(bytearray(json.dumps(value).encode()))
        finally:
            stream.close()
        self._replace(draft, path)

    def read_note(self, path: str) -> Any:
        stream = self._system.open(self._path(path))
        try:
            return json.loads(bytes(stream.readAllBytes()))
        finally:
            stream.close()

    def _replace(self, source: str, target: str) -> None:
        """At once: at no time there is neither the earlier file nor the new one."""
        from py4j.protocol import Py4JJavaError

        options = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        overwrite = self._gateway.new_array(options, 1)
        overwrite[0] = options.OVERWRITE
        try:
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                self._system.getUri(), self._configuration
            )
        except Py4JJavaError as error:
            if "UnsupportedFileSystemException" not in str(error.java_exception):
                raise
            self.delete(target)
            self.move(source, target)
        else:
            context.rename(self._path(source), self._path(target), overwrite)

    def _path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)


def named(path: str) -> str:
    """The name of the file itself."""
    return path.rpartition("/")[2]
