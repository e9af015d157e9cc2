"""The flags of ``tierwise doctor``, and the options that they set."""

from __future__ import annotations

from epp.doctor.options import DoctorOptions
from epp.flags import values
from epp.flags.arguments import Given, with_fields
from epp.flags.flag import Flag, grouped

DOCTOR: tuple[Flag, ...] = grouped(
    "Flags",
    Flag("n", values.text, "namespace", "the namespace to look at (default: the kubeconfig's, or the pod's)", "NS"),
    Flag("namespace", values.text, "namespace", "the same", "NS"),
    Flag("kubeconfig", values.path, "kubeconfig", "instead of KUBECONFIG, the pod's account and ~/.kube/config",
         "FILE"),
    Flag("json", values.boolean, "json", "print the findings as JSON"),
)  # fmt: skip


def doctor_options(given: Given) -> DoctorOptions:
    """Return the options that the flags set."""
    return with_fields(DoctorOptions(pool=given.get("name", "")), given, DOCTOR)
