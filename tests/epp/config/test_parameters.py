"""Any parameters of a plugin give a plan, or a refusal with the key path."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp.config.schema import Config, PluginSpec
from epp.config.wiring.build import build
from epp.config.wiring.kinds import Kind, known_kinds
from epp.errors import ConfigError

KINDS = known_kinds()

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["cpu", "50ms", "/x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "x"]), inner, max_size=2),
    max_leaves=4,
)


def fields(kind: Kind) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind.Parameters)]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_parameters_make_a_plan_or_a_refusal(kind: Kind, data: st.DataObject) -> None:
    names = st.sampled_from([*fields(kind), "surprise"])
    parameters = data.draw(st.dictionaries(names, values, max_size=4))
    config = Config("llm-d.ai/v1alpha1", "EndpointPickerConfig", plugins=(PluginSpec(kind.type_name, "", parameters),))
    try:
        build(config, kinds=KINDS)
    except ConfigError as error:
        assert str(error).startswith("plugins[0].parameters")  # noqa: PT017 - a refusal is allowed, not demanded


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_slip_in_a_parameter_is_answered_with_its_path(kind: Kind) -> None:
    for field in fields(kind):
        config = Config(plugins=(PluginSpec(kind.type_name, "", {field + "s": 1}),))
        with pytest.raises(ConfigError, match=rf"^plugins\[0\]\.parameters\.{field}s: unknown field; did you mean "):
            build(config, kinds=KINDS)
