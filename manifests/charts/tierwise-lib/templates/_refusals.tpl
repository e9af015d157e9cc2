{{/* Refuse values that cannot be honored, each with the key and what to write instead. The argument is the values. */}}
{{- define "tierwise.refusals" -}}
{{- $legacy := eq .tree "inferenceExtension" -}}
{{- $top := ternary "inferenceExtension" "router" $legacy -}}
{{- if (.latencyPredictor | default dict).enabled -}}
  {{- fail (printf "\n%s.latencyPredictor.enabled: latencyPredictor is not built; leave it out (plugin tier-cost-scorer predicts the time to the first token without servers of its own)" $top) -}}
{{- end -}}
{{- $providers := list "none" "gke" "istio" "agentgateway" "envoy-ai-gateway" -}}
{{- $_ := set .provider "name" (lower (.provider.name | default "none")) -}}
{{- if not (has .provider.name $providers) -}}
  {{- fail (printf "\nprovider.name is %q, which is no provider that this chart knows; write one of %s" .provider.name (join ", " $providers)) -}}
{{- end -}}
{{- if and .httpRoute.create (not .inferencePool.create) -}}
  {{- fail (printf "\na HTTPRoute needs an InferencePool to lead to; set %s to true, or create no route" (ternary "inferenceExtension.endpointsServer.createInferencePool" "router.inferencePool.create" $legacy)) -}}
{{- end -}}
{{- if and .inferenceObjectives (not .inferencePool.create) -}}
  {{- fail "\ninferenceObjectives need an InferencePool to belong to; write them as inferenceObjectives of the picker's configuration where no pool is created" -}}
{{- end -}}
{{- if and .tokenizer.enabled (not .tokenizer.modelName) -}}
  {{- fail "\nrouter.tokenizer.modelName is missing; name the model whose tokenizer the sidecar loads, or set router.tokenizer.enabled to false" -}}
{{- end -}}
{{- $names := list -}}
{{- range .inferenceObjectives -}}
  {{- if not .name -}}{{- fail "\ninferenceObjectives has an entry without a name" -}}{{- end -}}
  {{- if has .name $names -}}{{- fail (printf "\ninferenceObjectives has %q twice; a name is one object" .name) -}}{{- end -}}
  {{- $names = append $names .name -}}
{{- end -}}
{{- $auth := .monitoring.prometheus -}}
{{- $sidecar := ternary "inferenceExtension.sidecar" "router.proxy" $legacy -}}
{{- $monitoring := printf "%s.monitoring.prometheus" $top -}}
{{- $checked := dict
  (printf "%s.enabled" $monitoring) $auth.enabled
  (printf "%s.auth.enabled" $monitoring) $auth.auth.enabled
  (printf "%s.tracing.enabled" $top) .tracing.enabled
  (printf "%s.enabled" $sidecar) .proxy.enabled
  (ternary "inferenceExtension.endpointsServer.createInferencePool" "router.inferencePool.create" $legacy) .inferencePool.create
  (ternary "experimentalHttpRoute.enabled" "httpRoute.create" $legacy) .httpRoute.create
  "router.tokenizer.enabled" .tokenizer.enabled
  "router.epp.autoscaling.enabled" .epp.autoscaling.enabled
  "router.proxy.autoscaling.enabled" .proxy.autoscaling.enabled
  "provider.gke.autopilot" .provider.gke.autopilot
-}}
{{- range $path, $value := $checked -}}
  {{- include "tierwise.boolean" (dict "path" $path "value" $value) -}}
{{- end -}}
{{- end -}}
