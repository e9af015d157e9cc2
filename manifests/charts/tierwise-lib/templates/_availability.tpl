{{/*
Decide how several pickers share the work: by an election, or all of them active. A pod that ends serves on for a pause
in which gateways learn of its end; with an election, in which a new pod starts. The argument is the values.
*/}}
{{- define "tierwise.availability" -}}
{{- $mode := .own.highAvailability | default "election" -}}
{{- if not (has $mode (list "election" "active")) -}}
  {{- fail (printf "\ntierwise.highAvailability is %q; write election (one picker decides, the others wait) or active (all of them decide)" $mode) -}}
{{- end -}}
{{- $scaled := .epp.autoscaling.enabled -}}
{{- $preferred := and (eq .provider.name "gke") .provider.gke.preferredBackends.enabled -}}
{{- $several := or $scaled $preferred (gt (int .epp.replicas) 1) -}}
{{- $flag := get .epp.flags "ha-enable-leader-election" -}}
{{- $refused := eq (include "tierwise.text" $flag) "false" -}}
{{- $election := and $several (eq $mode "election") (not $scaled) (not $preferred) (not $refused) -}}
{{- if eq (include "tierwise.text" $flag) "true" -}}
  {{- if $scaled -}}
    {{- fail "\nrouter.epp.autoscaling needs pickers that are all active, and router.epp.flags has ha-enable-leader-election: true; leave out one of the two" -}}
  {{- end -}}
  {{- $election = true -}}
{{- end -}}
{{- $_ := set . "several" $several -}}
{{- $_ := set . "election" $election -}}
{{- $_ := set . "preferred" $preferred -}}
{{- $pause := ternary 15 5 $election -}}
{{- if not (kindIs "invalid" .own.preStopSeconds) -}}{{- $pause = int .own.preStopSeconds -}}{{- end -}}
{{- $_ := set . "preStopSeconds" (ternary $pause 0 (semverCompare ">=1.30-0" .kubeVersion)) -}}
{{- /* Envoy ends at once when it is asked to, so it is asked when the picker has drained, too. */ -}}
{{- $_ := set . "proxyPreStopSeconds" (ternary (add .preStopSeconds 25) 0 (gt .preStopSeconds 0)) -}}
{{- end -}}

{{/* Complete the values of monitoring: which collector, whose token it shows, and in which secret that is. */}}
{{- define "tierwise.monitoring.values" -}}
{{- $monitoring := .monitoring -}}
{{- $gke := eq .provider.name "gke" -}}
{{- $name := $monitoring.provider.name | default (ternary "gmp" "prometheusoperator" $gke) | lower -}}
{{- if not (has $name (list "gmp" "prometheusoperator")) -}}
  {{- fail (printf "\nrouter.monitoring.provider.name is %q; write prometheusoperator, or gmp for Google's Managed Prometheus" $name) -}}
{{- end -}}
{{- $_ := set $monitoring "collector" $name -}}
{{- $_ := set $monitoring "autopilot" (or .provider.gke.autopilot (($monitoring.provider.gmp | default dict).autopilot)) -}}
{{- $_ := set $monitoring "auth" $monitoring.prometheus.auth.enabled -}}
{{- if not $monitoring.prometheus.auth.secretName -}}
  {{- $_ := set $monitoring.prometheus.auth "secretName" (printf "%s-metrics-reader" .name) -}}
{{- end -}}
{{- end -}}
