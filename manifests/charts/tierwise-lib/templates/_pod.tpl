{{/* What every container may do, as the restricted Pod Security Standard demands; the user comes from the image. */}}
{{- define "tierwise.container.security" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* The security context .given laid over the restricted one. */}}
{{- define "tierwise.container.securityWith" -}}
{{- $security := include "tierwise.container.security" . | fromYaml -}}
{{- include "tierwise.overlay" (dict "base" $security "over" .given) -}}
{{- toYaml $security -}}
{{- end -}}

{{/* The template of the picker's pods, for a Deployment or a StatefulSet. */}}
{{- define "tierwise.pod" -}}
{{- $sidecar := and .proxy.enabled (eq .proxy.mode "sidecar") -}}
metadata:
  labels:
    {{- toYaml (merge (dict) .selector .modeLabels (.own.podLabels | default dict)) | nindent 4 }}
  annotations:
    kubectl.kubernetes.io/default-container: epp
    checksum/read-at-start: {{ .readAtStart }}
    {{- if $sidecar }}
    checksum/proxy: {{ toJson .proxyFiles | sha256sum }}
    {{- end }}
    {{- with .epp.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ .accountName }}
  terminationGracePeriodSeconds: {{ int .epp.terminationGracePeriodSeconds }}
  {{- with include "tierwise.pod.security" . | fromYaml }}
  securityContext: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- include "tierwise.pod.placement" . | nindent 2 }}
  {{- $init := list }}
  {{- if .tokenizer.enabled }}
  {{- $init = concat $init .tokenizer.initContainers }}
  {{- end }}
  {{- if and (not .literal) (ne (toString (.own.checkConfiguration | default dict).beforeStart) "false") }}
  {{- $init = prepend $init (include "tierwise.pod.check" . | fromYaml) }}
  {{- end }}
  {{- with $init }}
  initContainers: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    {{- list (include "tierwise.pod.picker" . | fromYaml) | toYaml | nindent 4 }}
    {{- if $sidecar }}
    {{- list .proxyContainer | toYaml | nindent 4 }}
    {{- end }}
    {{- if .tokenizer.enabled }}
    {{- list (include "tierwise.pod.tokenizer" . | fromYaml) | toYaml | nindent 4 }}
    {{- end }}
  volumes:
    - name: plugins-config-volume
      configMap: {name: {{ .name }}}
    - name: tmp
      emptyDir: {}
    {{- if (.own.indexSnapshot | default dict).enabled }}
    - {{- dict "name" "index-snapshot" | merge (deepCopy (.own.indexSnapshot.volume | default (dict "emptyDir" dict))) | toYaml | nindent 6 }}
    {{- end }}
    {{- if .tokenizer.enabled }}
    - name: model-cache
      emptyDir: {}
    {{- with .tokenizer.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- end }}
    {{- if $sidecar }}
    {{- with .proxyVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- end }}
    {{- with .epp.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Where pods run, and with which secrets their images are pulled. */}}
{{- define "tierwise.pod.placement" -}}
{{- $placement := dict -}}
{{- range $key, $value := dict
  "imagePullSecrets" (.own.imagePullSecrets | default .imagePullSecrets)
  "priorityClassName" .own.priorityClassName
  "nodeSelector" .own.nodeSelector
  "topologySpreadConstraints" (include "tierwise.pod.spread" . | fromYamlArray)
  "affinity" .epp.affinity
  "tolerations" .epp.tolerations
-}}
  {{- if $value -}}{{- $_ := set $placement $key $value -}}{{- end -}}
{{- end -}}
{{- range $constraint := $placement.topologySpreadConstraints -}}
  {{- if not $constraint.labelSelector -}}{{- $_ := set $constraint "labelSelector" (dict "matchLabels" $.selector) -}}{{- end -}}
{{- end -}}
{{- if $placement -}}{{- toYaml $placement -}}{{- end -}}
{{- end -}}

{{/*
What keeps pods apart, as a list: the values', or if they have none and there are several pods, nodes and then zones,
where there is room. An empty list in the values is none.
*/}}
{{- define "tierwise.pod.spread" -}}
{{- $given := .own.topologySpreadConstraints -}}
{{- if and (kindIs "invalid" $given) .several -}}
- {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway}
- {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}
{{- else -}}
{{- toYaml ($given | default list) -}}
{{- end -}}
{{- end -}}

{{/*
The security context of the pod. The image's user may write to a volume of its own for the snapshot only by the group
that the kubelet gives the volume; an emptyDir is everybody's. OpenShift chooses the group of each namespace itself, and
refuses another one.
*/}}
{{- define "tierwise.pod.security" -}}
{{- $security := dict -}}
{{- $snapshot := .own.indexSnapshot | default dict -}}
{{- $group := ternary 65532 $snapshot.fsGroup (kindIs "invalid" $snapshot.fsGroup) | int64 -}}
{{- $volume := $snapshot.volume | default dict -}}
{{- if and $snapshot.enabled $volume (not (hasKey $volume "emptyDir")) (gt $group 0) (not .openShift) -}}
  {{- $_ := set $security "fsGroup" $group -}}
  {{- $_ := set $security "fsGroupChangePolicy" "OnRootMismatch" -}}
{{- end -}}
{{- include "tierwise.overlay" (dict "base" $security "over" .epp.podSecurityContext) -}}
{{- toYaml $security -}}
{{- end -}}

{{- define "tierwise.pod.picker" -}}
{{- $probe := list "liveness" (ternary "readiness" "inference-extension" (or .several .election)) -}}
name: epp
image: {{ .image | quote }}
imagePullPolicy: {{ .pullPolicy }}
{{- if not .literal }}
command: [tierwise, serve]
{{- end }}
args: {{- toYaml .args | nindent 2 }}
ports:
  - {name: grpc, containerPort: 9002}
  - {name: grpc-health, containerPort: {{ int .epp.grpcHealthPort }}}
  - {name: metrics, containerPort: 9090}
  {{- with .epp.extraContainerPorts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
livenessProbe:
  grpc: {port: {{ int .epp.grpcHealthPort }}, service: {{ first $probe }}}
  initialDelaySeconds: 5
  periodSeconds: 10
readinessProbe:
  grpc: {port: {{ int .epp.grpcHealthPort }}, service: {{ last $probe }}}
  periodSeconds: 2
{{- if .preStopSeconds }}
lifecycle:
  preStop:
    sleep: {seconds: {{ .preStopSeconds }}}
{{- end }}
{{ include "tierwise.pod.environment" . }}
{{- with .epp.resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "tierwise.container.securityWith" (dict "given" .epp.securityContext) | nindent 2 }}
volumeMounts:
  - {name: plugins-config-volume, mountPath: /config}
  - {name: tmp, mountPath: /tmp}
  {{- if (.own.indexSnapshot | default dict).enabled }}
  - {name: index-snapshot, mountPath: /var/lib/tierwise}
  {{- end }}
  {{- with .epp.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "tierwise.pod.environment" -}}
env:
  - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  {{- if .tracing.enabled }}
  - {name: OTEL_SERVICE_NAME, value: {{ ternary "llm-d-router/epp" "gateway-api-inference-extension/epp" (eq .tree "router") }}}
  - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .tracing.otelExporterEndpoint | quote }}}
  - {name: OTEL_TRACES_EXPORTER, value: otlp}
  - {name: OTEL_RESOURCE_ATTRIBUTES_NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  - {name: OTEL_RESOURCE_ATTRIBUTES_POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - name: OTEL_RESOURCE_ATTRIBUTES
    value: k8s.namespace.name=$(NAMESPACE),k8s.node.name=$(OTEL_RESOURCE_ATTRIBUTES_NODE_NAME),k8s.pod.name=$(OTEL_RESOURCE_ATTRIBUTES_POD_NAME)
  - {name: OTEL_TRACES_SAMPLER, value: {{ .tracing.sampling.sampler | quote }}}
  - {name: OTEL_TRACES_SAMPLER_ARG, value: {{ include "tierwise.text" .tracing.sampling.samplerArg | quote }}}
  {{- end }}
  {{- with .epp.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/*
Checks the configuration and the arguments before the picker starts, so that a new pod with a bad one never replaces an
old one.
*/}}
{{- define "tierwise.pod.check" -}}
name: check-configuration
image: {{ .image | quote }}
imagePullPolicy: {{ .pullPolicy }}
command: [tierwise, serve]
args: {{- toYaml (append .args "--check") | nindent 2 }}
{{ include "tierwise.pod.environment" . }}
resources:
  requests: {cpu: 100m, memory: 128Mi}
  limits: {memory: 512Mi}
securityContext: {{- include "tierwise.container.securityWith" (dict "given" .epp.securityContext) | nindent 2 }}
volumeMounts:
  - {name: plugins-config-volume, mountPath: /config}
  - {name: tmp, mountPath: /tmp}
  {{- with .epp.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* vLLM's renderer, which turns prompts into tokens. Its image runs as root, so it is not forced to another user. */}}
{{- define "tierwise.pod.tokenizer" -}}
{{- $tokenizer := .tokenizer -}}
{{- $image := $tokenizer.image -}}
name: vllm-render
image: {{ printf "%s/%s:%s" $image.registry $image.repository $image.tag | quote }}
imagePullPolicy: {{ $image.pullPolicy }}
command: {{- toYaml $tokenizer.command | nindent 2 }}
args:
  {{- if $tokenizer.args }}
  {{- toYaml $tokenizer.args | nindent 2 }}
  {{- else }}
  - {{ $tokenizer.modelName | quote }}
  - --port={{ int $tokenizer.port }}
  {{- end }}
  {{- with $tokenizer.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - {name: render-http, containerPort: {{ int $tokenizer.port }}}
readinessProbe: {{- toYaml $tokenizer.readinessProbe | nindent 2 }}
{{- with $tokenizer.env }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
resources: {{- toYaml $tokenizer.resources | nindent 2 }}
{{- $security := dict "allowPrivilegeEscalation" false "capabilities" (dict "drop" (list "ALL")) "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- include "tierwise.overlay" (dict "base" $security "over" $tokenizer.securityContext) }}
securityContext: {{- toYaml $security | nindent 2 }}
volumeMounts:
  - {name: model-cache, mountPath: /root/.cache/huggingface}
  {{- with $tokenizer.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
