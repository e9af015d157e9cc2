"""The laws of an election, in a simulated cluster."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from epp.kube.election.holder_pod import Sight
from epp.kube.election.lease import Lease, Record
from epp.kube.election.machine import Election
from epp.kube.election.steps import Read, Wait
from epp.kube.election.term import Term
from tests.epp.kube.election.world import Picker, World

SEEDS = st.integers(0, 2**32)
TERM = Term()


def settled(seed: int, pickers: int = 3) -> tuple[World, Picker]:
    """Return a world after one of its pickers has become the leader."""
    world = World(Random(seed), pickers)
    world.until(world.settled, 10.0)
    world.run(3.0)
    return world, world.leaders()[0]


def at_most_one_is_proven(world: World) -> None:
    assert len(world.proven()) <= 1


@given(SEEDS, st.integers(1, 5))
def test_of_pickers_that_start_together_one_leads_and_the_others_stand_by(seed: int, pickers: int) -> None:
    world = World(Random(seed), pickers)
    assert world.until(world.settled, 10.0) < 3.0
    leader = world.leaders()[0]
    world.run(600.0)
    assert world.leaders() == [leader]
    assert world.serving() == [leader]
    assert leader.machine.missed == 0


@given(SEEDS)
def test_a_leader_that_is_killed_without_a_report_is_replaced_within_17_s(seed: int) -> None:
    world, leader = settled(seed)
    world.run(world.random.uniform(0, 30))
    world.kill(leader)
    assert world.until(lambda: bool(world.serving()), 17.0) > 10.0
    world.until(world.settled, 3.0)


@given(SEEDS, st.sampled_from([Sight.UNREADY, Sight.GONE, Sight.ENDING]))
def test_a_leader_whose_pod_is_reported_is_replaced_at_once(seed: int, sight: Sight) -> None:
    world, leader = settled(seed)
    world.run(world.random.uniform(0, 30))
    world.kill(leader)
    world.report(leader.name, sight)
    assert world.until(lambda: bool(world.serving()), 3.0) < 1.0
    assert world.until(world.settled, 17.0) < (1.0 if sight is Sight.GONE else 17.0)


@given(SEEDS)
def test_a_leader_that_ends_hands_over_within_2_s(seed: int) -> None:
    world, leader = settled(seed)
    world.run(world.random.uniform(0, 30))
    leader.machine.end()
    leader.advance()
    others = [picker for picker in world.pickers if picker is not leader]
    assert world.until(lambda: any(picker.serves for picker in others), 3.0) < 2.0
    world.until(lambda: not leader.machine.leads, 1.0)
    world.until(world.settled, 2.0)
    world.run(60.0)
    assert not leader.machine.leads


@given(SEEDS)
def test_a_leader_that_is_not_ready_for_long_loses_the_lease_to_a_standby(seed: int) -> None:
    world, leader = settled(seed)
    world.report(leader.name, Sight.UNREADY)
    world.until(lambda: len(world.serving()) == 3, 2.0)
    world.until(world.settled, 20.0)
    assert world.leaders() != [leader]


@given(SEEDS)
def test_a_new_leader_has_time_until_its_pod_is_ready(seed: int) -> None:
    world, leader = settled(seed)
    for picker in world.pickers:
        world.report(picker.name, Sight.READY if picker is leader else Sight.UNREADY)
    world.run(1.0)
    world.kill(leader)
    world.report(leader.name, Sight.GONE)
    world.until(world.settled, 2.0)
    successor = world.leaders()[0]
    world.run(TERM.duration_s - 3.0)
    assert world.serving() == [successor]
    world.report(successor.name, Sight.READY)
    world.run(60.0)
    assert world.serving() == [successor]


@given(SEEDS)
def test_an_outage_of_the_api_server_changes_no_leader_and_no_readiness(seed: int) -> None:
    world, leader = settled(seed)
    world.run(world.random.uniform(0, 5))
    world.turn(up=False)
    world.check = lambda: check_serving(world, leader)
    world.run(world.random.uniform(3, 300))
    world.turn(up=True)
    world.run(60.0)
    assert leader.machine.missed > 0
    assert world.settled()


def check_serving(world: World, leader: Picker) -> None:
    assert world.serving() == [leader]


@pytest.mark.parametrize("every", [2, 3, 4])
def test_a_standby_whose_requests_fail_now_and_then_replaces_a_dead_leader(every: int) -> None:
    machine = Election("epp-1_1", TERM, wall=lambda: 1.8e9, random=lambda: 0.5)
    lease, requests, now = Lease("7", Record("epp-0_1", 15)), 0, 1000.0
    while not machine.serves(now):
        step = machine.step(now, able=True)
        if isinstance(step, Wait):
            now = max(now + 0.01, min(step.until, now + TERM.retry_s))
            continue
        requests += 1
        if requests % every == 0:
            machine.failed(now)
        elif isinstance(step, Read):
            machine.saw(lease, now)
        assert now < 1000.0 + TERM.duration_s + TERM.overdue_s + 5.0


@given(SEEDS)
def test_a_partitioned_leader_goes_on_until_it_sees_another_holder(seed: int) -> None:
    world, leader = settled(seed)
    world.check = lambda: at_most_one_is_proven(world)
    leader.reachable = False
    world.run(TERM.duration_s + 10.0)
    assert leader.serves
    assert not leader.machine.proven(leader.now)
    assert len(world.leaders()) == 2
    leader.reachable = True
    world.until(world.settled, 10.0)
    assert not leader.machine.leads


@given(SEEDS)
def test_a_restarted_leader_takes_its_own_lease_back(seed: int) -> None:
    world, leader = settled(seed)
    world.kill(leader)
    world.start(name=leader.name)
    assert world.until(world.settled, 3.0) < 1.0
    assert world.leaders()[0].name == leader.name


@given(SEEDS)
def test_a_lease_that_is_deleted_by_hand_stays_with_the_leader(seed: int) -> None:
    world, leader = settled(seed)
    world.server.delete()
    world.tell_watchers()
    world.run(60.0)
    assert world.serving() == [leader]
    assert world.server.lease is not None


@given(SEEDS)
def test_a_standby_that_replaces_the_leader_serves_beside_it_until_the_rollout_has_ended(seed: int) -> None:
    world, leader = settled(seed)
    newer = [picker for picker in world.pickers if picker is not leader]
    world.outdated = {leader.name}
    world.until(lambda: len(world.serving()) == 3, 5.0)
    leader.machine.end()
    leader.advance()
    world.until(lambda: any(picker.machine.leads for picker in newer), 2.0)
    world.kill(leader)
    world.run(TERM.duration_s - 5.0)
    assert sorted(world.serving(), key=id) == sorted(newer, key=id)
    world.run(10.0)
    assert world.settled()


RUBBISH = st.builds(
    Record,
    holder=st.sampled_from(["", "rubbish", "epp-9_1234", "_", "a_b_c", "x" * 5000, "\n,=", "epp-0_of-an-earlier-life"]),
    duration_s=st.sampled_from([None, 1, 15, 2**31 - 1]),
    transitions=st.sampled_from([0, 7, 2**31 - 1]),
    acquired=st.sampled_from(["", "yesterday", "2026-11-22T10:00:00.000000Z"]),
    renewed=st.sampled_from(["", "1970-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"]),
)


@given(SEEDS, RUBBISH, st.booleans())
def test_a_lease_written_by_hand_is_taken_after_a_minute_and_served_without_in_17_s(
    seed: int, rubbish: Record, early: bool
) -> None:
    world = World(Random(seed), 0)
    if early:
        world.server.put(rubbish)
    for _ in range(3):
        world.start()
    if not early:
        world.until(world.settled, 10.0)
        world.server.put(rubbish)
        world.tell_watchers()
        world.run(0.5)
    world.until(lambda: bool(world.serving()), 17.0)
    world.until(world.settled, 70.0)
    world.run(60.0)
    assert world.settled()


@given(SEEDS)
def test_a_leader_that_cannot_serve_gives_the_lease_up(seed: int) -> None:
    world, leader = settled(seed)
    world.check = lambda: at_most_one_is_proven(world)
    leader.able = False
    world.run(TERM.overdue_s - 1.0)
    assert world.leaders() == [leader]
    world.until(world.settled, 1.0 + TERM.retry_s + 2.0)
    successor = world.leaders()[0]
    assert successor is not leader
    leader.able = True
    world.run(60.0)
    assert world.serving() == [successor]


@given(SEEDS)
def test_of_pickers_that_all_cannot_serve_the_first_that_can_leads(seed: int) -> None:
    world, _ = settled(seed)
    for picker in world.pickers:
        picker.able = False
    world.run(world.random.uniform(0, 60))
    first = world.random.choice(world.pickers)
    first.able = True
    world.until(lambda: bool(world.serving()), TERM.overdue_s + 5.0)
    world.until(world.settled, 5.0)
    assert world.serving() == [first]


@given(SEEDS, st.booleans())
@example(15865, False)  # a release that was done, and whose answer was lost
@example(291, False)  # the wait after a long outage, during which the Lease did not change
@settings(max_examples=60)
def test_whatever_happens_at_most_one_is_proven_and_in_the_end_one_leads(seed: int, fickle: bool) -> None:
    random = Random(seed)
    world = World(random, random.randint(1, 5), slowest_s=random.choice([0.05, 0.5, 2.0]), loss=random.choice([0, 0.2]))
    world.check = lambda: at_most_one_is_proven(world)
    for _ in range(30):
        happen(world, random)
        if fickle:
            random.choice(world.pickers).able = random.random() < 0.5
        world.run(random.choice([0.1, 1.0, 5.0, 20.0]))
    world.turn(up=True)
    world.loss = 0.0
    for picker in world.pickers:
        picker.reachable = picker.able = True
    world.start()
    world.run(90.0)
    assert world.settled()


def happen(world: World, random: Random) -> None:
    """Let one thing go wrong, or right again."""
    picker = random.choice(world.pickers)
    match random.randrange(8):
        case 0 if picker.runs and len(world.pickers) < 12:
            world.kill(picker)
            if random.random() < 0.5:
                world.report(picker.name, Sight.GONE)
        case 1 if len(world.pickers) < 12:
            world.start()
        case 2:
            picker.reachable = not picker.reachable
        case 3:
            world.turn(up=not world.server.up)
        case 4:
            picker.watches = not picker.watches
        case 5 if picker.runs and random.random() < 0.5:
            picker.machine.end()
            picker.advance()
            world.report(picker.name, Sight.ENDING)
            world.after(10.0, lambda: world.kill(picker))
        case 6 if not picker.runs and picker.name not in {other.name for other in world.running()}:
            world.start(name=picker.name)
        case 7:
            world.slowest_s = random.choice([0.05, 0.5, 2.0])


def test_a_picker_that_may_not_read_the_lease_serves_and_asks_again() -> None:
    world = World(Random(0), 1)
    machine = world.pickers[0].machine
    now = world.pickers[0].now
    machine.refused(now, unreadable=True)
    assert machine.serves(now)
    assert not machine.leads


def test_a_standby_that_is_refused_for_a_moment_stays_one_and_serves_if_that_lasts() -> None:
    world, leader = settled(0)
    machine, now = next(picker for picker in world.pickers if picker is not leader).machine, 1e7
    for later, serves in ((0.0, False), (14.0, False), (16.0, True)):
        machine.refused(now + later, unreadable=True)
        assert machine.serves(now + later) is serves
    machine.saw(world.server.lease, now + 17.0)
    assert not machine.serves(now + 17.0)


@pytest.mark.parametrize("able", [True, False])
def test_a_picker_that_is_not_able_takes_no_lease(able: bool) -> None:
    world = World(Random(0), 1)
    machine, now = world.pickers[0].machine, world.pickers[0].now
    machine.saw(None, now)
    assert (type(machine.step(now, able=able)).__name__ == "Write") is able
