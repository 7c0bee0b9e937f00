"""Names that a package imports when they are used: its stub tells type checkers the same names and places."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from narrowing import present


@pytest.mark.parametrize("package", ["penstock", "penstock.pipelines", "penstock.spark"])
def test_a_stub_has_the_names_of_its_package(package: str) -> None:
    module = importlib.import_module(package)
    stub = Path(present(module.__file__)).with_suffix(".pyi")
    homes = {
        present(alias.asname): present(statement.module)
        for statement in ast.parse(stub.read_text()).body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert set(homes) == set(module.__all__)
    for name, home in homes.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
