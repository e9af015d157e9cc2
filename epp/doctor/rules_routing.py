"""Rules about the way to a pool: routes and gateways, the picker's Service, and Istio's rules for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from epp.doctor.finding import Finding
from epp.doctor.objects import Condition, Service
from epp.doctor.objects_routing import DestinationRule, Parent
from epp.doctor.snapshot import Picker, Pool, Snapshot, is_ready
from epp.units import parse_duration

SHORT_ROUTE_S = 60.0
"""A limit of a route below this cuts answers that are long: 1,000 tokens at 30 ms are 30 s. A guess."""
FEW_REQUESTS = 10_000
"""A circuit breaker below this refuses requests at loads that engines bear. Source: llm-d/llm-d#1582, where Envoy's
default of 1,024 did."""
_PLAIN = ("", "DISABLE")
_HTTP2 = ("grpc", "grpc-web", "http2", "kubernetes.io/h2c")
_GATEWAY_WORDS = {
    "Accepted": "gateway-not-accepted",
    "Programmed": "gateway-not-programmed",
    "ResolvedRefs": "gateway-not-resolved",
}


def gateways(seen: Snapshot) -> Iterator[Finding]:
    """Find Gateways that routes name and that do not exist, or that their controller could not set up."""
    for (namespace, name), gateway in seen.gateways.items():
        what = f"Gateway {namespace}/{name}"
        if gateway is None:
            yield Finding(
                "gateway-missing", what, "is named by a route and does not exist, so no request reaches the pool.",
                f"kubectl get gateways --all-namespaces, and correct parentRefs of the routes in {seen.namespace}",
            )  # fmt: skip
            continue
        for condition in gateway.status.conditions:
            if condition.status == "False" and condition.type in _GATEWAY_WORDS:
                yield Finding(
                    _GATEWAY_WORDS[condition.type], what,
                    f"is not ready for requests: {_words(condition)}.",
                    f"kubectl -n {namespace} describe gateway {name}",
                )  # fmt: skip


def routes(seen: Snapshot) -> Iterator[Finding]:
    """Find routes to our pools that are refused, name a wrong group, or cut long answers."""
    groups = {pool.name: pool.group for pool in sorted(seen.pools, key=lambda pool: pool.group, reverse=True)}
    for route in seen.routes:
        what = f"HTTPRoute {route.metadata.namespace}/{route.metadata.name}"
        edit = f"kubectl -n {route.metadata.namespace} edit httproute {route.metadata.name}"
        refs = [ref for rule in route.spec.rules for ref in rule.backend_refs if ref.kind == "InferencePool"]
        ours = [ref for ref in refs if seen.name in ("", ref.name)]
        if not ours:
            continue
        for ref in ours:
            there = {pool.group for pool in seen.pools if pool.name == ref.name}
            if ref.namespace in ("", seen.namespace) and there and ref.group not in there:
                yield Finding(
                    "route-names-other-group", what, f"names the InferencePool {ref.name} in the group {ref.group}, "
                    f"and the pool is in {groups[ref.name]}, so that its requests are refused.", edit,
                )  # fmt: skip
            elif ref.namespace in ("", seen.namespace) and not there and seen.saw("inferencepools"):
                yield Finding(
                    "route-to-missing-pool", what, f"names the InferencePool {ref.name}, which does not exist in "
                    f"{seen.namespace}, so that its requests are refused.", edit,
                )  # fmt: skip
        yield from _refused(what, "route", route.status.parents, edit)
        for rule in route.spec.rules:
            if not any(ref in ours for ref in rule.backend_refs):
                continue
            for name, text in (("request", rule.timeouts.request), ("backendRequest", rule.timeouts.backend_request)):
                if 0 < _seconds(text) < SHORT_ROUTE_S:
                    yield Finding(
                        "route-timeout-short", what, f"ends answers after {text} (timeouts.{name}), and an answer of "
                        "a thousand tokens takes longer; 0s is no limit.", edit,
                    )  # fmt: skip


def pool_conditions(seen: Snapshot) -> Iterator[Finding]:
    """Find pools that a gateway's controller refuses or cannot resolve."""
    for pool in seen.asked_pools():
        edit = f"kubectl -n {pool.namespace} describe {pool.resource}"
        yield from _refused(str(pool), "pool", pool.parents, edit)


def services(seen: Snapshot) -> Iterator[Finding]:
    """Find pools without a picker's Service, and Services that lead gateways to no picker."""
    for pool in seen.asked_pools():
        if pool.service is None:
            if pool.name in {ref.name for one in seen.routes for rule in one.spec.rules for ref in rule.backend_refs}:
                yield Finding(
                    "no-picker-reference", str(pool), "names no Service of a picker, so that gateways spread requests "
                    "without one.", f"kubectl -n {pool.namespace} edit {pool.resource}, and add endpointPickerRef",
                )  # fmt: skip
            continue
        if not seen.saw("services", "pods", "deployments"):
            continue
        service = seen.service(pool.service)
        what = f"Service {pool.namespace}/{pool.service}"
        if service is None:
            yield Finding(
                "service-missing", what, f"is the picker's, as {pool} says, and does not exist.",
                f"kubectl -n {pool.namespace} get services, and correct endpointPickerRef of {pool.resource}",
            )  # fmt: skip
            continue
        yield from _selected(seen, pool, what, service)
        yield from _port(seen, pool, what, service)


def slices(seen: Snapshot) -> Iterator[Finding]:
    """Find Services of pickers whose EndpointSlices have other addresses than the ready pods."""
    for pool in seen.asked_pools():
        service = seen.service(pool.service or "")
        if service is None or not seen.slices or not seen.selected_by(service):
            continue
        listed = {
            address
            for one in seen.slices
            if (one.metadata.labels or {}).get("kubernetes.io/service-name") == pool.service
            for endpoint in one.endpoints
            if endpoint.conditions.ready
            for address in endpoint.addresses
        }
        there = [pod.status for pod in seen.selected_by(service) if is_ready(pod) and pod.status.pod_ip]
        ready = {ip for status in there for ip in (status.pod_ip, *(one.ip for one in status.pod_ips))}
        if ready and not listed & ready:
            yield Finding(
                "slices-differ", f"Service {pool.namespace}/{pool.service}", "has ready pickers that none of its "
                "EndpointSlices lists, so that gateways do not find them: the controller of EndpointSlices is behind.",
                f"kubectl -n {pool.namespace} get endpointslices -l kubernetes.io/service-name={pool.service}",
            )  # fmt: skip


def destination_rules(seen: Snapshot) -> Iterator[Finding]:
    """Find rules of Istio that speak to the picker as it does not, or refuse requests at loads that are usual."""
    for pool in seen.asked_pools():
        for rule in seen.destination_rules:
            if pool.service is None or not _is_for(rule, pool.service, pool.namespace):
                continue
            what = f"DestinationRule {rule.metadata.namespace}/{rule.metadata.name}"
            yield from _tls(seen, what, rule, pool)
            yield from _breakers(what, rule)
        if pool.service is not None and seen.saw("destinationrules") and _istio_leads_here(seen, pool):
            for picker in _behind(seen, pool.service):
                ours = [rule for rule in seen.destination_rules if _is_for(rule, pool.service, pool.namespace)]
                if picker.written.is_on("secure-serving", True) and not ours:
                    yield Finding(
                        "tls-differs", f"Service {pool.namespace}/{pool.service}", f"leads to {picker}, which serves "
                        "TLS, and no DestinationRule lets Istio speak TLS to it.",
                        "helm upgrade RELEASE manifests/charts/inferencepool --reuse-values --set provider.name=istio",
                    )  # fmt: skip


def _tls(seen: Snapshot, what: str, rule: DestinationRule, pool: Pool) -> Iterator[Finding]:
    policy = rule.spec.traffic_policy
    tls = [policy.tls] if policy is not None else []
    tls += [one.tls for one in policy.port_level_settings if one.port.number == pool.service_port] if policy else []
    mode = next((one.mode for one in reversed(tls) if one is not None), "")
    for picker in _behind(seen, pool.service or ""):
        secure = picker.written.is_on("secure-serving", True)
        if mode == "ISTIO_MUTUAL" and not secure:
            continue  # a sidecar, or the node's proxy, takes this TLS for the picker
        if secure is (mode in _PLAIN):
            served, spoken = ("TLS", "plaintext") if secure else ("plaintext", f"TLS ({mode})")
            wanted = "SIMPLE" if secure else "DISABLE"
            skip = ',"insecureSkipVerify":true' if secure else ""
            yield Finding(
                "tls-differs", what, f"speaks {spoken} to {picker}, which serves {served}, so that no request is "
                "answered by the picker.",
                f"kubectl -n {rule.metadata.namespace} patch destinationrule {rule.metadata.name} --type=merge -p "
                f"""'{{"spec":{{"trafficPolicy":{{"tls":{{"mode":"{wanted}"{skip}}}}}}}}}'""",
            )  # fmt: skip


def _breakers(what: str, rule: DestinationRule) -> Iterator[Finding]:
    policy = rule.spec.traffic_policy
    pool = policy.connection_pool if policy is not None else None
    if pool is None:
        return
    limits = {
        "http.http2MaxRequests": pool.http.http2_max_requests,
        "http.http1MaxPendingRequests": pool.http.http1_max_pending_requests,
    }
    low = {name: value for name, value in limits.items() if 0 < value < FEW_REQUESTS}
    if low:
        name = next(iter(low))
        field = name.rpartition(".")[2]
        yield Finding(
            "circuit-breaker-low", what, f"lets {low[name]:,} requests through at once ({name}), and refuses more "
            "with 503 before the picker sees them.",
            f"kubectl -n {rule.metadata.namespace} patch destinationrule {rule.metadata.name} --type=merge -p "
            f"""'{{"spec":{{"trafficPolicy":{{"connectionPool":{{"http":{{"{field}":1000000}}}}}}}}}}'""",
        )  # fmt: skip


def _selected(seen: Snapshot, pool: Pool, what: str, service: Service) -> Iterator[Finding]:
    pickers = [picker for picker in seen.pickers() if picker.pool_name == pool.name]
    pods = {pod.metadata.name for picker in pickers for pod in seen.pods_of_picker(picker)}
    selected = {pod.metadata.name for pod in seen.selected_by(service)}
    leads = any(picker.name == behind.name for picker in pickers for behind in _behind(seen, service.metadata.name))
    if (pods and selected & pods) or (leads and not pods) or not service.spec.selector:
        return  # a picker without a pod is a finding of its own, and a Service without a selector has slices of yours
    wanted = (pickers[0].deployment.spec.template.metadata.labels or {}) if pickers else {"app": "picker"}
    patch = ",".join(f'"{name}":"{value}"' for name, value in sorted(wanted.items()))
    if pods or not selected:
        yield Finding(
            "service-without-picker", what, "selects no pod of a picker, so that gateways have none to ask.",
            f"kubectl -n {service.metadata.namespace} patch service {service.metadata.name} --type=merge -p "
            f"""'{{"spec":{{"selector":{{{patch}}}}}}}'""",
        )  # fmt: skip


def _port(seen: Snapshot, pool: Pool, what: str, service: Service) -> Iterator[Finding]:
    found = [port for port in service.spec.ports if port.port == pool.service_port]
    edit = f"kubectl -n {service.metadata.namespace} edit service {service.metadata.name}"
    if pool.service_port is not None and not found:
        there = ", ".join(str(port.port) for port in service.spec.ports) or "none"
        yield Finding(
            "service-port-missing", what, f"has no port {pool.service_port}, where {pool} sends gateways to ask; it "
            f"has {there}.", edit,
        )  # fmt: skip
    for port in found:
        speaks = port.app_protocol in _HTTP2 or port.name.startswith(_HTTP2[:3])
        if not speaks and _istio_may_lead_here(seen, pool):
            yield Finding(
                "service-port-protocol", what, f"does not say that its port {port.port} ({port.name or 'no name'}) "
                "speaks HTTP/2, so that Istio speaks HTTP/1 or TCP there and the picker gets no stream.",
                f"kubectl -n {service.metadata.namespace} patch service {service.metadata.name} -p "
                f"""'{{"spec":{{"ports":[{{"port":{port.port},"appProtocol":"http2"}}]}}}}'""",
            )  # fmt: skip


def _refused(what: str, kind: str, parents: Iterable[Parent], command: str) -> Iterator[Finding]:
    for parent in parents:
        for condition in parent.conditions:
            if condition.status != "False" or condition.type not in ("Accepted", "ResolvedRefs"):
                continue
            cause = "not-accepted" if condition.type == "Accepted" else "not-resolved"
            ref = parent.parent_ref
            by = f"{ref.kind or 'Gateway'} {ref.name}" if ref.name else parent.controller_name or "its controller"
            yield Finding(
                f"{kind}-{cause}", what, f"is refused by {by}: {_words(condition)}.", command,
            )  # fmt: skip


def _words(condition: Condition) -> str:
    message = condition.message.strip().rstrip(".")
    return f"{condition.type} is False, {condition.reason or 'no reason'}{f': {message[:300]}' if message else ''}"


def _behind(seen: Snapshot, service: str) -> Iterator[Picker]:
    """Yield the pickers that a Service leads to."""
    found = seen.service(service)
    for picker in seen.pickers():
        labels = picker.deployment.spec.template.metadata.labels or {}
        if found is not None and found.spec.selector and found.spec.selector.items() <= labels.items():
            yield picker


def _istio_leads_here(seen: Snapshot, pool: Pool) -> bool:
    """Whether Istio is the gateway's controller, as it has written into the pool's status or a route's."""
    parents = [*pool.parents, *(parent for route in seen.routes for parent in route.status.parents)]
    return any(parent.controller_name.startswith("istio.io/") for parent in parents)


def _istio_may_lead_here(seen: Snapshot, pool: Pool) -> bool:
    """Whether Istio is there, and no other controller alone has written into a status."""
    parents = [*pool.parents, *(parent for route in seen.routes for parent in route.status.parents)]
    there = any(name.startswith("networking.istio.io/") for name in seen.served)
    return there and (_istio_leads_here(seen, pool) or not any(parent.controller_name for parent in parents))


def _is_for(rule: DestinationRule, service: str, namespace: str) -> bool:
    host = rule.spec.host
    if host.startswith("*"):
        return f"{service}.{namespace}.svc.cluster.local".endswith(host[1:])
    if host == service:
        return rule.metadata.namespace == namespace
    return host == f"{service}.{namespace}" or host.startswith(f"{service}.{namespace}.")


def _seconds(text: str) -> float:
    try:
        return parse_duration(text) if text else 0.0
    except ValueError:
        return 0.0
