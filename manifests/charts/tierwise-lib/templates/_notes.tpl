{{/* What helm prints after an installation: what runs, how to see it, and how it differs from what the values say. */}}
{{- define "tierwise.notes" -}}
{{- $v := dict -}}
{{- include "tierwise.values" (dict "root" . "v" $v) -}}
{{- if $v.inferencePool.create -}}
InferencePool {{ $v.release }} and its picker {{ $v.name }} are deployed in the namespace {{ $v.namespace }}.
{{- else -}}
The picker {{ $v.name }} is deployed in the namespace {{ $v.namespace }}; its endpoints are the pods with {{ $v.modelServers.selector }}.
{{- end }}

{{ if $v.election }}  kubectl -n {{ $v.namespace }} wait deployment/{{ $v.name }} --for=condition=Available --timeout=5m
{{- else }}  kubectl -n {{ $v.namespace }} rollout status {{ ternary "statefulset" "deployment" $v.preferred }}/{{ $v.name }}
{{- end }}
  kubectl -n {{ $v.namespace }} logs {{ ternary "statefulset" "deployment" $v.preferred }}/{{ $v.name }} -c epp
  helm -n {{ $v.namespace }} test {{ $v.release }}
{{- if and $v.envoy (eq $v.chart "standalone") }}

Clients connect to the Service {{ ternary $v.proxyName $v.name (eq $v.proxy.mode "service") }}.
{{- end }}
{{- if and (eq $v.provider.name "agentgateway") (eq $v.chart "inferencepool") }}

agentgateway needs no object beside the pool{{ if not $v.httpRoute.create }}; a HTTPRoute of yours, or one by httpRoute.create, leads to it{{ end }}.
{{- end }}
{{- if $v.httpRoute.create }}

The HTTPRoute {{ $v.release }} is attached to the Gateway {{ $v.httpRoute.inferenceGatewayName }}{{ with $v.httpRoute.inferenceGatewayNamespace }} of the namespace {{ . }}{{ end }}; httpRoute.inferenceGatewayName (experimentalHttpRoute.inferenceGatewayName) names another.
{{- if ne (toString $v.httpRoute.requestTimeout) "0s" }} It cuts answers after {{ $v.httpRoute.requestTimeout }}; requestTimeout=0s has no limit.{{ end }}
{{- end }}
{{- range $v.notes }}

NOTE: {{ . }}
{{- end }}
{{- end -}}
