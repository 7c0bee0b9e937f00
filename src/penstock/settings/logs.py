"""Log settings of the broker: directories, defaults for new topics, flushing, retention and the cleaner.

The defaults of topic settings (`log.retention.ms` and the like) are not repeated here: they are derived from
`TopicSettings`, whose fields name them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from penstock.settings.definition import (
    Scope,
    at_least,
    between,
    boolean,
    distinct,
    double,
    integer,
    invalid,
    long,
    string,
    strings,
)

CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"
ALL_DIRECTORIES: Final = "*"


def check_cordoned(cordoned: Sequence[str], directories: Collection[str]) -> None:
    """KafkaError unless each entry names one of these directories, or the only entry is `*`, for all of them."""
    shown = f"[{', '.join(cordoned)}]"
    if ALL_DIRECTORIES in cordoned:
        if len(cordoned) > 1:
            raise invalid(CORDONED_LOG_DIRS, shown, "When it is set to *, it must not contain other values.")
        return
    unknown = [path for path in cordoned if path not in directories]
    if unknown:
        raise invalid(
            CORDONED_LOG_DIRS,
            shown,
            f"Invalid entries in {CORDONED_LOG_DIRS}: [{', '.join(unknown)}]. "
            "All cordoned log dirs must be entries of log.dirs or log.dir.",
        )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    log_dir: str = string("/tmp/penstock-logs", "The directory for logs, if log.dirs is not set.")
    log_dirs: tuple[str, ...] = strings((), "The directories for logs, one per disk; default: log.dir.", distinct())
    cordoned_log_dirs: tuple[str, ...] = strings(
        (),
        "Directories of log.dirs or log.dir that get no new replicas; * for all of them. A broker without other "
        "directories gets no new partitions. Requires metadata.version 4.3-IV0.",
        distinct(),
        scope=Scope.CLUSTER_WIDE,
    )
    log_dir_failure_timeout_ms: int = long(
        30_000,
        "A broker shuts down if it cannot report a failed log directory to the controller for this long.",
        at_least(1),
    )
    num_partitions: int = integer(
        1, "Number of partitions of topics that are created without a given number.", at_least(1)
    )
    auto_create_topics_enable: bool = boolean(True, "Whether a Metadata request for an unknown topic may create it.")
    delete_topic_enable: bool = boolean(True, "Whether topics can be deleted.")
    log_retention_check_interval_ms: int = long(
        300_000, "How often logs are checked for segments to delete.", at_least(1)
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        60_000, "How often the recovery points of logs are written to disk.", at_least(0)
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        60_000, "How often the start offsets of logs are written to disk.", at_least(0)
    )
    log_flush_scheduler_interval_ms: int = long(
        2**63 - 1, "How often logs are checked for a due sync, where flush.ms is not set."
    )
    log_cleaner_enable: bool = boolean(True, "Whether compacted topics are compacted at all.")
    log_cleaner_threads: int = integer(
        1, "The maximum number of cleaner processes.", at_least(0), scope=Scope.CLUSTER_WIDE
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        1.7976931348623157e308,
        "The maximum average disk traffic of the cleaner, reads and writes together.",
        scope=Scope.CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = long(
        134_217_728,
        "The memory that the cleaner may use for its map of keys to offsets.",
        at_least(1 << 20),
        scope=Scope.CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_size: int = integer(
        524_288, "The size of the cleaner's read and write buffers.", at_least(0), scope=Scope.CLUSTER_WIDE
    )
    log_cleaner_io_buffer_load_factor: float = double(
        0.9, "How full the cleaner's map of keys may get.", between(0, 1), scope=Scope.CLUSTER_WIDE
    )
    log_cleaner_backoff_ms: int = long(
        15_000, "How long the cleaner waits when it found no log to clean.", at_least(0), scope=Scope.CLUSTER_WIDE
    )
    producer_id_expiration_ms: int = integer(
        86_400_000,
        "The sequence numbers of an idle producer expire after this time.",
        at_least(1),
        scope=Scope.CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms: int = integer(
        600_000, "How often the broker checks for expired producers.", at_least(1), internal=True
    )

    @cached_property
    def log_directories(self) -> tuple[str, ...]:
        """log.dirs, or else log.dir (which may also be a list, as in Kafka)."""
        return self.log_dirs or tuple(part.strip() for part in self.log_dir.split(",") if part.strip())
