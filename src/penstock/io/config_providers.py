"""The providers of `config.providers`: properties files, directories with a file for each value, the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

Provider = Callable[[str, str], str]

_PACKAGE = "org.apache.kafka.common.config.provider"
VALUE_BYTES_MAX = 1 << 20


def open_provider(
    class_name: str, parameters: Mapping[str, str], parse_properties: Callable[[str], dict[str, str]]
) -> Provider:
    """LookupError for a class that there is not."""
    name = class_name.removeprefix(f"{_PACKAGE}.")
    if name == "EnvVarConfigProvider":
        return _environment(parameters)
    allowed = [
        os.path.realpath(path.strip()) for path in parameters.get("allowed.paths", "").split(",") if path.strip()
    ]
    if name == "FileConfigProvider":
        return _properties_files(allowed, parse_properties)
    if name == "DirectoryConfigProvider":
        return _directories(allowed)
    known = "FileConfigProvider, DirectoryConfigProvider and EnvVarConfigProvider"
    raise LookupError(f"there are only {known} of {_PACKAGE}, not {class_name!r}")


def _environment(parameters: Mapping[str, str]) -> Provider:
    allowed = re.compile(parameters.get("allowlist.pattern", ".*"))

    def value_of(path: str, key: str) -> str:
        if path:
            raise LookupError("a variable of the environment has no path: ${env:NAME}")
        if not allowed.fullmatch(key):
            raise LookupError("allowlist.pattern does not allow this variable")
        if key not in os.environ:
            raise LookupError("there is no such variable in the environment of the node")
        return os.environ[key]

    return value_of


def _properties_files(allowed: list[str], parse_properties: Callable[[str], dict[str, str]]) -> Provider:
    def value_of(path: str, key: str) -> str:
        values = parse_properties(_read(path, allowed))
        if key not in values:
            raise LookupError("the file has no such key")
        return values[key]

    return value_of


def _directories(allowed: list[str]) -> Provider:
    def value_of(path: str, key: str) -> str:
        if not key or key != os.path.basename(key) or key in (".", ".."):
            raise LookupError("the key is the name of a file in the directory")
        return _read(os.path.join(path, key) if path else "", allowed)

    return value_of


def _read(path: str, allowed: list[str]) -> str:
    if not path:
        raise LookupError("it needs a path and a key: ${NAME:PATH:KEY}")
    real = os.path.realpath(path)
    if allowed and not any(os.path.commonpath([real, each]) == each for each in allowed):
        raise LookupError("allowed.paths does not allow this path")
    with open(real, "rb") as file:
        data = file.read(VALUE_BYTES_MAX + 1)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise LookupError("the file is not text in UTF-8") from None
    if len(data) > VALUE_BYTES_MAX:
        raise LookupError(f"the file is larger than {VALUE_BYTES_MAX} bytes")
    return text
