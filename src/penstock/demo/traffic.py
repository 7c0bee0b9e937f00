"""All that flows through the demo's cluster from outside Spark: the producer, the groups, the reader of results, and
the observer of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.demo.ledger import Ledger
from penstock.demo.letters import Letters
from penstock.demo.load import Load
from penstock.demo.observer import Observer
from penstock.demo.readers import GroupReader, ResultsReader
from penstock.demo.reports import Reports
from penstock.demo.streams import GROUPS


class Traffic:
    def __init__(
        self,
        bootstrap: str,
        broker_ids: Sequence[int],
        rate: float,
        ledger: Ledger,
        reports: Reports,
        *,
        puts_aside: bool,
    ) -> None:
        """`puts_aside`: the groups write dead letters; otherwise pipelines do."""
        self.letters = Letters(bootstrap, ledger.letters)
        self.load = Load(bootstrap, rate, ledger.acknowledged)
        aside = self.letters if puts_aside else None
        self.groups = {name: GroupReader(bootstrap, name, ledger, aside) for name in GROUPS}
        self.results = ResultsReader(bootstrap, ledger, self.letters, reports, self.load.marks)
        self.observer = Observer(bootstrap, list(broker_ids))

    def parts(self) -> dict[str, Callable[[], None]]:
        """What each of its threads runs."""
        return {
            **{f"group {name}": group.run for name, group in self.groups.items()},
            "results": self.results.run,
            "observer": self.observer.run,
            "load": self.load.run,
        }

    def stop(self) -> None:
        self.load.stop()
        self.results.stopping.set()
        self.observer.stopping.set()
        for group in self.groups.values():
            group.stopping.set()
