"""A picture of a run: ratios beside their targets, and the distribution of end-to-end latency."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from bench.results import Row


def plot(rows: Sequence[Row], path: str) -> None:
    ratios = [row for row in rows if row.floor_ratio is not None]
    latency = next((row for row in rows if row.name == "latency" and row.details), None)
    figure, axes = plt.subplots(1, 2, figsize=(14, 5), layout="constrained")
    _plot_ratios(axes[0], ratios)
    _plot_latency(axes[1], latency)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _plot_ratios(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_title("Broker to floor (the same bytes, no Kafka)")
    for position, row in enumerate(reversed(rows)):
        ratio, span = row.floor_ratio, row.floor_ratio_range
        if ratio is None or span is None:
            continue
        missed = row.met is False
        axes.barh(position, ratio, color="tab:red" if missed else "tab:blue", height=0.6)
        axes.plot(span, (position, position), color="black", linewidth=1)
        if row.target is not None:
            axes.plot([row.target.value] * 2, (position - 0.4, position + 0.4), color="tab:orange", linewidth=3)
        axes.text(0.01, position, f"{ratio:.2f}", va="center", color="white")
    axes.set_yticks(range(len(rows)), [row.title for row in reversed(rows)])
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set_xlim(left=0)
    axes.set_xlabel("ratio of medians; line: rounds; mark: target")


def _plot_latency(axes: Axes, row: Row | None) -> None:
    axes.set_title("End-to-end latency at 1,000 messages/s")
    axes.set_xlabel("part of the messages")
    axes.set_ylabel("ms")
    axes.set_yscale("log")
    if row is None:
        return
    for subject, runs in row.details.items():
        for number, quantiles in enumerate(runs):
            nines = [1 / (1 - fraction) for fraction, _ in quantiles]
            axes.plot(nines, [value for _, value in quantiles], label=subject if number == 0 else None)
    axes.set_xscale("log")
    axes.set_xticks([2, 10, 100, 1000], ["50%", "90%", "99%", "99.9%"])
    axes.legend()
