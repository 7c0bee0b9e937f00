"""Apache Kafka's own metadata shell, on the snapshots of nodes of both kinds.

The shell replays a file into an image of Kafka's, and shows it as a tree. What it shows of a snapshot must be what it
shows of the log up to there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from apache_kafka import JAVA, LOGGING
from metadata_directories import MetadataDirectory, read
from penstock.metadata.snapshot import SnapshotId
from penstock.records.batch import iterate_headers
from spark.connector_jars import shell_jars

SHELL = "org.apache.kafka.shell.MetadataShell"
SHELL_S = 120
ATTEMPTS = 20


def image_by_shell(file: Path) -> str:
    """What the shell shows of a snapshot or a log, which must not be in a directory of a running node.

    It sometimes shows the image before it has replayed the file: `provenance` says up to where, and it is run again.
    """
    settings = file.with_suffix(".log4j2.properties")
    settings.write_text(LOGGING.replace("type=Console", "type=Console\nappender.out.target=SYSTEM_ERR"))
    data = file.read_bytes()
    end = max(header.last_offset for _, header in iterate_headers(data) if not header.is_control)
    command = [*JAVA, f"-Dlog4j2.configurationFile={settings}", "-cp", ":".join(shell_jars()), SHELL]
    for _ in range(ATTEMPTS):
        outcome = subprocess.run(
            [*command, "--snapshot", str(file), "tree", "/image"],
            capture_output=True,
            text=True,
            check=False,
            timeout=SHELL_S,
        )
        assert outcome.returncode == 0 and "shell fault" not in outcome.stderr, outcome.stdout + outcome.stderr
        provenance = re.search(r"^provenance:\n  offset (-?\d+),.*\n", outcome.stdout, flags=re.MULTILINE)
        assert provenance is not None, outcome.stdout
        if int(provenance[1]) >= end:
            return outcome.stdout.replace(provenance[0], "")
    raise AssertionError(f"{file} was not replayed in {ATTEMPTS} attempts")


def compare_by_shell(data_directories: Sequence[Path], scratch: Path) -> None:
    """The last snapshot of each node, beside the log up to there as the node that has most of it has it."""
    directories = {path: read(path) for path in data_directories}
    longest = max(directories.values(), key=lambda directory: directory.end)
    for number, (path, directory) in enumerate(directories.items()):
        last = max(directory.snapshots)
        place = scratch / str(number) / "__cluster_metadata-0"
        place.mkdir(parents=True)
        snapshot = place / last.file_name
        shutil.copy(path / "__cluster_metadata-0" / snapshot.name, snapshot)
        of_log = image_by_shell(_log_before(longest, last, place))
        assert image_by_shell(snapshot) == of_log, f"{path} at {last}"


def _log_before(directory: MetadataDirectory, end: SnapshotId, place: Path) -> Path:
    path = place / "00000000000000000000.log"
    path.write_bytes(b"".join(data for base, data in sorted(directory.batches.items()) if base < end.offset))
    return path
