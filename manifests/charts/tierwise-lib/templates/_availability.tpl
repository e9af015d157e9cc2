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
{{- include "tierwise.draining" . -}}
{{- $claim := (((.own.indexSnapshot | default dict).volume | default dict).persistentVolumeClaim) -}}
{{- if and $several $claim (.own.indexSnapshot).enabled -}}
  {{- include "tierwise.note" (dict "v" . "text" (printf "Several pickers write their snapshot to the claim %q, each over the file of the others, and a claim that one node alone may mount keeps pods on others from starting; leave tierwise.indexSnapshot.volume out, or run one picker." ($claim.claimName | default ""))) -}}
{{- end -}}
{{- end -}}

{{/*
How long a pod that ends lets streams end, and the grace period that holds all of it. Envoy cuts all streams when it is
asked to end, so it is asked late: after the pause, and the seconds for streams. The picker drains for as long.
*/}}
{{- define "tierwise.draining" -}}
{{- $default := 60 -}}
{{- $spare := 5 -}}
{{- $given := not (kindIs "invalid" .own.drainSeconds) -}}
{{- $drain := ternary (int .own.drainSeconds) $default $given -}}
{{- $proxied := and .proxy.enabled (ne .proxy.mode "service") -}}
{{- $needed := int (add .preStopSeconds $drain $spare) -}}
{{- $grace := .epp.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $grace -}}
  {{- $grace = max 130 $needed -}}
{{- else if gt $needed (int $grace) -}}
  {{- if $given -}}
    {{- fail (printf "\na pod that ends needs %d s (tierwise.preStopSeconds %d, tierwise.drainSeconds %d, and %d to end), and terminationGracePeriodSeconds is %d; raise it, leave it out, or lower one of the two" $needed (int .preStopSeconds) $drain $spare (int $grace)) -}}
  {{- end -}}
  {{- $drain = int (sub (int $grace) (add .preStopSeconds $spare)) -}}
  {{- if lt $drain 0 -}}
    {{- fail (printf "\na pod that ends pauses for %d s (tierwise.preStopSeconds), and terminationGracePeriodSeconds is %d; raise it, or lower the pause" (int .preStopSeconds) (int $grace)) -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .epp "terminationGracePeriodSeconds" (int $grace) -}}
{{- $_ := set . "proxyGraceSeconds" (max 130 $needed) -}}
{{- $_ := set . "drainSeconds" $drain -}}
{{- $_ := set . "drainTimeout" (or $given (lt $drain 30) (and $proxied (not .election))) -}}
{{- $pause := add .preStopSeconds $drain -}}
{{- $_ := set . "proxyPreStopSeconds" (ternary $pause 0 (semverCompare ">=1.30-0" .kubeVersion)) -}}
{{- if and .proxy.enabled (not (semverCompare ">=1.30-0" .kubeVersion)) -}}
  {{- include "tierwise.note" (dict "v" . "text" (printf "Kubernetes %s has no pause before the end of a pod (1.30 has), so an Envoy that ends cuts its streams." .kubeVersion)) -}}
{{- end -}}
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
{{- /* A flag of the picker wins over the value, so the rights follow it. */ -}}
{{- $flag := include "tierwise.text" (get .epp.flags "metrics-endpoint-auth") -}}
{{- $_ := set $monitoring "auth" (ternary (eq $flag "true") $monitoring.prometheus.auth.enabled (has $flag (list "true" "false"))) -}}
{{- if not $monitoring.prometheus.auth.secretName -}}
  {{- $_ := set $monitoring.prometheus.auth "secretName" (printf "%s-metrics-reader" .name) -}}
{{- end -}}
{{- end -}}
