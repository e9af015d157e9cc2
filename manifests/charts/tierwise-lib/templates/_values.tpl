{{/*
Fill .v, an empty map, with all that the object templates read: the values of either tree in one form, the names, and
what follows from several values together. No other template reads .Values.
*/}}
{{- define "tierwise.values" -}}
{{- $v := .v -}}
{{- $root := .root -}}
{{- $_ := set $v "notes" list -}}
{{- include "tierwise.overlay" (dict "base" $v "over" (include "tierwise.defaults" . | fromYaml)) -}}
{{- $_ := set $v "tree" (include "tierwise.tree" $root) -}}
{{- $_ := set $v "chart" $root.Chart.Name -}}
{{- $_ := set $v "chartVersion" $root.Chart.Version -}}
{{- $_ := set $v "appVersion" $root.Chart.AppVersion -}}
{{- $_ := set $v "kubeVersion" $root.Capabilities.KubeVersion.Version -}}
{{- if eq $v.chart "standalone" -}}
  {{- $_ := set $v.proxy "enabled" true -}}
  {{- $_ := set $v "extraServicePorts" (list (dict "name" "http" "port" 8081 "protocol" "TCP" "targetPort" 8081)) -}}
{{- end -}}
{{- if eq $v.tree "router" -}}
  {{- include "tierwise.overlay" (dict "base" $v "over" ($root.Values.router | default dict)) -}}
  {{- include "tierwise.overlay" (dict "base" $v "over" (pick $root.Values "provider" "httpRoute")) -}}
{{- else -}}
  {{- include "tierwise.legacy" . -}}
{{- end -}}
{{- $_ := set $v "own" ($root.Values.tierwise | default dict) -}}
{{- include "tierwise.names" . -}}
{{- include "tierwise.refusals" $v -}}
{{- include "tierwise.pool.values" $v -}}
{{- include "tierwise.monitoring.values" $v -}}
{{- include "tierwise.availability" $v -}}
{{- include "tierwise.image" $v -}}
{{- include "tierwise.configuration.values" $v -}}
{{- include "tierwise.proxy.values" (dict "v" $v "root" $root) -}}
{{- include "tierwise.arguments" $v -}}
{{- end -}}

{{/* The names and labels, which other charts' users and scripts know. */}}
{{- define "tierwise.names" -}}
{{- $v := .v -}}
{{- $release := .root.Release.Name -}}
{{- $_ := set $v "release" $release -}}
{{- $_ := set $v "namespace" .root.Release.Namespace -}}
{{- $base := $release | lower | trunc 40 | trimSuffix "-" -}}
{{- $_ := set $v "name" (printf "%s-epp" $base) -}}
{{- $_ := set $v "proxyName" (printf "%s-proxy" $base) -}}
{{- $_ := set $v "endpointsName" (printf "%s-endpoints" $base) -}}
{{- $_ := set $v "clusterName" (printf "%s-%s-epp" $base ($v.namespace | trunc 40 | trimSuffix "-")) -}}
{{- $_ := set $v "labels" (dict "app.kubernetes.io/name" $v.name "app.kubernetes.io/version" $v.appVersion) -}}
{{- $pooled := ne (toString $v.inferencePool.create) "false" -}}
{{- if eq $v.tree "router" -}}
  {{- $mode := ternary "llm-d-router-gateway" "llm-d-router-standalone" $pooled -}}
  {{- $_ := set $v "selector" (dict $mode $v.name) -}}
  {{- $_ := set $v "modeLabels" (dict "llm-d.ai/igw-mode" $mode) -}}
{{- else -}}
  {{- $_ := set $v "selector" (dict (ternary "inferencepool" "epp" $pooled) $v.name) -}}
  {{- $_ := set $v "modeLabels" (dict "inference.networking.k8s.io/igw-mode" (ternary "inferencepool" "standalone" $pooled)) -}}
{{- end -}}
{{- $_ := set $v "proxySelector" (dict "llm-d-router-proxy" $v.proxyName) -}}
{{- end -}}
