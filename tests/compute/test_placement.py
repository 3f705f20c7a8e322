"""Placement's arithmetic, against an oracle that tries everything."""

import datetime as dt
import itertools
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st

from compute.domain.eligibility import Eligibility
from compute.domain.selection import Choice, Option, choose, fit, list_totals, reachable_totals

EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
MODEL = uuid.UUID(int=1)
OTHER_MODEL = uuid.UUID(int=2)
OWN = (Eligibility.RESERVED_FREE, Eligibility.RESERVED_DRAINING, Eligibility.RESERVED_SPOT)


def option(
    index: int, gpus: int, standing: Eligibility, victim: int | None = None, model: uuid.UUID = MODEL
) -> Option:
    return Option(
        unit_id=uuid.UUID(int=1000 + index),
        address=f"0000:{index:02x}:00.0",
        model_id=model,
        gpus=gpus,
        standing=standing,
        victim=uuid.UUID(int=100 + victim) if victim is not None else None,
        since=EPOCH + dt.timedelta(hours=victim) if victim is not None else None,
    )


@st.composite
def fleets(draw: st.DrawFn) -> list[Option]:
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(1, 3),
                st.sampled_from(list(Eligibility)),
                st.integers(0, 3),
                st.sampled_from([MODEL, OTHER_MODEL]),
            ),
            max_size=7,
        )
    )
    return [
        option(index, gpus, standing, victim if standing is Eligibility.RESERVED_SPOT else None, model)
        for index, (gpus, standing, victim, model) in enumerate(rows)
    ]


def cost(options: tuple[Option, ...]) -> tuple[object, ...]:
    """What placement promises to make small, in this order."""
    victims = {chosen.victim: chosen.since for chosen in options if chosen.victim is not None}
    return (
        sum(chosen.gpus for chosen in options if chosen.standing not in OWN),
        len(victims),
        sorted((-since.timestamp() for since in victims.values() if since), reverse=True),
        sum(chosen.gpus for chosen in options if chosen.standing is Eligibility.RESERVED_DRAINING),
        sum(chosen.gpus for chosen in options if chosen.standing is Eligibility.UNRESERVED),
        len(options),
    )


def best_by_trying(options: list[Option], count: int) -> tuple[object, ...] | None:
    costs = [
        cost(subset)
        for size in range(1, len(options) + 1)
        for subset in itertools.combinations(options, size)
        if sum(chosen.gpus for chosen in subset) == count and len({chosen.model_id for chosen in subset}) == 1
    ]
    return min(costs) if costs else None


@settings(max_examples=400)
@given(fleets(), st.integers(1, 8))
def test_the_choice_is_the_best_there_is(options: list[Option], count: int) -> None:
    choice = choose(options, count)
    best = best_by_trying(options, count)
    if choice is None:
        assert best is None
        return
    assert cost(choice.options) == best
    assert sum(chosen.gpus for chosen in choice.options) == count
    assert {chosen.model_id for chosen in choice.options} == {choice.model_id}
    assert set(choice.victims) == {chosen.victim for chosen in choice.options if chosen.victim is not None}


units = st.lists(st.integers(1, 4), max_size=5).map(tuple)


def subsets(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [chosen for n in range(len(sizes) + 1) for chosen in itertools.combinations(sizes, n)]


@settings(max_examples=400)
@given(st.lists(st.tuples(units, units), max_size=4), st.integers(1, 9))
def test_the_best_fit_of_a_fleet_is_the_best_there_is(
    fleet: list[tuple[tuple[int, ...], tuple[int, ...]]], count: int
) -> None:
    """Of all ways to meet the count on one node: as little as can be of what everybody may have, then on the
    node where least is open.
    """
    ways = [
        (sum(of_all), sum(open_to_all) + sum(on_market))
        for open_to_all, on_market in fleet
        for of_all in subsets(open_to_all)
        for of_spot in subsets(on_market)
        if sum(of_all) + sum(of_spot) == count
    ]
    found = [how for sizes in fleet if (how := fit(*sizes, count)) is not None]
    assert min(found, default=None) == min(ways, default=None)


@settings(max_examples=200)
@given(units, units, st.integers(1, 9))
def test_a_node_is_ranked_by_what_would_be_chosen_there(
    open_to_all: tuple[int, ...], on_market: tuple[int, ...], count: int
) -> None:
    options = [
        option(index, gpus, Eligibility.UNRESERVED if index < len(open_to_all) else Eligibility.RELEASED)
        for index, gpus in enumerate(open_to_all + on_market)
    ]
    how, choice = fit(open_to_all, on_market, count), choose(options, count)
    assert (how is None) == (choice is None)
    if how is not None and choice is not None:
        assert how[0] == sum(each.gpus for each in choice.options if each.standing is Eligibility.UNRESERVED)
        assert how[1] == sum(each.gpus for each in options)


def test_what_is_on_the_market_makes_no_difference_to_who_may_not_have_it() -> None:
    assert fit((1, 1, 2), (), 2) == (2, 4)
    assert fit((2,), (), 2) < fit((1, 1, 2), (), 2)  # type: ignore[operator]
    assert fit((2,), (), 1) is None


@settings(max_examples=100)
@given(st.lists(st.integers(1, 8), max_size=8))
def test_sums_are_exactly_the_totals_of_subsets(sizes: list[int]) -> None:
    totals = {sum(subset) for n in range(len(sizes) + 1) for subset in itertools.combinations(sizes, n)} - {0}
    assert list_totals(reachable_totals(sizes)) == sorted(totals)


def addresses(choice: Choice | None) -> list[str]:
    assert choice is not None
    return [chosen.address for chosen in choice.options]


def test_reserved_units_are_used_up_before_open_ones_even_by_preempting() -> None:
    options = [
        option(0, 1, Eligibility.UNRESERVED),
        option(1, 1, Eligibility.RESERVED_SPOT, victim=0),
        option(2, 1, Eligibility.RESERVED_FREE),
    ]
    choice = choose(options, 2)
    assert addresses(choice) == ["0000:01:00.0", "0000:02:00.0"]


def test_spot_takes_what_is_on_its_market_before_what_is_open_to_everybody() -> None:
    options = [
        option(0, 2, Eligibility.UNRESERVED),
        option(1, 1, Eligibility.UNRESERVED),
        option(2, 1, Eligibility.RELEASED),
        option(3, 1, Eligibility.RELEASED),
    ]
    assert addresses(choose(options, 2)) == ["0000:02:00.0", "0000:03:00.0"]
    assert addresses(choose(options, 3)) == ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]


def test_free_comes_before_draining_and_draining_before_preempting() -> None:
    options = [
        option(0, 1, Eligibility.RESERVED_SPOT, victim=0),
        option(1, 1, Eligibility.RESERVED_DRAINING),
        option(2, 1, Eligibility.RESERVED_FREE),
    ]
    assert addresses(choose(options, 1)) == ["0000:02:00.0"]
    choice = choose(options, 2)
    assert addresses(choice) == ["0000:01:00.0", "0000:02:00.0"]
    assert choice is not None
    assert choice.victims == ()


def test_the_fewest_go_and_of_those_the_youngest() -> None:
    options = [
        option(0, 1, Eligibility.RESERVED_SPOT, victim=0),
        option(1, 1, Eligibility.RESERVED_SPOT, victim=1),
        option(2, 1, Eligibility.RESERVED_SPOT, victim=2),
        option(3, 1, Eligibility.RESERVED_SPOT, victim=2),
    ]
    choice = choose(options, 2)
    assert choice is not None
    assert choice.victims == (uuid.UUID(int=102),)
    one = choose(options[:2], 1)
    assert one is not None
    assert one.victims == (uuid.UUID(int=101),)


def test_a_count_is_met_by_whole_units_of_one_model() -> None:
    assert choose([option(0, 2, Eligibility.UNRESERVED)], 1) is None
    assert (
        choose(
            [option(0, 1, Eligibility.UNRESERVED), option(1, 1, Eligibility.UNRESERVED, model=OTHER_MODEL)], 2
        )
        is None
    )
    assert addresses(
        choose([option(0, 1, Eligibility.UNRESERVED), option(1, 2, Eligibility.UNRESERVED)], 2)
    ) == ["0000:01:00.0"]


def test_a_node_full_of_mixed_spot_workloads_is_decided_quickly() -> None:
    options = [
        option(index, 1 + index % 3, Eligibility.RESERVED_SPOT, victim=index // 2) for index in range(24)
    ]
    assert choose(options, 30) is not None


def test_among_sixty_workloads_of_as_many_shapes_the_one_that_is_enough_goes() -> None:
    options = [
        option(index, 1 + index, Eligibility.RESERVED_SPOT, victim=index)
        for index in range(60)
        if index % 7 != 3
    ]
    choice = choose(options, 59)
    assert choice is not None
    assert [len(choice.victims), len(choice.options)] == [1, 1]
