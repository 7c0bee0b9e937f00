from __future__ import annotations

import dataclasses
from pathlib import Path

from penstock.broker.metadata.formatting import format_or_load
from penstock.broker.metadata.store import MetadataStore
from penstock.io.files import RealFileSystem
from penstock.log.checkpoints import LEADER_EPOCH_CHECKPOINT, write_epoch_checkpoint
from penstock.metadata.snapshot import QuorumConfiguration, SnapshotId
from penstock.model.ids import Uuid
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.voter_history import VoterHistory
from penstock.simulator.stories.controller_world import node_settings


def test_an_empty_log_has_the_epoch_of_its_snapshot(tmp_path: Path) -> None:
    """A power loss keeps the snapshot and may keep a checkpoint of epochs that is older. A node that takes these for
    its own is refused by leaders, and votes for candidates that lack what is committed."""
    files, settings = RealFileSystem(), node_settings({"log.dirs": str(tmp_path)})
    format_or_load(files, settings, lambda: Uuid(b"7" * 16), 0)
    store = MetadataStore(files, settings)
    image = store.recover(0, VoterHistory(), can_fetch_again=True).image
    fetched = dataclasses.replace(image, offset=32, epoch=2)
    assert store.write_snapshot(fetched, QuorumConfiguration(), 0)[0] == SnapshotId(33, 2)
    store.begin_at(OffsetAndEpoch(33, 2))
    store.close(clean=False)
    write_epoch_checkpoint(files, f"{store.directory}/{LEADER_EPOCH_CHECKPOINT}", [(1, 0)])

    again = MetadataStore(files, settings)
    again.recover(0, VoterHistory(), can_fetch_again=True)

    assert (again.start_offset, again.end_offset, again.last_epoch) == (33, 33, 2)
    again.close(clean=False)
