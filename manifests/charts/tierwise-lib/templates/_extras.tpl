{{/* The objects that are off unless the values ask for them: budgets, scaling, who may connect, CRDs, tests. */}}
{{- define "tierwise.extras" -}}
{{- $own := .own -}}
{{- if ($own.podDisruptionBudget | default dict).enabled }}
{{- if .election }}
{{- fail "\ntierwise.podDisruptionBudget.enabled: with an election only the leader counts as ready, so a budget would block every drain of its node; set tierwise.highAvailability=active, or leave the budget out" }}
{{- end }}
---
{{ include "tierwise.budget" (dict "v" . "name" .name "selector" .selector) }}
{{- if eq .proxy.mode "service" }}
---
{{ include "tierwise.budget" (dict "v" . "name" .proxyName "selector" .proxySelector) }}
{{- end }}
{{- end }}
{{- if and .epp.autoscaling.enabled (not .preferred) }}
---
{{ include "tierwise.autoscaler" (dict "v" . "name" .name "scaling" .epp.autoscaling) }}
{{- end }}
{{- if and .proxy.enabled .proxy.autoscaling.enabled }}
---
{{ include "tierwise.autoscaler" (dict "v" . "name" .proxyName "scaling" .proxy.autoscaling) }}
{{- end }}
{{- if ($own.networkPolicy | default dict).enabled }}
---
{{ include "tierwise.network" . }}
{{- end }}
{{- if and (not .literal) (ne (toString ($own.checkConfiguration | default dict).helmTest) "false") }}
---
{{ include "tierwise.test" . }}
{{- end }}
{{- range $own.extraObjects }}
---
{{ ternary . (toYaml .) (kindIs "string" .) }}
{{- end }}
{{- end -}}

{{- define "tierwise.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .v.namespace }}
  labels: {{- toYaml .v.labels | nindent 4 }}
spec:
  maxUnavailable: {{ .v.own.podDisruptionBudget.maxUnavailable | default 1 }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- toYaml .selector | nindent 6 }}
{{- end -}}

{{- define "tierwise.autoscaler" -}}
{{- $scaling := .scaling -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
  {{- fail (printf "\nautoscaling of %s has minReplicas %d and maxReplicas %d; the least number cannot be above the greatest" .name (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- end -}}
{{- $metrics := $scaling.metrics | default list -}}
{{- if empty $metrics -}}
  {{- range $resource, $target := dict "cpu" $scaling.targetCPUUtilizationPercentage "memory" $scaling.targetMemoryUtilizationPercentage -}}
    {{- if $target -}}
      {{- $metrics = append $metrics (dict "type" "Resource" "resource" (dict "name" $resource "target" (dict "type" "Utilization" "averageUtilization" (int $target)))) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .name }}
  namespace: {{ .v.namespace }}
  labels: {{- toYaml .v.labels | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .name }}}
  minReplicas: {{ int $scaling.minReplicas }}
  maxReplicas: {{ int $scaling.maxReplicas }}
  metrics: {{- toYaml $metrics | nindent 4 }}
  {{- with $scaling.behavior }}
  behavior: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/*
Who may connect to the picker's pods. An empty list of peers lets all of the namespace in; health is asked by the
kubelet, which network policies let through, and by gateways.
*/}}
{{- define "tierwise.network" -}}
{{- $peers := .own.networkPolicy -}}
{{- $namespace := list (dict "podSelector" dict) -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- toYaml .selector | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    {{- $gateways := $peers.gateways | default $namespace }}
    {{- if and .proxy.enabled (eq .proxy.mode "service") }}
    {{- $gateways = append $gateways (dict "podSelector" (dict "matchLabels" .proxySelector)) }}
    {{- end }}
    - from: {{- toYaml $gateways | nindent 8 }}
      ports:
        - {protocol: TCP, port: 9002}
        - {protocol: TCP, port: {{ int .epp.grpcHealthPort }}}
    - from: {{- toYaml ($peers.monitoring | default $namespace) | nindent 8 }}
      ports:
        - {protocol: TCP, port: 9090}
    {{- if and .proxy.enabled (eq .proxy.mode "sidecar") .envoy }}
    {{- include "tierwise.network.clients" . | nindent 4 }}
    {{- end }}
{{- if and .proxy.enabled (eq .proxy.mode "service") }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .proxyName }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- toYaml .proxySelector | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    {{- include "tierwise.network.clients" . | nindent 4 }}
{{- end }}
{{- end -}}

{{/* Who may connect to Envoy, and to its metrics. */}}
{{- define "tierwise.network.clients" -}}
- ports:
    - {protocol: TCP, port: 8081}
  {{- with .own.networkPolicy.clients }}
  from: {{- toYaml . | nindent 4 }}
  {{- end }}
- from: {{- toYaml (.own.networkPolicy.monitoring | default (list (dict "podSelector" dict))) | nindent 4 }}
  ports:
    - {protocol: TCP, port: 19001}
{{- end -}}

{{/* What `helm test` runs: the check of the configuration as the running picker sees it. */}}
{{- define "tierwise.test" -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ .name }}-check
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
  annotations:
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  {{- include "tierwise.pod.placement" (set (deepCopy .) "several" false) | nindent 2 }}
  containers:
    {{- list (include "tierwise.pod.check" . | fromYaml) | toYaml | nindent 4 }}
  volumes:
    - name: plugins-config-volume
      configMap: {name: {{ .name }}}
    - name: tmp
      emptyDir: {}
    {{- with .epp.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
