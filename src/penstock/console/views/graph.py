"""A pipeline as a drawing: each node in the column after those it depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

WIDTH, HEIGHT, ACROSS, DOWN = 200, 46, 84, 20
SINK, DEAD = "sink ", "dead letters"
"""The identity of a sink begins like this, and that of the topic of dead letters is this."""


@dataclass(frozen=True, slots=True)
class Node:
    identity: str
    title: str
    kind: str
    shape: Literal["topic", "step", "dead"]
    query: str = ""
    """The query that computes it, if it is a step."""


@dataclass(frozen=True, slots=True)
class Edge:
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Placed:
    node: Node
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Drawing:
    nodes: tuple[Placed, ...]
    edges: tuple[tuple[Edge, str], ...]
    """With the path of each."""
    middles: tuple[tuple[int, int], ...]
    """Where something can be written on each edge."""
    width: int
    height: int


def lay_out(nodes: Sequence[Node], edges: Sequence[Edge]) -> Drawing:
    columns = _columns(nodes, edges)
    filled: dict[int, int] = {}
    placed: dict[str, Placed] = {}
    for node in nodes:
        column = columns[node.identity]
        row = filled.get(column, 0)
        filled[column] = row + 1
        placed[node.identity] = Placed(node, column * (WIDTH + ACROSS), row * (HEIGHT + DOWN))
    paths, middles = [], []
    for edge in edges:
        if edge.source in placed and edge.target in placed:
            first, last = placed[edge.source], placed[edge.target]
            x1, y1, x2, y2 = first.x + WIDTH, first.y + HEIGHT // 2, last.x, last.y + HEIGHT // 2
            middle = (x1 + x2) // 2
            paths.append((edge, f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"))
            # Before the end of the edge: several begin at one node, but few end at one.
            middles.append((x2 - ACROSS // 3, round(y1 + (y2 - y1) * 0.84) - 5))
    width = (max(columns.values(), default=0) + 1) * (WIDTH + ACROSS) - ACROSS
    height = max(filled.values(), default=1) * (HEIGHT + DOWN) - DOWN
    return Drawing(tuple(placed.values()), tuple(paths), tuple(middles), width, height)


def _columns(nodes: Sequence[Node], edges: Sequence[Edge]) -> dict[str, int]:
    """The longest way to each node; a circle, which no pipeline has, ends after as many rounds as there are nodes."""
    columns = {node.identity: 0 for node in nodes}
    for _ in nodes:
        before = dict(columns)
        for edge in edges:
            if edge.source in columns and edge.target in columns:
                columns[edge.target] = min(len(nodes), max(columns[edge.target], columns[edge.source] + 1))
        if columns == before:
            break
    return columns
