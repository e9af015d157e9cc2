"""Which endpoints may serve a model, by what their engines report."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scorers.base import Candidate, Request, Slot
from scorers.labels.served_model_filter import ServedModelFilter, ServedModelParameters
from scorers.labels.served_models import MOST_REMEMBERED, ReportedModels, ServedModels

NAMES = ("a", "b", "c")


def models(*reports: ReportedModels) -> ServedModels:
    made = ServedModels()
    for slot, each in enumerate(reports):
        made.set(Slot(slot), each)
    return made


def lists(*names: str, adapters: bool = False) -> ReportedModels:
    return ReportedModels(frozenset(names), complete=True, adapters=adapters)


def names_only(*names: str) -> ReportedModels:
    return ReportedModels(frozenset(names))


def test_a_model_goes_to_endpoints_that_list_it() -> None:
    assert models(lists("a"), lists("b"), lists("a", "b")).serving("b") == {1, 2}


def test_all_endpoints_are_no_set_at_all() -> None:
    assert models(lists("a"), lists("a", "b")).serving("a") is None


def test_a_request_without_a_model_may_go_anywhere() -> None:
    assert models(lists("a"), lists("b")).serving("") is None


def test_an_endpoint_that_has_reported_nothing_is_tried_for_every_model() -> None:
    served = models(lists("a"), ReportedModels(), lists("b"))
    assert served.serving("a") == {0, 1}
    assert served.serving("unknown") == {1}


def test_a_metrics_page_names_a_model_and_others_are_tried_there_only_if_no_endpoint_lists_them() -> None:
    served = models(lists("a"), names_only("b"))
    assert served.serving("b") == {1}
    assert served.serving("a") == {0}
    assert served.serving("alias-of-b") == {1}


def test_an_unserved_model_has_no_endpoint() -> None:
    assert models(lists("a"), lists("b")).serving("c") == frozenset()


def test_an_engine_with_places_for_adapters_is_tried_for_an_unlisted_name() -> None:
    served = models(lists("a", adapters=True), lists("a"), lists("a", "tuned", adapters=True))
    assert served.serving("other") == {0, 2}
    assert served.serving("tuned") == {2}
    assert served.serving("tuned", adapters_on_demand=True) == {0, 2}


def test_the_latest_report_counts_and_a_removed_endpoint_does_not() -> None:
    served = models(lists("a"), lists("b"))
    assert served.serving("b") == {1}
    served.set(Slot(0), lists("b"))
    assert served.serving("b") is None
    served.forget(Slot(1))
    assert served.serving("a") == frozenset()


def test_a_repeated_lookup_scans_no_endpoint() -> None:
    served = models(*[lists("a")] * 1000)
    for _ in range(100):
        assert served.serving("a") is None
    assert served.scans == 1
    served.set(Slot(3), lists("a"))  # an unchanged report
    assert served.serving("a") is None
    assert served.scans == 1


def test_names_that_clients_invent_neither_accumulate_nor_cause_further_scans() -> None:
    served = models(lists("a"), names_only("b"))
    assert served.serving("a") == {0}
    scans = served.scans
    for n in range(100):
        assert served.serving(f"invented-{n}") == {1}
        assert served.serving(f"invented-{n}", adapters_on_demand=True) == {1}
    assert served.serving("a") == {0}
    assert served.scans <= scans + 2
    assert len(served._serving) == 1


def test_the_names_that_are_remembered_are_bounded() -> None:
    names = [f"adapter-{n}" for n in range(MOST_REMEMBERED + 10)]
    served = models(lists(*names), lists("a"))
    for name in names:
        assert served.serving(name) == {0}
    assert len(served._serving) <= MOST_REMEMBERED


def test_the_filter_keeps_the_order_and_returns_the_same_sequence_if_all_endpoints_serve_the_model() -> None:
    narrower = ServedModelFilter()
    narrower.served = models(lists("a"), lists("b"), lists("a"))
    candidates = tuple(Candidate(Slot(slot), f"10.0.0.{slot}:8000") for slot in (2, 0, 1))
    assert [c.slot for c in narrower.keep(Request("r", "a", "a"), candidates)] == [2, 0]
    assert narrower.keep(Request("r", "", ""), candidates) is candidates


def test_the_target_model_counts_rather_than_the_requested_one() -> None:
    narrower = ServedModelFilter()
    narrower.served = models(lists("a"), lists("b"))
    candidates = [Candidate(Slot(slot), f"10.0.0.{slot}:8000") for slot in (0, 1)]
    assert [c.slot for c in narrower.keep(Request("r", model="a", target_model="b"), candidates)] == [1]


def test_a_filter_that_is_switched_off_keeps_all_candidates() -> None:
    narrower = ServedModelFilter(ServedModelParameters(enabled=False))
    narrower.served = models(lists("a"))
    candidates = (Candidate(Slot(0), "10.0.0.1:8000"),)
    assert narrower.keep(Request("r", "z", "z"), candidates) is candidates


reports = st.builds(ReportedModels, st.frozensets(st.sampled_from(NAMES)), st.booleans(), st.booleans())


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | reports), max_size=20), st.sampled_from([*NAMES, "d"]))
def test_results_equal_those_of_a_naive_search_whatever_was_looked_up_before(
    changes: list[tuple[int, ReportedModels | None]], model: str
) -> None:
    served, known = ServedModels(), dict[Slot, ReportedModels]()
    for number, each in changes:
        slot = Slot(number)
        if each is None:
            known.pop(slot, None)
            served.forget(slot)
        else:
            known[slot] = each
            served.set(slot, each)
        served.serving(model)
    listing = {slot for slot, each in known.items() if model in each.names}
    wanted = listing | {slot for slot, each in known.items() if not each.names}
    if not listing:
        wanted |= {slot for slot, each in known.items() if each.adapters or not each.complete}
    answer = served.serving(model)
    assert (set(known) if answer is None else answer) == wanted
    assert served.differ == (len({each.names for each in known.values()}) > 1)
