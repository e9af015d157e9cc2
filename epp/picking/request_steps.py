"""What a configuration decides about every request, replaced as a whole when the configuration changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from epp.flowcontrol.admission import Admission
from epp.parsers.base import Reader
from epp.picking.profile import Profile
from epp.served.router import ModelRouter
from epp.tokens.step import TokenStep


@dataclass(frozen=True, slots=True)
class RequestSteps:
    """The steps of a request, in the order in which it takes them: read, route, tokenize, admit, schedule."""

    parser: Reader
    profile: Profile
    admission: Admission | None = None
    """None admits every request at once."""
    objectives: Mapping[str, int] = field(default_factory=dict)
    """Priorities by the names of objectives."""
    tokens: TokenStep | None = None
    """None where no plugin reads token ids."""
    models: ModelRouter | None = None
    """None lets every endpoint serve every model."""
