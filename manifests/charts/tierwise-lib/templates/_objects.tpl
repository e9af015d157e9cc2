{{/* All objects of a release. This is the one template that the charts' own files include. */}}
{{- define "tierwise.objects" -}}
{{- $v := dict -}}
{{- include "tierwise.values" (dict "root" . "v" $v) -}}
{{ include "tierwise.rights" $v }}
---
{{ include "tierwise.configmap" $v }}
---
{{ include "tierwise.workload" $v }}
---
{{ include "tierwise.service" $v }}
{{- if $v.inferencePool.create }}
---
{{ include "tierwise.pool" $v }}
{{- include "tierwise.objectives" $v }}
{{- end }}
{{- if $v.httpRoute.create }}
---
{{ include "tierwise.route" $v }}
{{- end }}
{{- if $v.monitoring.prometheus.enabled }}
---
{{ include (ternary "tierwise.managedMonitor" "tierwise.monitor" (eq $v.monitoring.collector "gmp")) $v }}
{{- end }}
{{- include "tierwise.proxy" $v }}
{{- include "tierwise.provider" $v }}
{{- include "tierwise.extras" $v }}
{{- end -}}
