"""`penstock server`: runs one node from a `server.properties`.

It uses argparse from the standard library: nodes start often, and `main` calls this module without loading what the
other commands need.
"""

from __future__ import annotations

import argparse
import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.settings.node import NodeSettings

NAME = "server"
SUMMARY = "Run one node from a server.properties file."

_EPILOG = """\
examples:
  penstock server server.properties
  penstock server server.properties -o listeners=PLAINTEXT://:9192 -o log.dirs=/var/lib/penstock

A minimal server.properties, for a cluster of one:
  process.roles=broker,controller
  node.id=1
  listeners=PLAINTEXT://127.0.0.1:9092
  log.dirs=/var/lib/penstock

The log directory is formatted on the first start. SIGTERM and Ctrl-C stop the node cleanly.
"""


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    gc.disable()  # modules stay: a collection while they load finds nothing, and a tenth of the time goes into it
    try:
        return _run(options)
    finally:
        gc.enable()


def _run(options: argparse.Namespace) -> int:
    from penstock.cli.server_properties import read_server_properties
    from penstock.model.errors import KafkaError
    from penstock.settings.node import NodeSettings

    overrides: dict[str, str] = {}
    for override in options.override:
        name, separator, value = override.partition("=")
        if not separator or not name.strip():
            return _say(f"-o {override!r} is not KEY=VALUE")
        overrides[name.strip()] = value.strip()
    try:
        settings = NodeSettings.from_properties(read_server_properties(options.file, overrides))
    except OSError as error:
        return _say(f"{options.file}: {error.strerror}")
    except UnicodeDecodeError:
        return _say(f"{options.file}: not a text file in UTF-8")
    except KafkaError as error:
        return _say(f"{options.file}: {error.message}")

    if options.lifeline is not None:
        from penstock.local.lifeline import stop_with_parent

        stop_with_parent(options.lifeline)

    from penstock.broker.process import run

    gc.freeze()
    gc.enable()
    try:
        run(settings)
    except KeyboardInterrupt:
        return 130
    except KafkaError as error:
        return _end(settings, error.message)
    except OSError as error:
        return _end(settings, f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
    return 0


def _end(settings: NodeSettings, message: str) -> int:
    """Log why a node could not start or had to give up, in the format of its log."""
    if settings.penstock_log_format != "json":
        return _say(message)
    import logging

    logging.getLogger("penstock.node").critical("%s", message)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock server",
        description=SUMMARY,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="file of settings by Kafka's names")
    parser.add_argument(
        "-o",
        "--override",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="setting that overrides the file; repeatable",
    )
    parser.add_argument("--lifeline", type=int, metavar="FD", help=argparse.SUPPRESS)
    return parser


def _say(message: str) -> int:
    print(f"penstock server: {' '.join(message.split())}", file=sys.stderr)
    return 1
