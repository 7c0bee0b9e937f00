"""Other users of the machine cannot read the files of a node."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from penstock.broker.process import keep_from_others
from penstock.io.files import RealFileSystem, write_file_atomically


def mode(path: Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_new_files_and_directories_are_not_for_others(tmp_path: Path) -> None:
    files = RealFileSystem()
    files.make_directories(str(tmp_path / "data"))
    write_file_atomically(files, str(tmp_path / "data" / "file"), b"")
    assert not mode(tmp_path / "data") & stat.S_IRWXO
    assert not mode(tmp_path / "data" / "file") & stat.S_IRWXO


def test_a_metadata_directory_of_an_earlier_version_is_closed(tmp_path: Path) -> None:
    old = tmp_path / "__cluster_metadata-0"
    old.mkdir()
    old.chmod(0o755)
    keep_from_others(str(old))
    assert mode(old) == 0o750
    old.chmod(0o700)
    keep_from_others(str(old))
    assert mode(old) == 0o700
    keep_from_others(str(tmp_path / "none"))
