"""Claims against a naive model, which looks at every pod."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from epp.discovery.claims import Claims
from epp.discovery.pods import PodEndpoint
from epp.pool.pool import Endpoint

PODS = st.sampled_from(["a", "b", "c"])
ADDRESSES = ["10.0.0.1:80", "10.0.0.1:81", "10.0.0.2:80"]


@given(st.lists(st.tuples(PODS, st.integers(0, 2), st.booleans(), st.sets(st.sampled_from(ADDRESSES))), max_size=12))
def test_the_youngest_pod_has_an_address_whatever_came_before(steps: list[tuple[str, int, bool, set[str]]]) -> None:
    claims, model = Claims(), dict[str, tuple[PodEndpoint, ...]]()
    for pod, age, ready, addresses in steps:
        born = f"2026-11-22T10:00:0{age}Z"
        endpoints = tuple(PodEndpoint(f"{pod}-{age}", born, ready, Endpoint(a)) for a in sorted(addresses))
        concerned = {one.endpoint.address for one in (*model.get(pod, ()), *endpoints)}
        assert set(claims.put(pod, endpoints)) == concerned
        model[pod] = endpoints
        for address in ADDRESSES:
            here = [(one, name) for name, them in model.items() for one in them if one.endpoint.address == address]
            youngest = max(here, key=lambda each: (each[0].ready, each[0].created, each[0].pod), default=None)
            assert claims.holder(address) == (youngest and youngest[0])
            able = sorted(name for one, name in here if one.ready)
            assert claims.disputed(address) == (tuple(able) if len(able) > 1 else ())
    assert set(claims.pods()) == {pod for pod, endpoints in model.items() if endpoints}
