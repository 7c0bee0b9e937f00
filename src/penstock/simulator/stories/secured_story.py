"""The cluster story on a cluster in which every client logs in, and none may do more than ACLs allow.

Nodes log in to brokers and controllers, and so do clients, for every connection; sessions end after seconds. Nodes and
root are superusers. The clients of the story are another user, who gets its ACLs when the topic exists: from then on
nothing is done by right of a superuser. The laws are those of the cluster story; that logins and decisions never stand
in the way is part of Progress. Clients do not expect refusals: a wrong one is a violation, too.
"""

from __future__ import annotations

from typing import Final

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.security.acls import EVERY_NAME, PatternType, Permission
from penstock.security.authorizer import CLUSTER, Operation, ResourceKind
from penstock.simulator.program import interleaves, play_on_loop
from penstock.simulator.stories.cluster_story import PROPERTIES, ClusterStory
from penstock.simulator.story import StoryResult

EVENTS: Final = ("logins of clients", "sessions of nodes renewed")
NODE, ROOT, CLIENT = "node", "root", "client"
PASSWORD: Final = "the same for all"
_JAAS: Final = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{NODE}" password="{PASSWORD}" '
    + " ".join(f'user_{user}="{PASSWORD}"' for user in (NODE, ROOT, CLIENT))
    + ";"
)
SECURITY: Final = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": _JAAS,
    "listener.name.controller.plain.sasl.jaas.config": _JAAS,
    "connections.max.reauth.ms": "3000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{NODE};User:{ROOT}",
}
_GRANTS: Final = (
    (ResourceKind.TOPIC, EVERY_NAME, Operation.ALL),
    (ResourceKind.GROUP, EVERY_NAME, Operation.ALL),
    (ResourceKind.CLUSTER, CLUSTER.name, Operation.ALTER),
    (ResourceKind.CLUSTER, CLUSTER.name, Operation.DESCRIBE),
    (ResourceKind.CLUSTER, CLUSTER.name, Operation.IDEMPOTENT_WRITE),
)


class SecuredStory(ClusterStory):
    properties = {**PROPERTIES, **SECURITY}

    async def run(self) -> None:
        self.world.user = (ROOT, PASSWORD)
        await super().run()
        self.events["logins of clients"] += self.world.logins
        self.events["sessions of nodes renewed"] += self.renewed()

    async def create(self) -> None:
        await super().create()
        await self.grant()
        self.world.user = (CLIENT, PASSWORD)

    async def grant(self) -> None:
        creations = [
            AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=PatternType.LITERAL,
                principal=f"User:{CLIENT}",
                host="*",
                operation=operation,
                permission_type=Permission.ALLOW,
            )
            for kind, name, operation in _GRANTS
        ]
        async with self.world.client("broker-1") as client:
            answer = await client.ask(CreateAclsRequest(creations=creations))
        assert all(result.error_code == ErrorCode.NONE for result in answer.results), answer
        await self.world.until(
            lambda: all(len(node.image.acls) == len(_GRANTS) for node in self.world.machines.values()),
            "every node knows the ACLs",
        )

    def renewed(self) -> int:
        """Logins at the nodes that run, beyond one for each of their connections that is open."""
        found = 0
        for machine in self.world.machines.values():
            node = machine.node
            if node is not None and machine.runs:
                logins = sum(counts.succeeded for counts in node.metrics.authentications.values())
                found += max(0, logins - sum(len(listener.connections) for listener in node.listeners.all))
        return found


def play(seed: int) -> StoryResult:
    return play_on_loop(seed, lambda loop: SecuredStory(loop, seed), interleaves=interleaves(seed))
