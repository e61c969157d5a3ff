{{/* Every container alike. The one exception is the agent's `local` driver, see nebo.container. */}}
{{- define "nebo.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "nebo.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* One variable from a Secret: (list variable secret key) */}}
{{- define "nebo.fromSecret" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 }}
      key: {{ index . 2 }}
{{- end -}}

{{/* (list root process): which master key, bus and database it needs. The agent knows its token and nothing else. */}}
{{- define "nebo.env" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $values := $root.Values -}}
{{- $services := fromYaml (include "nebo.services" $root) -}}
{{- $gateway := include "nebo.name" (list $root "api-gateway") -}}
- name: NEBO_HOME
  value: /var/lib/nebo
{{- if eq $name "region-agent" }}
- name: NEBO_API_URL
  value: http://{{ $gateway }}:4000
{{ include "nebo.fromSecret" (list "NEBO_REGION_TOKEN" (include "nebo.secret.region" $root) "region-token") }}
- name: NEBO_DRIVERS
  {{- /* Machines are real where the node has images for them, which an operator puts there. */}}
  {{- $areas := ternary (list "builds" "replicas" "networks") (list "builds" "replicas" "networks" "machines") (eq $values.regionAgent.driver "local") }}
  value: {{ range $index, $area := $areas }}{{ if $index }},{{ end }}{{ $area }}={{ $values.regionAgent.driver }}{{ end }}
- name: NEBO_UPLINK
  value: {{ $values.regionAgent.uplink | quote }}
{{- else }}
- name: NEBO_BIND
  value: 0.0.0.0
- name: NEBO_MASTER_KEY_FILE
  value: /etc/nebo/master-key/master.key
{{- end }}
{{- if hasKey $services $name }}
{{- if $values.migrations.enabled }}
{{ include "nebo.fromSecret" (list "DATABASE_URL" (include "nebo.secret.postgres" $root) "database-url") }}
- name: NEBO_MIGRATE
  value: "off"
{{- else }}
{{ include "nebo.fromSecret" (list "DATABASE_URL" (include "nebo.secret.postgres" $root) "migration-database-url") }}
- name: NEBO_MIGRATE
  value: "on"
{{- end }}
- name: NEBO_{{ include "nebo.variable" $name }}{{ if eq $name "dns" }}_HTTP{{ end }}_PORT
  value: {{ index $services $name | int | quote }}
{{- end }}
{{- if or (hasKey $services $name) (eq $name "api-gateway") }}
{{ include "nebo.fromSecret" (list "NATS_URL" (include "nebo.secret.nats" $root) "nats-url") }}
{{- range $service, $port := $services }}
- name: NEBO_{{ include "nebo.variable" $service }}_URL
  value: http://{{ include "nebo.name" (list $root $service) }}:{{ int $port }}
{{- end }}
{{- end }}
{{- /* A region's agent and the edge beside it are a pair: over the pod's own loopback the edge wakes apps on demand. */}}
{{- if and (has $name (list "region-agent" "edge")) (eq (include "nebo.edgePod" $root) "region-agent") }}
- name: NEBO_WAKE
  value: http://127.0.0.1:{{ int $values.regionAgent.wakePort }}
{{ include "nebo.fromSecret" (list "NEBO_WAKE_TOKEN" (include "nebo.secret.region" $root) "region-token") }}
{{- end }}
{{- if eq $name "apps-builder" }}
{{- if $values.git.config }}
- name: NEBO_GIT_CONFIG
  value: /etc/nebo/git/git.yaml
{{- end }}
{{- with $values.certificates.acmeDirectory }}
- name: NEBO_ACME_DIRECTORY
  value: {{ . | quote }}
{{- end }}
{{- with $values.certificates.acmeEmail }}
- name: NEBO_ACME_EMAIL
  value: {{ . | quote }}
{{- end }}
{{- with $values.certificates.accountBinding.existingSecret }}
{{ include "nebo.fromSecret" (list "NEBO_ACME_EAB_KID" . "eab-kid") }}
{{ include "nebo.fromSecret" (list "NEBO_ACME_EAB_KEY" . "eab-key") }}
{{- end }}
{{- with $values.edge.addresses }}
- name: NEBO_EDGE_ADDRESSES
  value: {{ join "," . | quote }}
{{- end }}
- name: NEBO_EDGE_VISITOR_PORT
  value: {{ ternary $values.edge.hostPorts.https $values.edge.service.httpsPort $values.edge.hostPorts.enabled | int | quote }}
{{- end }}
{{- if eq $name "dns" }}
- name: NEBO_DNS_PORT
  value: "5354"
{{- else if eq $name "api-gateway" }}
- name: NEBO_API_PORT
  value: "4000"
- name: NEBO_AI_PORT
  value: "4001"
{{- else if eq $name "edge" }}
- name: NEBO_EDGE_PORT
  value: "8080"
- name: NEBO_EDGE_TLS_PORT
  value: "8443"
- name: NEBO_APPS_BUILDER_URL
  value: http://{{ include "nebo.name" (list $root "apps-builder") }}:{{ index $services "apps-builder" | int }}
{{- else if include "nebo.blobs" (list $root $name) }}
- name: NEBO_BLOB_FOLDER
  value: /var/lib/nebo-blobs
{{- else if eq $name "inference-router" }}
- name: NEBO_INFERENCE_DIR
  value: /var/lib/nebo/inference-router
{{- if $values.inferenceRouter.config }}
- name: NEBO_INFERENCE_CONFIG
  value: /etc/nebo/inference/inference.yaml
{{- end }}
{{- else if and (eq $name "identity-billing") $values.prices }}
- name: NEBO_PRICES_FILE
  value: /etc/nebo/prices/prices.yaml
{{- end }}
{{- range $key, $value := merge (dict) (default dict (index $values.processes $name).settings) $values.settings }}
- name: {{ $key }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "nebo.ports" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- if eq $name "api-gateway" }}
- { name: api, containerPort: 4000 }
- { name: ai, containerPort: 4001 }
{{- else if eq $name "edge" }}
{{- $host := $root.Values.edge.hostPorts }}
- { name: http, containerPort: 8080{{ if $host.enabled }}, hostPort: {{ int $host.http }}{{ end }} }
- { name: https, containerPort: 8443{{ if $host.enabled }}, hostPort: {{ int $host.https }}{{ end }} }
{{- else }}
- { name: http, containerPort: {{ index (fromYaml (include "nebo.services" $root)) $name | int }} }
{{- if eq $name "dns" }}
- { name: dns-udp, containerPort: 5354, protocol: UDP }
- { name: dns-tcp, containerPort: 5354, protocol: TCP }
{{- end }}
{{- end }}
{{- end -}}

{{/*
Probes. A service is ready while its /healthz says so, which asks the database; it is killed only when it takes no
connection, since a restart mends no database. The gateway's /healthz is the whole installation's (a service that is away
would close the door for all the others), so its probes ask for what it answers itself: the contract, in the short form
(304) that If-None-Match gives. The edge has no health path: every name is an app's. A router has started once it takes
connections: until identity-billing has opened its money it is not ready, and a restart would not make that sooner.
*/}}
{{- define "nebo.probes" -}}
{{- if eq . "api-gateway" }}
{{- $contract := dict "path" "/v1/openapi.json" "port" "api" "httpHeaders" (list (dict "name" "If-None-Match" "value" "*")) }}
startupProbe:
  httpGet: {{- toYaml $contract | nindent 4 }}
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: 60
readinessProbe:
  httpGet: {{- toYaml $contract | nindent 4 }}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
livenessProbe:
  httpGet: {{- toYaml $contract | nindent 4 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- else if eq . "edge" }}
startupProbe:
  tcpSocket: { port: http }
  periodSeconds: 2
  failureThreshold: 60
readinessProbe:
  tcpSocket: { port: http }
  periodSeconds: 5
  failureThreshold: 2
livenessProbe:
  tcpSocket: { port: http }
  periodSeconds: 10
  failureThreshold: 6
{{- else }}
startupProbe:
  {{- if eq . "inference-router" }}
  tcpSocket: { port: http }
  {{- else }}
  httpGet: { path: /healthz, port: http }
  {{- end }}
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: 60
readinessProbe:
  httpGet: { path: /healthz, port: http }
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 3
livenessProbe:
  tcpSocket: { port: http }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}
{{- end -}}

{{/* (list root process): the container of one process. */}}
{{- define "nebo.container" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $values := $root.Values -}}
- name: {{ $name }}
  image: {{ include "nebo.image" $root | quote }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  args: ["apps/{{ $name }}/dist/main.js"]
  env: {{- include "nebo.env" . | nindent 4 }}
  {{- if and (eq $name "inference-router") $values.inferenceRouter.providerKeysSecret }}
  envFrom:
    - secretRef:
        name: {{ $values.inferenceRouter.providerKeysSecret }}
  {{- else if and (eq $name "apps-builder") $values.git.secret }}
  envFrom:
    - secretRef:
        name: {{ $values.git.secret }}
  {{- end }}
  {{- if ne $name "region-agent" }}
  ports: {{- include "nebo.ports" . | trim | nindent 4 }}
  {{- include "nebo.probes" $name | nindent 2 }}
  lifecycle:
    preStop:
      # Requests still come for a moment after the pod has left its Services.
      exec: { command: [sleep, "5"] }
  {{- end }}
  resources: {{- toYaml (index $values.processes $name).resources | nindent 4 }}
  securityContext:
  {{- if and (eq $name "region-agent") (eq $values.regionAgent.driver "local") }}
    # Sandboxes, network namespaces, cgroups, /dev/kvm and taps for apps and machines of strangers: root of the node, in
    # effect. Nothing else in this chart has any of it.
    privileged: true
    allowPrivilegeEscalation: true
    readOnlyRootFilesystem: true
    runAsNonRoot: false
    runAsUser: 0
    runAsGroup: 0
    seccompProfile:
      type: Unconfined
  {{- else }}
    {{- include "nebo.containerSecurity" $root | nindent 4 }}
  {{- end }}
  volumeMounts:
    - { name: {{ $name }}-home, mountPath: /var/lib/nebo }
    - { name: {{ $name }}-tmp, mountPath: /tmp }
    {{- if and (eq $name "region-agent") (eq $values.regionAgent.driver "local") }}
    # Namespaces by name, and what the DHCP servers in them read.
    - { name: region-agent-run, mountPath: /run }
    {{- end }}
    {{- if ne $name "region-agent" }}
    - { name: master-key, mountPath: /etc/nebo/master-key, readOnly: true }
    {{- end }}
    {{- if include "nebo.blobs" (list $root $name) }}
    - { name: blobs, mountPath: /var/lib/nebo-blobs }
    {{- else if and (eq $name "inference-router") $values.inferenceRouter.config }}
    - { name: inference, mountPath: /etc/nebo/inference, readOnly: true }
    {{- else if and (eq $name "identity-billing") $values.prices }}
    - { name: prices, mountPath: /etc/nebo/prices, readOnly: true }
    {{- end }}
    {{- if and (eq $name "apps-builder") $values.git.config }}
    - { name: git, mountPath: /etc/nebo/git, readOnly: true }
    {{- end }}
    {{- if and (eq $name "apps-builder") $values.git.secret }}
    - { name: git-secret, mountPath: /etc/nebo/git-secret, readOnly: true }
    {{- end }}
{{- end -}}

{{/* (list root process): volumes of one process but the shared master key. */}}
{{- define "nebo.volumes" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $values := $root.Values -}}
{{- $node := and (eq $name "region-agent") (eq $values.regionAgent.driver "local") }}
{{- $kept := or (and (eq $name "edge") $values.edge.persistence.enabled) (and (eq $name "region-agent") $values.regionAgent.persistence.enabled) }}
{{- if and $kept $node }}
- name: {{ $name }}-home
  hostPath:
    path: {{ $values.regionAgent.persistence.hostPath }}
    type: DirectoryOrCreate
{{- else if $kept }}
- name: {{ $name }}-home
  persistentVolumeClaim:
    claimName: {{ include "nebo.name" (list $root $name) }}
{{- else if ne $name "inference-router" }}
- name: {{ $name }}-home
  emptyDir:
    sizeLimit: {{ ternary "20Gi" (ternary "5Gi" "256Mi" (eq $name "edge")) (eq $name "region-agent") }}
{{- end }}
- name: {{ $name }}-tmp
  emptyDir:
    sizeLimit: {{ ternary "10Gi" "1Gi" (eq $name "region-agent") }}
{{- if $node }}
- name: region-agent-run
  emptyDir:
    medium: Memory
    sizeLimit: 64Mi
{{- end }}
{{- with include "nebo.blobs" (list $root $name) | fromYaml }}
- name: blobs
  persistentVolumeClaim:
    claimName: {{ default (include "nebo.name" (list $root .claim)) .existingClaim }}
{{- end }}
{{- if and (eq $name "apps-builder") $values.git.config }}
- name: git
  configMap:
    name: {{ include "nebo.name" (list $root "git") }}
{{- end }}
{{- if and (eq $name "apps-builder") $values.git.secret }}
- name: git-secret
  secret:
    secretName: {{ $values.git.secret }}
    defaultMode: 0440
{{- end }}
{{- if and (eq $name "inference-router") $values.inferenceRouter.config }}
- name: inference
  configMap:
    name: {{ include "nebo.name" (list $root "inference") }}
{{- else if and (eq $name "identity-billing") $values.prices }}
- name: prices
  configMap:
    name: {{ include "nebo.name" (list $root "prices") }}
{{- end }}
{{- end -}}

{{/* A pod starts anew when what it read at its start has changed. */}}
{{- define "nebo.checksums" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $values := $root.Values -}}
{{- if eq $name "region-agent" -}}
checksum/token: {{ $values.regionAgent.token | sha256sum }}
{{- else -}}
{{- $key := "" -}}
{{- if not $values.masterKey.existingSecret }}{{ $key = include "nebo.masterKey" $root }}{{ end -}}
{{- /* The key is in the sum, so that nobody finds a weak password by trying. */ -}}
checksum/connections: {{ list $key $values.postgres.url $values.nats.url | join "\n" | sha256sum }}
{{- if eq $name "inference-router" }}
checksum/config: {{ toJson $values.inferenceRouter.config | sha256sum }}
{{- else if eq $name "apps-builder" }}
checksum/config: {{ toJson $values.git.config | sha256sum }}
{{- else if eq $name "identity-billing" }}
checksum/config: {{ toJson $values.prices | sha256sum }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* (list root process beside?): the pod template. Processes in `beside` run in the same pod. */}}
{{- define "nebo.pod" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $names := prepend (rest (rest .)) $name -}}
{{- $values := $root.Values -}}
{{- $process := index $values.processes $name -}}
metadata:
  labels:
    {{- include "nebo.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $name }}
  annotations:
    {{- range $part := $names }}
    {{- include "nebo.checksums" (list $root $part) | nindent 4 }}
    {{- end }}
    {{- with $process.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "nebo.name" (list $root $name) }}
  {{- $node := and (eq $name "region-agent") (eq $values.regionAgent.driver "local") }}
  {{- if and $node $values.regionAgent.hostNetwork }}
  # Floating IPs are the node's own then, and come in as they are routed to it.
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  automountServiceAccountToken: false
  # Otherwise Kubernetes sets NEBO_DNS_PORT=tcp://… and its like for every Service: names that are settings here.
  enableServiceLinks: false
  # preStop takes 5 s; a process stops within 10, and a router delivers what it has settled in that time.
  terminationGracePeriodSeconds: 30
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{- include "nebo.podSecurity" $root | nindent 4 }}
  containers:
    {{- range $part := $names }}
    {{- include "nebo.container" (list $root $part) | nindent 4 }}
    {{- end }}
  volumes:
    {{- range $part := $names }}
    {{- include "nebo.volumes" (list $root $part) | trim | nindent 4 }}
    {{- end }}
    {{- if ne (join "," $names) "region-agent" }}
    - name: master-key
      secret:
        secretName: {{ include "nebo.secret.masterKey" $root }}
        defaultMode: 0440
        items:
          - { key: master.key, path: master.key }
    {{- end }}
  {{- if and $values.topologySpread.enabled (not $node) }}
  topologySpreadConstraints:
    {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ $key }}
      whenUnsatisfiable: {{ $values.topologySpread.whenUnsatisfiable }}
      labelSelector:
        matchLabels:
          {{- include "nebo.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ $name }}
    {{- end }}
  {{- end }}
  {{- with default (ternary (dict "nebo-region" "true") (dict) $node) $process.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $process.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $process.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
