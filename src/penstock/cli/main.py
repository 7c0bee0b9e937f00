"""`penstock`: the command line.

Each command group is a module beside this one and imports what it needs when it runs, so that `--help` is quick. A
command ends in one of three ways: it returns (exit status 0), it raises an error with a one-line message (status 1;
2 for wrong usage), or it is interrupted (130). Tracebacks are for bugs.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from penstock.cli import server


def main() -> NoReturn:
    arguments = sys.argv[1:]
    if arguments[:1] == [server.NAME]:
        # A node starts in a fraction of the time that the imports of the other commands take.
        sys.exit(server.main(arguments[1:]))
    try:
        sys.exit(run(arguments))
    except KeyboardInterrupt:  # while modules were loading
        sys.exit(130)


def run(arguments: list[str]) -> int:
    """One command; the exit status."""
    import typer

    from penstock.cli.app import UsageError, application
    from penstock.cli.output import CommandFailed, silence

    try:
        # Not by calling the application: that would answer a broken pipe with an exit status of its own.
        command = application(next((each for each in arguments if not each.startswith("-")), ""))
        with command.make_context("penstock", arguments) as context:
            status = command.invoke(context)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except UsageError as error:
        return _refuse_usage(error)
    except typer.Exit as ended:
        return int(ended.exit_code)
    except CommandFailed as failure:
        return _say(str(failure))
    except BrokenPipeError:
        silence(sys.stdout)  # the reader of our output has closed the pipe
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except OSError as error:
        return _say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:
        if isinstance(error, _failures()):
            return _say(str(error))
        raise


def _failures() -> tuple[type[Exception], ...]:
    """The errors of clients, brokers and nodes whose messages are for users."""
    from penstock.client.errors import ClientError
    from penstock.local.process import NodeFailed
    from penstock.model.errors import KafkaError

    return (ClientError, KafkaError, NodeFailed)


def _say(message: str, status: int = 1) -> int:
    from penstock.cli.output import silence

    try:
        sys.stdout.flush()
    except BrokenPipeError:  # report the failure even if nothing reads the results
        silence(sys.stdout)
    print(f"penstock: {' '.join(message.split())}", file=sys.stderr)
    return status


def _refuse_usage(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return 2  # the help that typer has printed says enough
    command = context.command_path if context is not None else "penstock"
    message = getattr(error, "format_message", error.__str__)()
    return _say(f"{message.rstrip('.')} (see {command} --help)", status=2)
