"""Resolves paths in pipeline files."""

from __future__ import annotations

import os


def resolve(path: str, directory: str) -> str:
    """A relative path is relative to the pipeline's file; Hadoop resolves one with a scheme."""
    return path if "://" in path or path.startswith(("/", "file:")) else os.path.join(directory, path)
