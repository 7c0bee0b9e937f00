"""The settings of share groups that decide about delivery, from the latest committed metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.metadata.features import SHARE_VERSION
from penstock.metadata.image import ConfigResource, Metadata, ResourceType
from penstock.settings.group_config import GroupConfig
from penstock.settings.live import LiveSettings
from penstock.shares.states import DeliverySettings

READ_COMMITTED = "read_committed"
DEAD_LETTERS_SINCE = 2  # of share.version


class ShareGroupSettings(NamedTuple):
    delivery: DeliverySettings
    is_committed: bool
    """Whether members get only records of committed transactions."""
    offset_reset: str
    dead_letter_topic: str
    copies_dead_letters: bool


class ImageShareSettings:
    def __init__(self, metadata: Metadata, settings: LiveSettings) -> None:
        self._metadata = metadata
        self._settings = settings
        self._of_group: dict[str, ShareGroupSettings] = {}
        self._configs: Mapping[ConfigResource, Mapping[str, str]] | None = None
        self._share_version = 0

    def __call__(self, group_id: str) -> ShareGroupSettings:
        image = self._metadata.image
        share_version = image.features.get(SHARE_VERSION, 0)
        if image.configs is not self._configs or share_version != self._share_version:
            self._configs = image.configs
            self._share_version = share_version
            self._of_group.clear()
        found = self._of_group.get(group_id)
        if found is None:
            config = GroupConfig.in_force(image.config(ResourceType.GROUP, group_id), self._settings.now)
            found = self._of_group[group_id] = ShareGroupSettings(
                DeliverySettings(
                    record_lock_duration_ms=config.share_record_lock_duration_ms,
                    delivery_count_limit=config.share_delivery_count_limit,
                    max_record_locks=config.share_partition_max_record_locks,
                    renew_enabled=config.share_renew_acknowledge_enable,
                    has_dead_letter_queue=share_version >= DEAD_LETTERS_SINCE
                    and config.errors_deadletterqueue_topic_name != "",
                ),
                config.share_isolation_level == READ_COMMITTED,
                config.share_auto_offset_reset,
                config.errors_deadletterqueue_topic_name,
                config.errors_deadletterqueue_copy_record_enable,
            )
        return found
