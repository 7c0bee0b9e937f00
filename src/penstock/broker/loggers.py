"""Reads and sets the levels of a node's loggers as configurations (`kafka-configs --entity-type broker-loggers`).

The levels belong to the process: each node answers for its own loggers, nothing is stored, and a restart resets them.
Levels have Kafka's names. A logger without its own level has the level of its parent.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Final

from penstock.controller.configs import ConfigOperation
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.incremental_alter_configs import AlterableConfig
from penstock.settings.definition import Type
from penstock.settings.explain import Explained, Source

ROOT: Final = "root"
OURS: Final = "penstock"
LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}

logger = logging.getLogger("penstock.node")


def explain(names: Collection[str] | None) -> list[Explained]:
    """Every logger, or the named ones, with its effective level."""
    return [
        Explained(
            name=name,
            value=_level_name(_logger(name).getEffectiveLevel()),
            source=Source.DYNAMIC_BROKER_LOGGER_CONFIG,
            read_only=False,
            sensitive=False,
            type=Type.UNKNOWN,
            documentation="",
            synonyms=(),
        )
        for name in _names()
        if names is None or name in names
    ]


def alter(changes: Sequence[AlterableConfig], *, validate_only: bool) -> None:
    """Make all of the changes, or none: raises KafkaError if one is invalid."""
    for change in changes:
        _check(change)
    if validate_only:
        return
    for change in changes:
        level = logging.NOTSET if change.config_operation == ConfigOperation.DELETE else LEVELS[change.value or ""]
        _logger(change.name).setLevel(level)
        logger.warning("the level of %s is now %s", change.name, change.value or "its parent's")


def check_node(node_id: int, name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if name != str(node_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id} but received {name}")


def _check(change: AlterableConfig) -> None:
    name, value = change.name, change.value
    if change.config_operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{_operation_name(change.config_operation)} is not allowed for the BROKER_LOGGER resource",
        )
    if name not in _names():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if change.config_operation == ConfigOperation.DELETE:
        if name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    elif value not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {value} as it is not a supported log level. Valid log levels are "
            f"{', '.join(sorted(LEVELS))}",
        )


def _names() -> list[str]:
    known = logging.root.manager.loggerDict
    return [*sorted(name for name in known if name == OURS or name.startswith(f"{OURS}.")), ROOT]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    """The name of the least severe level that is logged."""
    return next((name for name, number in LEVELS.items() if level <= number), "FATAL")


def _operation_name(operation: int) -> str:
    if operation in ConfigOperation._value2member_map_:
        return f"{ConfigOperation(operation).name} operation"
    return f"Unknown operation type {operation}"
