"""A cluster of real processes in a with-block, to test how an application behaves when brokers fail.

    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=3)
        application = start_application(cluster.bootstrap)
        cluster.kill(cluster.leader_of("orders"))      # kill -9
        ...
        cluster.heal()                                 # every broker runs, every replica is in sync

Brokers are identified by their ids, 1 to N. Leaving the block, or the death of the test run, ends every process and
removes the data.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from types import TracebackType

from penstock.client.wire.admin import Admin
from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.nodes import RunningNode
from penstock.testing.users import ADMIN, MECHANISM, Security

HEAL_S = 60.0


class Cluster:
    def __init__(
        self,
        brokers: int = 3,
        *,
        properties: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        """`properties`: settings by Kafka's names, for every node.

        `users`: passwords by name. With users, every listener has TLS and asks for a password; clients get their
        settings from `client_properties` or `client_file`, and ACLs apply to resources for which the test creates some.

        One broker is its own controller; several have three separate controllers, so that any number of brokers may
        die.
        """
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        self._size = brokers
        self._properties = dict(properties or {})
        self._users = None if users is None else dict(users)
        self._security: Security | None = None
        self._life = contextlib.ExitStack()
        self._running: RunningCluster | None = None
        self._paused: set[int] = set()
        self._is_hurt = False

    def __enter__(self) -> Cluster:
        with self._life as life:
            directory = life.enter_context(tempfile.TemporaryDirectory(prefix="penstock-"))
            self._security = Security(directory, self._users) if self._users is not None else None
            properties = {**(self._security.node_properties if self._security else {}), **self._properties}
            self._running = life.enter_context(
                start_cluster(
                    directory, brokers=self._size, properties=properties, client_options=self.client_properties()
                )
            )
            self._create_users()
            self._life = life.pop_all()
        return self

    def _create_users(self) -> None:
        if self._security is not None and self._security.users:
            with self.admin() as admin:
                for name, password in self._security.users.items():
                    admin.users.set_password(name, password, mechanism=MECHANISM)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running = None
        self._life.close()

    @property
    def _cluster(self) -> RunningCluster:
        if self._running is None:
            raise RuntimeError("the cluster runs inside its with-block: with Cluster() as cluster: ...")
        return self._running

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for `bootstrap.servers`."""
        return self._cluster.bootstrap

    def client_properties(self, user: str = ADMIN) -> dict[str, str]:
        """Security settings of a user's client by Kafka's names; empty for a cluster without users.

        `Admin` and `penstock.arrow` take them as `options`, `Producer` and `Consumer` as `settings`.
        """
        return {} if self._security is None else self._security.client_properties(user)

    def client_file(self, user: str = ADMIN) -> str:
        """The path of a file with the address and these settings: for `--command-config`, or `Producer(f"@{path}")`."""
        if self._security is None:
            raise RuntimeError("the cluster has no users: Cluster(users={...})")
        return self._security.write_client_file(user, self.bootstrap)

    @property
    def broker_ids(self) -> list[int]:
        return [broker.node_id for broker in self._cluster.brokers]

    @property
    def running_ids(self) -> list[int]:
        """The brokers that have a process, which may be paused."""
        return [broker.node_id for broker in self._cluster.brokers if broker.running]

    def kill(self, broker_id: int) -> None:
        """Kill a broker with SIGKILL; its data stays."""
        self._hurt(broker_id).kill()
        self._paused.discard(broker_id)

    def stop(self, broker_id: int) -> None:
        """Stop a broker with a controlled shutdown, which moves leaderships away first."""
        self._hurt(broker_id).stop()
        self._paused.discard(broker_id)

    def start(self, broker_id: int) -> None:
        """Start a broker after `kill` or `stop`, with the same address and data; ready on return."""
        self._broker(broker_id).start()

    def restart(self, broker_id: int) -> None:
        """Stop the broker if it runs, and start it."""
        self.stop(broker_id)
        self.start(broker_id)

    def pause(self, broker_id: int) -> None:
        """Pause a broker, like a machine that hangs: its connections stay open and nothing answers."""
        self._hurt(broker_id).pause()
        self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        self._broker(broker_id).resume()
        self._paused.discard(broker_id)

    def heal(self) -> None:
        """Restart and resume all brokers, and wait until every replica of every topic is in sync."""
        if not self._is_hurt:
            return
        for broker_id in sorted(self._paused):
            self.resume(broker_id)
        for broker_id in set(self.broker_ids) - set(self.running_ids):
            self._broker(broker_id).begin_start()
        for broker in self._cluster.brokers:
            broker.wait_ready()
        with self.admin() as admin:
            topics = [topic.name for topic in admin.topics.list(internal=True)]
        for topic in topics:
            self._cluster.wait_for_isr(topic, HEAL_S)
        self._is_hurt = False

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replicas: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, ready to use on return, with the cluster's default number of replicas unless given.

        Returns the name.
        """
        self._cluster.create_topic(topic, partitions, replicas, configs)
        return topic

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the id of the leader, after waiting for one that runs."""
        return self._cluster.leader_of(topic, partition).node_id

    def admin(self) -> Admin:
        """Return an Admin for everything else, of the user `admin`; the caller closes it."""
        addresses = ",".join(broker.bootstrap for broker in self._cluster.brokers if broker.running)
        return Admin(addresses, options=self.client_properties())

    def log_text(self, broker_id: int) -> str:
        """Return the log of a broker."""
        return self._broker(broker_id).log_text()

    def _hurt(self, broker_id: int) -> RunningNode:
        broker = self._broker(broker_id)
        self._is_hurt = True
        return broker

    def _broker(self, broker_id: int) -> RunningNode:
        if broker_id not in self.broker_ids:
            raise ValueError(f"no broker has the id {broker_id}; there are {self.broker_ids}")
        return self._cluster.broker(broker_id)
