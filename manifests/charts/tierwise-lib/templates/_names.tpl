{{/* The names and labels, which other charts' users and scripts know. */}}
{{- define "tierwise.names" -}}
{{- $v := .v -}}
{{- $release := .root.Release.Name -}}
{{- $_ := set $v "release" $release -}}
{{- $_ := set $v "namespace" .root.Release.Namespace -}}
{{- $base := include "tierwise.shortName" $release -}}
{{- $_ := set $v "name" (printf "%s-epp" $base) -}}
{{- $_ := set $v "proxyName" (printf "%s-proxy" $base) -}}
{{- $_ := set $v "endpointsName" (printf "%s-endpoints" $base) -}}
{{- $_ := set $v "clusterName" (printf "%s-%s-epp" $base (include "tierwise.shortName" $v.namespace)) -}}
{{- $_ := set $v "nodesName" (printf "%s-nodes" $v.clusterName) -}}
{{- $_ := set $v "readerName" (printf "%s-metrics-reader" $v.name) -}}
{{- include "tierwise.account" $v -}}
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

{{/*
A name of at most 40 characters that a Service may have, as other charts cut it. A longer one, and one with dots, ends in
a part of its checksum: two names that are the same up to there are two names still.
*/}}
{{- define "tierwise.shortName" -}}
{{- $name := lower . -}}
{{- if and (le (len $name) 40) (not (contains "." $name)) -}}
{{- $name -}}
{{- else -}}
{{- printf "%s-%s" ($name | replace "." "-" | trunc 31 | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- end -}}

{{/* Set .accountName, the service account of the picker: the release's own, or one that exists. */}}
{{- define "tierwise.account" -}}
{{- $given := .own.serviceAccount | default dict -}}
{{- $create := ne (toString $given.create) "false" -}}
{{- if and (not $create) (not $given.name) -}}
  {{- fail "\ntierwise.serviceAccount.create is false, and tierwise.serviceAccount.name is empty; name the service account that the picker is to have" -}}
{{- end -}}
{{- $_ := set . "accountCreated" $create -}}
{{- $_ := set . "accountName" ($given.name | default .name) -}}
{{- end -}}
