{{/* The objects that a gateway's maker wants beside the pool. They point at the pool, so they need one. */}}
{{- define "tierwise.provider" -}}
{{- if and (eq .provider.name "gke") .inferencePool.create (eq .chart "inferencepool") }}
---
{{ include "tierwise.gke" . }}
{{- end }}
{{- if and (eq .provider.name "istio") (eq .chart "inferencepool") }}
---
{{ include "tierwise.istio" . }}
{{- end }}
{{- if and (eq .provider.name "envoy-ai-gateway") .httpRoute.create }}
---
{{ include "tierwise.envoyGateway" . }}
{{- end }}
{{- end -}}

{{/* GKE: how its load balancer checks the pods' health, and how long a request may take. */}}
{{- define "tierwise.gke" -}}
{{- $target := dict "group" .inferencePool.group "kind" "InferencePool" "name" .release -}}
{{- $port := first .modelServers.ports -}}
apiVersion: networking.gke.io/v1
kind: HealthCheckPolicy
metadata:
  name: {{ .release }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
spec:
  targetRef: {{- toYaml $target | nindent 4 }}
  default:
    timeoutSec: 2
    checkIntervalSec: 2
    config:
      {{- if eq (.modelServers.protocol | default "http") "grpc" }}
      type: GRPC
      grpcHealthCheck:
        portSpecification: USE_FIXED_PORT
        port: {{ $port }}
        {{- if eq .modelServers.type "vllm" }}
        grpcServiceName: /vllm.grpc.engine.VllmEngine/HealthCheck
        {{- end }}
      {{- else }}
      type: HTTP
      httpHealthCheck: {requestPath: /health, port: {{ $port }}}
      {{- end }}
---
apiVersion: networking.gke.io/v1
kind: GCPBackendPolicy
metadata:
  name: {{ .release }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
spec:
  targetRef: {{- toYaml $target | nindent 4 }}
  default:
    timeoutSec: 300
    logging: {enabled: true}
{{- if .preferred }}
{{- $preferred := .provider.gke.preferredBackends }}
---
apiVersion: networking.gke.io/v1
kind: GCPBackendPolicy
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
spec:
  targetRef: {group: "", kind: Service, name: {{ .name }}}
  default:
    balancingMode: {{ $preferred.balancingMode }}
    maxRatePerEndpoint: {{ int $preferred.maxRatePerEndpoint }}
    capacityScalerPercent: {{ int $preferred.capacityScalerPercent }}
{{- end }}
{{- end -}}

{{/* Istio: TLS to the picker, whose certificate is self-signed, and room for every request in flight. */}}
{{- define "tierwise.istio" -}}
{{- $rule := .provider.istio.destinationRule -}}
{{- $pool := dict
  "tcp" (dict "maxConnections" 1000000)
  "http" (dict "http1MaxPendingRequests" 1000000 "http2MaxRequests" 1000000 "maxRetries" 1000000)
-}}
{{- $policy := dict "connectionPool" $pool "tls" (dict "mode" "SIMPLE" "insecureSkipVerify" true) -}}
{{- include "tierwise.overlay" (dict "base" $policy "over" $rule.trafficPolicy) -}}
apiVersion: networking.istio.io/v1beta1
kind: DestinationRule
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
spec:
  host: {{ $rule.host | default (printf "%s.%s.svc.%s" .name .namespace .clusterDomain) }}
  trafficPolicy: {{- toYaml $policy | nindent 4 }}
{{- end -}}

{{/* Envoy Gateway, and Envoy AI Gateway on it: its limits of 1,024 requests and 15 s are below what a pool can hold. */}}
{{- define "tierwise.envoyGateway" -}}
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata:
  name: {{ .release }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
spec:
  targetRefs:
    - {group: gateway.networking.k8s.io, kind: HTTPRoute, name: {{ .release }}}
  circuitBreaker:
    maxConnections: 1000000
    maxPendingRequests: 1000000
    maxParallelRequests: 1000000
    maxParallelRetries: 1000000
  timeout:
    http: {requestTimeout: {{ .httpRoute.requestTimeout | quote }}}
{{- end -}}
