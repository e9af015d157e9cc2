{{/*
How pods are replaced. One picker, and several active ones, are replaced by a new one that is ready first. With an
election one of the old pods is ready, and that one alone stays while all new pods start beside it; the first of them that
is ready ends it. New standbys are ready until some seconds after they have replaced it, so that the rollout ends.
With a volume claim, which two pods may be unable to share, the old pod ends first.
*/}}
{{- define "tierwise.strategy" -}}
{{- if .epp.deploymentStrategy -}}
{{- toYaml .epp.deploymentStrategy -}}
{{- else if ((.own.indexSnapshot | default dict).volume | default dict).persistentVolumeClaim -}}
type: Recreate
{{- else if .election -}}
type: RollingUpdate
rollingUpdate: {maxSurge: 100%, maxUnavailable: {{ max 0 (sub (int .epp.replicas) 1) }}}
{{- else -}}
type: RollingUpdate
rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
{{- end -}}
{{- end -}}

{{- define "tierwise.workload" -}}
{{- $preferred := .provider.gke.preferredBackends -}}
apiVersion: apps/v1
kind: {{ ternary "StatefulSet" "Deployment" .preferred }}
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- toYaml (merge (dict) .labels .modeLabels) | nindent 4 }}
spec:
  {{- if .preferred }}
  replicas: {{ add (int $preferred.preferredReplicas) (int $preferred.defaultReplicas) }}
  serviceName: {{ .name }}
  podManagementPolicy: Parallel
  {{- else }}
  {{- if not .epp.autoscaling.enabled }}
  replicas: {{ int .epp.replicas }}
  {{- end }}
  strategy: {{- include "tierwise.strategy" . | nindent 4 }}
  {{- end }}
  selector:
    matchLabels: {{- toYaml .selector | nindent 6 }}
  template: {{- include "tierwise.pod" . | nindent 4 }}
{{- end -}}

{{- define "tierwise.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
spec:
  type: ClusterIP
  selector: {{- toYaml .selector | nindent 4 }}
  ports:
    - {name: grpc-ext-proc, protocol: TCP, port: {{ int .epp.extProcPort }}, targetPort: grpc, appProtocol: http2}
    - {name: http-metrics, protocol: TCP, port: {{ int .epp.metricsPort }}, targetPort: metrics}
    {{- if not (and .proxy.enabled (eq .proxy.mode "service")) }}
    {{- with .extraServicePorts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- end }}
{{- end -}}
