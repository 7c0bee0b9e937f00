"""Draws the pictures of the documentation: `make docs`.

A picture is a function that puts boxes, cells, arrows and words on a canvas. Each is an SVG file of its own, with its
background, so that it can be read on light and dark pages, and follows what the reader's system prefers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
CELL = 34
STYLE = """
  .page { fill: #ffffff } .box { fill: #f3f5f7; stroke: #5c6b78 } .line { stroke: #5c6b78 } .head { fill: #5c6b78 }
  text { fill: #1d2731; font: 15px system-ui, sans-serif } .small { font-size: 13px } .faint { fill: #52606c }
  .bold { font-weight: 600 } .code { font-family: ui-monospace, monospace; font-size: 13px }
  .teal { fill: #bfe6e0; stroke: #17796c } .gold { fill: #f8e2b0; stroke: #9a6a00 }
  .rose { fill: #f6cdd3; stroke: #a8324a }
  .plain { fill: #dde3e8; stroke: #5c6b78 } .empty { fill: none; stroke: #9aa7b2; stroke-dasharray: 4 3 }
  .mark { stroke: #a8324a; stroke-width: 2 } text.mark { fill: #a8324a; stroke: none }
  @media (prefers-color-scheme: dark) {
    .page { fill: #1b2229 } .box { fill: #262f38; stroke: #92a1ad } .line { stroke: #92a1ad } .head { fill: #92a1ad }
    text { fill: #e8edf1 } .faint { fill: #b3c0ca } .teal { fill: #135a51; stroke: #62c9ba }
    .gold { fill: #6a4c0c; stroke: #e5b956 } .rose { fill: #73273a; stroke: #ee93a3 }
    .plain { fill: #3a4651; stroke: #92a1ad }
    .mark { stroke: #ff9eae } text.mark { fill: #ff9eae }
  }
"""


class Canvas:
    def __init__(self, width: int, height: int, about: str) -> None:
        self._size = width, height
        self._about = about
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, look: str = "", anchor: str = "middle") -> None:
        kind = f' class="{look}"' if look else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{kind}>{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, *lines: str, look: str = "box") -> None:
        """Words in the middle: the first line bold if there are several."""
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self._parts.append(f'<rect {place} rx="6" stroke-width="1.5" class="{look}"/>')
        top = y + height / 2 - 9.5 * (len(lines) - 1) + 5
        for index, line in enumerate(lines):
            self.text(x + width / 2, top + 19 * index, line, "bold" if index == 0 and len(lines) > 1 else "small")

    def frame(self, x: float, y: float, width: float, height: float, title: str) -> None:
        """A box around others, with its title at the upper left."""
        self.box(x, y, width, height)
        self.text(x + 12, y + 22, title, "bold", "start")

    def cells(self, x: float, y: float, labels: Iterable[object], look: str = "teal") -> float:
        """Records in a row; where the row ends."""
        for label in labels:
            place = f'x="{x:g}" y="{y:g}" width="{CELL}" height="{CELL}"'
            self._parts.append(f'<rect {place} rx="3" stroke-width="1.5" class="{look}"/>')
            self.text(x + CELL / 2, y + CELL / 2 + 5, str(label), "small")
            x += CELL
        return x

    def line(self, *points: tuple[float, float], look: str = "line", dashed: bool = False) -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(f'<polyline points="{path}" fill="none" stroke-width="1.5" class="{look}"{dashes}/>')

    def arrow(self, *points: tuple[float, float], dashed: bool = False) -> None:
        self.line(*points, dashed=dashed)
        (fx, fy), (x, y) = points[-2:]
        length = ((x - fx) ** 2 + (y - fy) ** 2) ** 0.5
        dx, dy = (x - fx) / length, (y - fy) / length
        left, right = (x - 9 * dx + 4.5 * dy, y - 9 * dy - 4.5 * dx), (x - 9 * dx - 4.5 * dy, y - 9 * dy + 4.5 * dx)
        corners = " ".join(f"{px:g},{py:g}" for px, py in ((x, y), left, right))
        self._parts.append(f'<polygon points="{corners}" class="head"/>')

    def svg(self) -> str:
        width, height = self._size
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
                f"<title>{escape(self._about)}</title>",
                f"<style>{STYLE}</style>",
                f'<rect width="{width}" height="{height}" rx="10" class="page"/>',
                *self._parts,
                "</svg>\n",
            ]
        )


def topic() -> Canvas:
    canvas = Canvas(760, 330, "A topic of three partitions: records with offsets, written at the end, read anywhere")
    canvas.frame(150, 24, 440, 214, "topic orders")
    for partition, (first, end) in enumerate(((3, 9), (0, 6), (2, 10))):
        y = 62 + 56 * partition
        canvas.text(166, y + 22, f"partition {partition}", "small", "start")
        stop = canvas.cells(250, y, range(first, end))
        canvas.cells(stop, y, [end], "empty")
    canvas.box(16, 100, 104, 62, "producer", "key: truck-7")
    canvas.arrow((120, 131), (150, 131))
    canvas.text(68, 182, "the key chooses", "small faint")
    canvas.text(68, 199, "the partition", "small faint")
    canvas.text(267, 258, "log start", "small faint")
    canvas.line((267, 243), (267, 211))
    canvas.text(540, 258, "end: the next offset", "small faint")
    canvas.line((540, 243), (540, 211))
    canvas.box(622, 40, 124, 62, "group billing", "goes on at 8")
    canvas.arrow((622, 52), (250 + 5.5 * CELL, 52), (250 + 5.5 * CELL, 62))
    canvas.box(622, 176, 124, 62, "group search", "goes on at 4")
    canvas.arrow((622, 218), (250 + 2.5 * CELL, 218), (250 + 2.5 * CELL, 208))
    canvas.text(380, 290, "Records of a partition are in order and stay where they are; readers only move.", "small")
    canvas.text(380, 310, "Old records go at the front, by age or size.", "small faint")
    return canvas


def segments() -> Canvas:
    canvas = Canvas(760, 400, "A partition on disk: segments named by their first offset, each with sparse indexes")
    canvas.frame(20, 20, 720, 130, "directory orders-0")
    for index, (name, look, about) in enumerate(
        (
            ("00000000000000000000.log", "plain", "offsets 0 to 4095"),
            ("00000000000000004096.log", "plain", "offsets 4096 to 9001"),
            ("00000000000000009002.log", "teal", "active: appended to"),
        )
    ):
        x = 40 + 232 * index
        canvas.box(x, 56, 216, 38, look=look)
        canvas.text(x + 108, 80, name, "code")
        canvas.text(x + 108, 114, about, "small")
        canvas.text(x + 108, 134, ".index  .timeindex", "code faint")
    canvas.text(40, 186, "Where is offset 5123?", "bold", "start")
    canvas.text(722, 186, "By name the segment, by its index a place before, then batch by batch.", "small", "end")
    canvas.frame(40, 206, 250, 150, "...4096.index")
    for row, (offset, position, look) in enumerate(
        (("4096", "0", ""), ("5088", "131072", "mark"), ("6120", "262144", ""))
    ):
        y = 256 + 32 * row
        canvas.text(110, y, offset, f"code {look}".strip())
        canvas.text(220, y, position, f"code {look}".strip())
    canvas.text(110, 346, "offset", "small faint")
    canvas.text(220, 346, "position", "small faint")
    canvas.frame(360, 206, 360, 150, "...4096.log")
    for index, (label, look) in enumerate((("5088-5119", "plain"), ("5120-5151", "gold"), ("5152-...", "plain"))):
        canvas.box(380 + 110 * index, 248, 104, 44, label, look=look)
    canvas.arrow((252, 283), (330, 283), (330, 270), (380, 270))
    canvas.text(432, 316, "byte 131072", "small faint")
    canvas.text(542, 316, "5123 is in here", "small")
    canvas.text(542, 336, "a batch: header, CRC, records", "small faint")
    canvas.text(
        380, 384, "Indexes are sparse, one entry every 4 KiB or so, and can be made again from the log.", "small faint"
    )
    return canvas


def replication() -> Canvas:
    canvas = Canvas(760, 360, "A partition on three brokers: the leader, followers that fetch, and the high watermark")
    rows = (
        ("broker 1: leader", 8, "in sync"),
        ("broker 2: follower", 7, "in sync"),
        ("broker 3: follower", 4, "fell behind"),
    )
    for index, (name, end, state) in enumerate(rows):
        y = 52 + 84 * index
        canvas.frame(150, y - 28, 480, 72, name)
        committed = min(end, 7)
        stop = canvas.cells(300, y, range(committed), "teal" if state == "in sync" else "plain")
        canvas.cells(stop, y, range(committed, end), "gold")
        canvas.text(618, y - 7, state, "small faint" if state == "in sync" else "small mark", "end")
    canvas.arrow((150, 144), (136, 144), (136, 84), (150, 84))
    canvas.arrow((150, 228), (128, 228), (128, 72), (150, 72))
    canvas.text(120, 176, "followers", "small faint", "end")
    canvas.text(120, 193, "fetch", "small faint", "end")
    canvas.line((300 + 7 * CELL, 26), (300 + 7 * CELL, 286), look="mark")
    canvas.text(300 + 7 * CELL, 304, "high watermark: 7", "mark")
    canvas.box(14, 24, 98, 52, "producer", "acks=all")
    canvas.arrow((112, 50), (150, 50))
    canvas.box(648, 34, 104, 52, "consumer", "reads 0 to 6")
    canvas.arrow((648, 60), (630, 60))
    canvas.text(
        40,
        328,
        "ISR = {1, 2}. Record 7 is acknowledged when both have it; until then no consumer reads it.",
        "small",
        "start",
    )
    canvas.text(
        40, 348, "If broker 1 dies, broker 2 leads: it has all that was ever acknowledged.", "small faint", "start"
    )
    return canvas


def groups() -> Canvas:
    canvas = Canvas(760, 340, "A consumer group: members share partitions, and commit how far they are")
    canvas.frame(20, 24, 190, 232, "topic orders")
    canvas.frame(470, 24, 270, 232, "group billing")
    for partition in range(4):
        canvas.box(40, 58 + 48 * partition, 150, 36, f"partition {partition}", look="teal")
    for member, (y, partitions) in enumerate(((58, (0, 1)), (130, (2,)), (202, (3,)))):
        canvas.box(490, y, 110, 40, f"member {member + 1}", look="gold")
        for partition in partitions:
            canvas.arrow((190, 76 + 48 * partition), (490, y + 20))
    canvas.text(612, 83, "reading 0 and 1", "small faint", "start")
    canvas.text(612, 155, "reading 2", "small faint", "start")
    canvas.text(612, 227, "reading 3", "small faint", "start")
    canvas.box(250, 274, 250, 46, "coordinator (a broker)", "who reads what, committed offsets")
    canvas.arrow((545, 256), (545, 297), (500, 297))
    canvas.text(556, 282, "heartbeats,", "small faint", "start")
    canvas.text(556, 300, "commits", "small faint", "start")
    canvas.text(20, 290, "A partition has one reader", "small", "start")
    canvas.text(20, 310, "in a group, and any number", "small", "start")
    canvas.text(20, 330, "of groups.", "small", "start")
    return canvas


def kraft() -> Canvas:
    canvas = Canvas(760, 360, "KRaft: controllers agree on a log of metadata, which brokers follow")
    canvas.frame(20, 20, 720, 152, "controllers: a quorum of three, of which any two decide")
    for index, (name, end) in enumerate((("controller 1", 5), ("controller 2: active", 6), ("controller 3", 6))):
        x = 34 + 240 * index
        canvas.box(x, 54, 212, 40, name, look="gold" if "active" in name else "plain")
        canvas.cells(x, 106, range(100, 100 + end), "teal" if end == 6 else "plain")
    canvas.arrow((248, 74), (270, 74))
    canvas.arrow((510, 74), (488, 74))
    canvas.text(380, 162, "__cluster_metadata-0: topics, partitions, leaders, ISRs, settings", "small faint")
    for index in range(4):
        canvas.box(44 + 176 * index, 262, 144, 52, f"broker {index + 1}", "has the same state")
        canvas.arrow((116 + 176 * index, 262), (116 + 176 * index, 224), (380, 224), (380, 172), dashed=True)
    canvas.text(396, 204, "brokers fetch the log, and send heartbeats", "small", "start")
    canvas.text(
        380,
        342,
        "A record counts when a majority has it on disk. If the active controller dies, another is elected.",
        "small",
    )
    return canvas


def transaction() -> Canvas:
    canvas = Canvas(780, 420, "A transaction: records and offsets in several partitions count together or not at all")
    lanes = {"producer": 76, "coordinator": 290, "orders-0": 450, "orders-1": 570, "offsets": 700}
    for name, x in lanes.items():
        canvas.box(x - 56, 20, 112, 34, name, look="gold" if name in ("producer", "coordinator") else "teal")
        canvas.line((x, 54), (x, 356), dashed=True)
    steps = (
        ("producer", "coordinator", "my transactional id"),
        ("producer", "orders-0", "records"),
        ("producer", "orders-1", "records"),
        ("producer", "offsets", "what was read for them"),
        ("producer", "coordinator", "commit"),
        ("coordinator", "coordinator", "decided: one record in its log"),
        ("coordinator", "orders-0", "marker"),
        ("coordinator", "orders-1", "marker"),
        ("coordinator", "offsets", "marker"),
    )
    for index, (source, target, words) in enumerate(steps):
        y = 84 + 32 * index
        if source == target:
            canvas.box(lanes[source] - 110, y - 17, 220, 24, words, look="rose")
            continue
        canvas.arrow((lanes[source], y), (lanes[target], y))
        canvas.text(lanes[source] + 8, y - 5, words, "small", "start")
    canvas.text(
        380, 382, "Readers with isolation.level=read_committed see the records when the marker is there,", "small"
    )
    canvas.text(380, 402, "and never those of a transaction that was aborted.", "small")
    return canvas


def pipeline() -> Canvas:
    canvas = Canvas(
        760, 350, "A pipeline: topics and tables in, steps in SQL, topics and tables out, dead letters aside"
    )
    canvas.frame(180, 20, 400, 262, "orders.yaml, on Spark")
    canvas.box(20, 62, 120, 50, "topic", "orders", look="teal")
    canvas.box(20, 166, 120, 50, "table", "customers", look="plain")
    canvas.box(204, 62, 116, 50, "decode", "JSON, a schema", look="gold")
    canvas.box(204, 166, 116, 50, "lookup", "read per batch", look="gold")
    canvas.box(364, 108, 92, 62, "steps", "SQL", look="gold")
    canvas.box(478, 108, 88, 62, "expect", "or else", look="gold")
    canvas.arrow((140, 87), (204, 87))
    canvas.arrow((140, 191), (204, 191))
    canvas.arrow((320, 87), (342, 87), (342, 130), (364, 130))
    canvas.arrow((320, 191), (342, 191), (342, 150), (364, 150))
    canvas.arrow((456, 139), (478, 139))
    canvas.box(624, 50, 120, 50, "topic", "orders.large", look="teal")
    canvas.box(624, 130, 120, 50, "Delta, files", "large orders", look="plain")
    canvas.box(624, 214, 120, 50, "topic", "dead letters", look="rose")
    canvas.arrow((566, 128), (602, 128), (602, 75), (624, 75))
    canvas.arrow((566, 150), (624, 150))
    canvas.arrow((522, 170), (522, 239), (624, 239))
    canvas.arrow((262, 112), (262, 138), (192, 138), (192, 252), (624, 252), dashed=True)
    canvas.text(376, 272, "what cannot be decoded, with the reason", "small faint")
    canvas.text(
        380, 312, "A batch is in all topics, tables and dead letters once: offsets are in the checkpoint,", "small"
    )
    canvas.text(380, 332, "records in transactions, commits to tables carry the batch's number.", "small")
    return canvas


def exactly_once() -> Canvas:
    canvas = Canvas(780, 400, "The sink of Spark: tasks write, the driver decides, and the next process carries it out")
    tasks, driver, brokers = 100, 370, 680
    for name, x in (("tasks, on executors", tasks), ("driver", driver), ("brokers", brokers)):
        canvas.box(x - 80, 20, 160, 34, name, look="teal" if x == brokers else "gold")
        canvas.line((x, 54), (x, 370), dashed=True)
    steps = (
        (tasks, brokers, "rows: a transaction a task, left open"),
        (tasks, driver, "which transaction it is"),
        (driver, brokers, "all open, still the same? prepare them"),
        (driver, brokers, "the decision: transactions of batch 7"),
        (driver, driver, "from here on batch 7 is written, whichever process dies"),
        (driver, brokers, "commit each of them"),
        (driver, brokers, "abort what attempts that lost left open"),
        (driver, driver, "Spark notes batch 7 in the checkpoint"),
    )
    for index, (source, target, words) in enumerate(steps):
        y = 90 + 38 * index
        if source == target:
            canvas.box(source - 170, y - 18, 340, 28, words, look="rose" if index == 4 else "plain")
            continue
        canvas.arrow((source, y), (target, y))
        canvas.text(source + 8, y - 6, words, "small", "start")
    return canvas


def migration() -> Canvas:
    canvas = Canvas(780, 430, "A cluster moves from Apache Kafka to Penstock: both kinds in one cluster, step by step")
    stages = (
        ("1. Kafka", (("kafka 1", "gold", "P0 P1", True),)),
        ("2. join", (("kafka 1", "gold", "P0 P1", True), ("penstock 11", "teal", "empty", False))),
        ("3. move", (("kafka 1", "gold", "P0", True), ("penstock 11", "teal", "P0 P1", False))),
        ("4. controllers", (("kafka 1", "gold", "empty", False), ("penstock 11", "teal", "P0 P1", True))),
        ("5. retire", (("penstock 11", "teal", "P0 P1", True),)),
    )
    for index, (title, nodes) in enumerate(stages):
        x = 16 + 152 * index
        canvas.frame(x, 24, 140, 230, title)
        for name, look, holds, votes in nodes:
            y = 60 if look == "gold" else 152
            canvas.box(x + 12, y, 116, 80, name, holds, "votes" if votes else "does not vote", look=look)
        if index < len(stages) - 1:
            canvas.arrow((x + 140, 140), (x + 152, 140))
    canvas.arrow((740, 282), (40, 282))
    canvas.text(390, 302, "back: the same steps, the other way, from anywhere", "small faint")
    canvas.text(
        390,
        340,
        "Each partition is copied beside its replicas (2), its copies are compared with the leader's log,",
        "small",
    )
    canvas.text(390, 360, "and only then do the other replicas leave (3). Voters change one at a time (4).", "small")
    canvas.text(
        390, 392, "Clients see one cluster with one id the whole time: leaders and coordinators move,", "small faint"
    )
    canvas.text(390, 410, "as in any reassignment.", "small faint")
    return canvas


def share_states() -> Canvas:
    canvas = Canvas(760, 400, "The states of a record in a share group, and what leads from one to another")
    canvas.box(30, 70, 150, 62, "available", "waits for a worker", look="plain")
    canvas.box(310, 70, 160, 62, "acquired", "locked for one worker", look="gold")
    canvas.box(590, 70, 150, 62, "acknowledged", "done", look="teal")
    canvas.box(310, 270, 160, 62, "archiving", "copied to dead letters", look="rose")
    canvas.box(590, 270, 150, 62, "archived", "given up", look="rose")
    canvas.arrow((180, 88), (310, 88))
    canvas.text(245, 78, "acquire", "small")
    canvas.text(245, 60, "delivery count + 1", "small faint")
    canvas.arrow((310, 116), (180, 116))
    canvas.text(245, 136, "release", "small")
    canvas.text(245, 154, "the lock ends", "small")
    canvas.text(245, 172, "the worker goes", "small")
    canvas.arrow((470, 101), (590, 101))
    canvas.text(530, 91, "accept", "small")
    canvas.arrow((340, 70), (340, 40), (440, 40), (440, 70))
    canvas.text(390, 32, "renew: a new lock", "small")
    canvas.arrow((470, 120), (520, 120), (520, 200), (665, 200), (665, 270))
    canvas.text(532, 166, "reject; or released,", "small", "start")
    canvas.text(532, 184, "and it was the last attempt", "small", "start")
    canvas.arrow((390, 132), (390, 270), dashed=True)
    canvas.text(380, 208, "the same, if the group", "small", "end")
    canvas.text(380, 226, "has a dead letter queue", "small", "end")
    canvas.arrow((470, 301), (590, 301), dashed=True)
    canvas.text(530, 291, "written", "small")
    canvas.text(
        380, 366, "Acquired is never persisted: after a change of leader the record is available again.", "small"
    )
    canvas.text(380, 386, "Acknowledged and archived are final; the start offset moves past them.", "small faint")
    return canvas


PICTURES: dict[str, Callable[[], Canvas]] = {
    "topic.svg": topic,
    "segments.svg": segments,
    "replication.svg": replication,
    "groups.svg": groups,
    "kraft.svg": kraft,
    "transaction.svg": transaction,
    "pipeline.svg": pipeline,
    "exactly-once.svg": exactly_once,
    "migration.svg": migration,
    "share-states.svg": share_states,
}


def main() -> None:
    for name, picture in PICTURES.items():
        (HERE / name).write_text(picture().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
