"""Story: nodes of the schema registry, whose writer is elected, paused, killed and woken while clients register.

Laws:

- `OneSchemaAnId`: in a context no id is ever given to two schemas, whatever was deleted and compacted away.
- `OneIdASchema`: in a context a schema keeps its id, in every subject, unless it was permanently deleted.
- `AcknowledgedStays`: what a client was told is registered is found at every node that has read everything, unless
  somebody tried to delete it permanently.
- `FencedWriterWritesNothing`: after the first batch of a writer the topic has no batch of an earlier one.
- `DecidedOnEverything`: a batch was decided by a node that had read everything before it.
- `NodesAgree`: a node that has read everything knows what the whole history adds up to, whenever it started.
- `CompactionChangesNothing`: a compacted topic adds up to the same as before.
- `AnsweredInTheEnd`: when nothing fails any more, a request is answered.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter, deque
from typing import Any, Final

from penstock.registry.core import deletion, records, registration, settings
from penstock.registry.core.candidate import Candidate, Parser
from penstock.registry.core.decision import Decision
from penstock.registry.core.errors import RegistryError
from penstock.registry.core.names import context_of
from penstock.registry.core.state import State
from penstock.simulator.stories.registry_world import Append, Group, NodeTwin, Process, Request, SchemasTopic
from penstock.simulator.story import StoryResult, Violation

NODES: Final = ("ada", "ben", "cleo")
CLIENTS: Final = 4
STEPS: Final = 900
HEALED_STEPS: Final = 600
SUBJECTS: Final = ("a", "b", ":.ctx:a")
EVENTS = (
    "registered",
    "answered by another node",
    "registered again",
    "refused",
    "softly deleted",
    "permanently deleted",
    "configured",
    "elections",
    "writers paused",
    "writers killed",
    "writers woken after another was elected",
    "nodes restarted",
    "compactions",
    "tombstones removed",
    "batches of fenced writers refused",
    "requests and answers lost",
    "requests without an answer",
)


def _schema(name: str, optional: int) -> str:
    fields: list[dict[str, Any]] = [{"name": "x", "type": "int"}]
    fields += [{"name": f"y{each}", "type": "int", "default": 0} for each in range(optional)]
    return json.dumps({"type": "record", "name": name, "fields": fields})


SCHEMAS: Final = tuple(_schema(name, optional) for name in ("A", "B") for optional in range(8))


class RegistryStory:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"{seed}/registry")
        self.events: Counter[str] = Counter()
        self.recent: deque[str] = deque(maxlen=60)
        self.trace = hashlib.sha256()
        self.now = 0
        self.topic = SchemasTopic(self.chance, self.events, lambda: self.now)
        self.group = Group()
        self.nodes = {name: NodeTwin(name, self.topic, self.group, lambda: self.now) for name in NODES}
        self.clients: list[Request | None] = [None] * CLIENTS
        self.replaced: set[str] = set()  # paused writers that were
        # What the laws are about.
        self.truth = State()  # the whole history
        self.schemas: dict[tuple[str, int], str] = {}  # by context and id: all that ever were in the topic
        self.told: dict[tuple[str, int], str] = {}  # the same, of those that clients know of
        self.ids: dict[tuple[str, str], int] = {}  # by context and schema: the id that clients were told
        self.doomed: set[tuple[str, int]] = set()  # contexts and ids that a permanent deletion was about

    def note(self, text: str) -> None:
        line = f"{self.now} {text}"
        self.recent.append(line)
        self.trace.update(line.encode())

    # -- the play -----------------------------------------------------------------------------------------------------

    def tell(self) -> StoryResult:
        violation = None
        try:
            for _ in range(STEPS):
                self.misfortune()
                self.step()
            self.heal()
            self.end_well()
        except Violation as broken:
            violation = str(broken)
        self.events["elections"] += self.group.elections
        return StoryResult(violation, self.events, self.trace.hexdigest(), tuple(self.recent))

    def step(self) -> None:
        self.now += 1
        chance = self.chance.random
        for append in list(self.topic.under_way):
            if append.not_before <= self.now and chance() < 0.3:
                self.deliver(append)
        for node in self.nodes.values():
            process = node.process
            if process is None or node.is_paused:
                continue
            if node.name in self.replaced and process.epoch is not None:
                self.events["writers woken after another was elected"] += 1
            self.replaced.discard(node.name)
            if chance() < 0.5:
                node.work(process)
            if chance() < 0.5:
                node.follow(process, self.chance.randint(1, 12))
                self.check_node(node, process)
            if chance() < 0.2:
                node.campaign(process)
        for number, request in enumerate(self.clients):
            if request is not None and request.is_over:
                self.answered(request)
                self.clients[number] = None
            elif request is None and chance() < 0.3:
                self.clients[number] = self.ask(self.request())

    def misfortune(self) -> None:
        chance = self.chance.random
        writer = next((each for each in self.nodes.values() if each.is_writer and not each.is_paused), None)
        if writer is not None and writer.process is not None and chance() < (0.03 if writer.process.work else 0.006):
            self.pause(writer)
        if writer is not None and chance() < 0.006:
            self.events["writers killed"] += 1
            self.kill(writer)
        for node in self.nodes.values():
            if node.process is None:
                if chance() < 0.05:
                    self.events["nodes restarted"] += 1
                    self.note(f"{node.name} starts")
                    node.start()
            elif chance() < 0.002:
                self.kill(node)
            if node.is_paused and self.group.elected not in (None, node.name) and node.name not in self.replaced:
                self.replaced.add(node.name)
        if chance() < 0.02:
            self.compact()

    def pause(self, node: NodeTwin) -> None:
        node.paused_until = self.now + self.chance.randint(5, 120)
        self.events["writers paused"] += 1
        self.note(f"{node.name} is paused until {node.paused_until}")

    def kill(self, node: NodeTwin) -> None:
        self.note(f"{node.name} dies")
        node.kill()

    def compact(self) -> None:
        read_by_all = min((node.process.position for node in self.nodes.values() if node.process), default=0)
        before = self.chance.randint(0, self.topic.end)
        self.topic.compact(before, read_by_all)
        self.events["compactions"] += 1
        self.note(f"compacted before {before}: {len(self.topic.log)} of {self.topic.end} left")
        fresh = State()
        for each in self.topic.log:
            fresh.replay(records.decode(each.key, each.value))
        if view(fresh) != view(self.truth):
            raise Violation("CompactionChangesNothing", f"{view(fresh)} is left of {view(self.truth)}")

    def heal(self) -> None:
        self.note("healed")
        self.topic.is_faulty = False
        for node in self.nodes.values():
            node.paused_until = -1
            if node.process is None:
                node.start()

    def end_well(self) -> None:
        """Everybody asks once more, is answered, and knows everything."""
        open_requests = CLIENTS
        self.clients = [None] * CLIENTS
        for _ in range(HEALED_STEPS):
            self.step()
            current = [node.process for node in self.nodes.values() if node.process is not None]
            if self.events["answered when healed"] >= open_requests and all(
                each.position == self.topic.end for each in current
            ):
                break
            if any(node.is_writer for node in self.nodes.values()):
                for number, request in enumerate(self.clients):
                    if request is None:
                        self.clients[number] = self.ask(self.request(SCHEMAS[number]))
        else:
            raise Violation("AnsweredInTheEnd", f"{self.events['answered when healed']} of {open_requests} answered")
        for node in self.nodes.values():
            if node.process is not None:
                self.check_node(node, node.process)

    # -- the topic ----------------------------------------------------------------------------------------------------

    def deliver(self, append: Append) -> None:
        before, epoch = self.topic.end, self.topic.epoch
        if not self.topic.deliver(append):
            return
        self.note(f"epoch {append.epoch} wrote {[each.key for each in append.batch]} at {before}")
        if append.epoch < epoch:
            raise Violation("FencedWriterWritesNothing", f"epoch {append.epoch} wrote at {before} after {epoch}")
        if append.decided_at is not None and append.decided_at != before:
            raise Violation("DecidedOnEverything", f"what is at {before} was decided at {append.decided_at}")
        for record in append.batch:
            self.check_id(record.key, record.value)
            self.truth.replay(record)

    def check_id(self, key: Any, value: Any) -> None:
        if key["keytype"] == records.SCHEMA and value is not None:
            place = (context_of(key["subject"]), int(value["id"]))
            if self.schemas.setdefault(place, value["schema"]) != value["schema"]:
                raise Violation("OneSchemaAnId", f"{place} is {value['schema']} and {self.schemas[place]}")

    # -- clients ------------------------------------------------------------------------------------------------------

    def request(self, schema: str = "") -> Request:
        subject = self.chance.choice(SUBJECTS)
        what = 0.0 if schema else self.chance.random()
        if what < 0.6:
            candidate = Candidate(schema or self.chance.choice(SCHEMAS))

            def register(state: State, parser: Parser) -> Decision:
                return registration.register(state, parser, subject, candidate)

            return Request(subject, "register", register)
        if what < 0.78:
            permanent = self.chance.random() < 0.5
            number = self.chance.randint(1, 3)

            def delete(state: State, _parser: Parser) -> Decision:
                made = deletion.delete_version(state, subject, number, permanent=permanent)
                self.doom(state, made)
                return made

            return Request(subject, "delete", delete)
        if what < 0.95:
            permanent = self.chance.random() < 0.5

            def delete_all(state: State, _parser: Parser) -> Decision:
                made = deletion.delete_subject(state, subject, permanent=permanent)
                self.doom(state, made)
                return made

            return Request(subject, "delete", delete_all)
        level = self.chance.choice(("NONE", "BACKWARD", "FULL_TRANSITIVE"))
        return Request(
            subject, "configure", lambda state, _: settings.set_config(state, subject, {"compatibility": level})
        )

    def doom(self, state: State, decision: Decision) -> None:
        for record in decision.records:
            if record.key["keytype"] == records.SCHEMA and record.value is None:
                subject = record.key["subject"]
                version = state.version(subject, record.key["version"], deleted=True)
                if version is not None:
                    self.doomed.add((context_of(subject), version.id))
                    self.ids.pop((context_of(subject), version.schema), None)

    def ask(self, request: Request) -> Request:
        """Some node gets it, and answers from memory what it can, or sends it to the writer that it knows."""
        node = self.nodes[self.chance.choice(NODES)]
        process = node.process
        if process is None or node.is_paused or not process.is_loaded:
            request.is_over = True
            return request
        if not node.is_writer and request.about == "register":
            try:
                made = request.decide(process.state, process.parser)
            except RegistryError:
                made = None  # that is for the writer to say
            if made is not None and not made.records:
                request.answer, request.at, request.is_over = made.answer, process.position, True
                self.events["answered by another node"] += 1
                return request
        writer = node if process.elsewhere is None else self.nodes[process.elsewhere]
        if writer.process is None:
            request.is_over = True
        else:
            writer.process.waiting.append(request)
        return request

    def answered(self, request: Request) -> None:
        if request.refused is not None:
            self.events["refused"] += 1
        elif request.at < 0:
            self.events["requests without an answer"] += 1
            return
        self.events["answered when healed"] += not self.topic.is_faulty
        if request.refused is not None:
            return
        self.note(f"{request.about} {request.subject}: {request.answer}")
        if request.about == "register":
            self.events["registered"] += 1
            self.told_of(request)
        elif request.about == "configure":
            self.events["configured"] += 1
        elif request.decision is not None:
            is_permanent = any(record.value is None for record in request.decision.records)
            self.events["permanently deleted" if is_permanent else "softly deleted"] += 1

    def told_of(self, request: Request) -> None:
        context, schema_id = context_of(request.subject), int(request.answer["id"])
        schema, place = request.answer["schema"], (context, schema_id)
        if self.schemas.get(place, schema) != schema:
            raise Violation("OneSchemaAnId", f"a client was told {place} for {schema}: it is {self.schemas[place]}")
        if place in self.doomed:
            return
        if place in self.told:
            self.events["registered again"] += 1
        known = self.ids.setdefault((context, schema), schema_id)
        if known != schema_id:
            raise Violation("OneIdASchema", f"{schema} of {context} has the ids {known} and {schema_id}")
        self.told.setdefault(place, schema)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def check_node(self, node: NodeTwin, process: Process) -> None:
        if process.position < self.topic.end:
            return  # what it has read is compacted, and what was rewritten may come later
        for (context, schema_id), schema in self.told.items():
            if (context, schema_id) not in self.doomed:
                found = process.state.first_with_id(context, schema_id)
                if found is None or found.schema != schema:
                    raise Violation("AcknowledgedStays", f"{node.name} has no {schema_id} of {context}, but {found}")
        if self.chance.random() < 0.2 and view(process.state) != view(self.truth):
            raise Violation("NodesAgree", f"{node.name} knows {view(process.state)}, not {view(self.truth)}")


def view(state: State) -> Any:
    """All that a state knows."""
    return (
        {subject: tuple(state.versions(subject, deleted=True)) for subject in state.subjects},
        {
            (name, schema_id): set(places)
            for name, context in state.contexts.items()
            for schema_id, places in context.by_id.items()
        },
        {name: context.by_guid for name, context in state.contexts.items() if context.by_guid},
        state.highest_ids(),
        state.declared,
        state.configs,
        state.modes,
    )


def play(seed: int) -> StoryResult:
    return RegistryStory(seed).tell()
