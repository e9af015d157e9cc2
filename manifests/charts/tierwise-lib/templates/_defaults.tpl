{{/* The values that hold where a values file has none, in the form of the `router` tree, which all templates read. */}}
{{- define "tierwise.defaults" -}}
clusterDomain: cluster.local
extraServicePorts: []
imagePullSecrets: []
epp:
  replicas: 1
  image: {}
  extProcPort: 9002
  grpcHealthPort: 9003
  metricsPort: 9090
  flags: {v: 2}
  env: []
  parsers: []
  metricsDataSource: {scheme: http, path: /metrics, insecureSkipVerify: true}
  pluginsConfigFile: default-plugins.yaml
  pluginsConfig: {}
  pluginsCustomConfig: {}
  extraContainerPorts: []
  resources:
    requests: {cpu: "2", memory: 2Gi}
    limits: {memory: 16Gi}
  affinity: {}
  tolerations: []
  podAnnotations: {}
  volumes: []
  volumeMounts: []
  podSecurityContext: {}
  securityContext: {}
  deploymentStrategy: {}
  autoscaling: {enabled: false, minReplicas: 1, maxReplicas: 5, targetCPUUtilizationPercentage: 80}
proxy:
  enabled: false
  proxyType: envoy
  mode: sidecar
  replicas: 2
  autoscaling: {enabled: false, minReplicas: 2, maxReplicas: 5, targetCPUUtilizationPercentage: 80}
tokenizer:
  enabled: false
  modelName: ""
  image: {registry: docker.io, repository: vllm/vllm-openai-cpu, tag: v0.19.1, pullPolicy: IfNotPresent}
  port: 8000
  command: [vllm, launch, render]
  args: []
  extraArgs: []
  initContainers: []
  volumes: []
  volumeMounts: []
  env:
    - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: llm-d-hf-token, key: HF_TOKEN}}}
  resources:
    requests: {cpu: "4", memory: 8Gi}
  readinessProbe:
    httpGet: {path: /health, port: render-http}
    initialDelaySeconds: 30
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 60
monitoring:
  interval: 10s
  provider: {name: "", gmp: {autopilot: false}}
  prometheus:
    enabled: false
    auth: {enabled: true, secretName: ""}
    extraLabels: {}
tracing:
  enabled: false
  otelExporterEndpoint: http://localhost:4317
  sampling: {sampler: parentbased_traceidratio, samplerArg: "0.1"}
inferencePool:
  create: true
  apiVersion: inference.networking.k8s.io/v1
  failureMode: FailOpen
inferenceObjectives: []
modelServers:
  type: vllm
  matchLabels: {}
  selector: ""
latencyPredictor: {enabled: false}
provider:
  name: none
  gke:
    autopilot: false
    preferredBackends:
      enabled: false
      preferredReplicas: 1
      defaultReplicas: 1
      balancingMode: RATE
      maxRatePerEndpoint: 100
      capacityScalerPercent: 100
  istio:
    destinationRule: {host: "", trafficPolicy: {}}
httpRoute:
  create: false
  inferenceGatewayName: inference-gateway
  inferenceGatewayNamespace: ""
  requestTimeout: 300s
  headerMatches: {}
  baseModel: ""
{{- end -}}
