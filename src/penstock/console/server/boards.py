"""Reads the files of boards."""

from __future__ import annotations

import os

from penstock.client.errors import BadSetting
from penstock.console.views.boards import BadBoard, Board, parse_board

_BYTES_MAX = 1024 * 1024


def read_board(path: str) -> Board:
    """A board has the name of its file. BadSetting if there is no such file, or it is not a board."""
    name = os.path.splitext(os.path.basename(path))[0]
    try:
        with open(path, "rb") as file:
            return parse_board(name, file.read(_BYTES_MAX).decode())
    except OSError as error:
        raise BadSetting(f"--board {path}: {error.strerror}") from error
    except (BadBoard, UnicodeDecodeError) as error:
        raise BadSetting(f"--board {path}: {error}") from error
