"""The process that runs the demo's pipelines: `python -m penstock.demo.runner BOOTSTRAP DIRECTORY`.

One Spark session for all of them, because each session is a Java. Once a second it prints how far the queries are, a
line of JSON. If one pipeline fails for good, all end.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from penstock.demo.streams import PIPELINES, pipeline_file

if TYPE_CHECKING:
    from penstock.pipelines.engine.runner import Runner
    from penstock.pipelines.operate.reports import QueryReport

CORES_MAX = 4
_SAY_SECONDS = 1.0


def main() -> int:
    bootstrap, directory = sys.argv[1:]
    from penstock.pipelines.check.validate import load_checked
    from penstock.pipelines.engine.runner import Runner
    from penstock.spark import session

    cores = max(1, min(CORES_MAX, os.cpu_count() or 1))
    spark = session(
        "penstock-demo",
        master=f"local[{cores}]",
        config={
            "spark.driver.memory": "1g",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "1",  # a few rows for each window
            "spark.python.authenticate.socketTimeout": "600s",  # a worker starts late where all else starts, too
            "spark.python.unix.domain.socket.enabled": str(_fits_a_socket(directory)).lower(),
            "spark.local.dir": os.path.join(directory, "spark"),
            "spark.sql.warehouse.dir": os.path.join(directory, "warehouse"),
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={directory} -XX:-UsePerfData",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    given = {"bootstrap": bootstrap, "checkpoints": os.path.join(directory, "checkpoints")}
    runners = {name: Runner(load_checked(pipeline_file(name), None, given)[0], spark) for name in PIPELINES}

    failures: list[Exception] = []

    def run(runner: Runner) -> None:
        try:
            runner.run()
        except Exception as error:  # noqa: BLE001  # told below
            failures.append(error)
            for each in runners.values():
                each.stop()

    threads = [threading.Thread(target=run, args=(runner,)) for runner in runners.values()]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        _say(runners)
        time.sleep(_SAY_SECONDS)
    _say(runners)
    spark.stop()
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def _fits_a_socket(directory: str) -> bool:
    """Spark's workers talk over sockets in this directory. Their names have 42 characters, and a path at most 107."""
    return len(os.fsencode(directory)) + 1 + 42 <= 107


def _say(runners: dict[str, Runner]) -> None:
    word = {name: [_view(query) for query in runner.report().queries] for name, runner in runners.items()}
    print(json.dumps(word), flush=True)


def _view(query: QueryReport) -> dict[str, Any]:
    return {
        "name": query.name,
        "state": query.state,
        "rows": query.rows_in,
        "error": query.error if query.failures else None,
    }


if __name__ == "__main__":
    sys.exit(main())
