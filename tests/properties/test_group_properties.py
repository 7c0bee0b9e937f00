"""Groups under any course of events: laws that hold at every moment, and where it ends when all is well again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from group_agents import ConsumerAgent, Story
from penstock.groups import classic_members
from penstock.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.protocol.messages.join_group import JoinGroupRequest

KINDS = {
    "classic": ["eager"],
    "cooperative": ["cooperative"],
    "consumer": ["consumer"],
    "mixed": ["eager", "cooperative", "consumer"],
}


def live(story: Story, kinds: list[str], steps: int) -> None:  # noqa: C901
    random = story.random
    topics = ["t1", "t2", "t3"]
    for topic in topics:
        story.topics.create(topic, random.randrange(1, 5))
    groups = ["g", "h"]
    static = 0
    story.loss = random.choice([0.0, 0.05, 0.2])
    for number in range(steps):
        chance = random.random()
        alive = list(story.alive())
        if chance < 0.05 or not alive:
            subscribed = random.sample(topics, random.randrange(1, 4)) if random.random() < 0.5 else topics
            instance = None
            if random.random() < 0.2:
                static += 1
                instance = f"i{static}"
            story.new_agent(random.choice(groups), random.choice(kinds), subscribed, instance)
        elif chance < 0.07:
            random.choice(alive).is_alive = False
        elif chance < 0.09:
            agent = random.choice(alive)
            if isinstance(agent, ConsumerAgent) and agent.epoch > 0:
                agent.leave()
        elif chance < 0.10:
            story.fail_over()
        elif chance < 0.12 and story.sent:
            story.repeat_old_request()
        elif chance < 0.13:
            topic = random.choice(topics)
            story.topics.create(topic, story.topics.partition_count(topic) + 1)
        elif chance < 0.2:
            story.commit(random.choice(alive))
        elif chance < 0.22:
            story.commit_in_transaction(random.choice(groups), random.choice(topics))
        elif chance < 0.3:
            story.send_later()
        elif chance < 0.6:
            story.advance(random.choice([10, 100, 500, 2000]))
        else:
            random.choice(alive).step()
        story.check()
        if number % 20 == 0:
            story.check_replay()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_laws_hold_whatever_happens(kind: str, seed: int) -> None:
    story = Story(seed)
    live(story, KINDS[kind], 250)
    story.check_replay()
    story.settle()
    story.check_replay()
    # Every member that still waits is sent to the next coordinator; none is left without an answer.
    story.fail_over()
    assert not story.waiting


def test_a_coordinator_that_does_not_believe_eager_members_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """They tell no generation. If what they say counts for nothing, what they had stays without an owner for ever."""

    def tells_another(request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, epoch: int) -> bool:
        return subscription.generation_id != epoch

    monkeypatch.setattr(classic_members, "_is_of_another_generation", tells_another)
    for seed in range(20):
        story = Story(seed)
        live(story, KINDS["mixed"], 250)
        try:
            story.settle()
        except AssertionError as violation:
            assert "not settled" in str(violation)
            return
    pytest.fail("20 stories have settled")
