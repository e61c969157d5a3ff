{{/* Names. */}}
{{- define "nebo.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (list root name): the name of a process's objects. */}}
{{- define "nebo.name" -}}
{{- printf "%s-%s" (include "nebo.fullname" (index . 0)) (index . 1) -}}
{{- end -}}

{{/* What a Service and a selector find a pod by; never changes. */}}
{{- define "nebo.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "nebo.labels" -}}
{{ include "nebo.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/part-of: nebo
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "nebo.image" -}}
{{- $image := .Values.image -}}
{{- $tag := default .Chart.AppVersion $image.tag -}}
{{- if $image.digest -}}
{{- printf "%s:%s@%s" $image.repository $tag $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository $tag -}}
{{- end -}}
{{- end -}}

{{/* The services and their ports: libs/service-kit counts from 4100 in this order. */}}
{{- define "nebo.services" -}}
identity-billing: 4100
compute: 4101
networking: 4102
dns: 4103
apps-builder: 4104
inference-router: 4105
{{- end -}}

{{/* (name): identity-billing -> IDENTITY_BILLING */}}
{{- define "nebo.variable" -}}
{{- . | upper | replace "-" "_" -}}
{{- end -}}

{{/* The pod that an edge runs in: its own, or the agent's. */}}
{{- define "nebo.edgePod" -}}
{{- if and .Values.regionAgent.enabled .Values.edge.besideAgent -}}region-agent{{- else -}}edge{{- end -}}
{{- end -}}

{{/* Secrets: the operator's, or the chart's. */}}
{{- define "nebo.secret.postgres" -}}
{{- default (include "nebo.name" (list . "connections")) .Values.postgres.existingSecret -}}
{{- end -}}
{{- define "nebo.secret.nats" -}}
{{- default (include "nebo.name" (list . "connections")) .Values.nats.existingSecret -}}
{{- end -}}
{{- define "nebo.secret.masterKey" -}}
{{- default (include "nebo.name" (list . "master-key")) .Values.masterKey.existingSecret -}}
{{- end -}}
{{- define "nebo.secret.region" -}}
{{- default (include "nebo.name" (list . "region")) .Values.regionAgent.existingSecret -}}
{{- end -}}

{{/*
The master key when the chart has it: the given one, else the one that is in the cluster, else a new one, remembered for
the other templates of this rendering. Without it no secret opens and no key is known, so it is never made anew where one
is: not by an upgrade, nor by an install after an uninstall or after an install that failed in its migration.
*/}}
{{- define "nebo.masterKey" -}}
{{- $values := .Values.masterKey -}}
{{- if not (hasKey $values "resolved") -}}
  {{- $key := $values.value -}}
  {{- range $name := list (include "nebo.name" (list . "master-key")) (include "nebo.name" (list . "migrate")) -}}
    {{- if not $key -}}
      {{- $data := (lookup "v1" "Secret" $.Release.Namespace $name).data | default dict -}}
      {{- $key = index $data "master.key" | default "" | b64dec -}}
    {{- end -}}
  {{- end -}}
  {{- if not $key -}}
    {{- $key = printf "%x" (randBytes 32 | b64dec) -}}
  {{- end -}}
  {{- $_ := set $values "resolved" ($key | trim) -}}
{{- end -}}
{{- $values.resolved -}}
{{- end -}}

{{/* What values.schema.json cannot say. Every sentence names its field. */}}
{{- define "nebo.validate" -}}
{{- $v := .Values -}}
{{- if not (or $v.postgres.url $v.postgres.existingSecret) -}}
  {{- fail "postgres.url is required (or postgres.existingSecret): the chart brings no PostgreSQL. Example: --set postgres.url=postgres://nebo:PASSWORD@db.example.org:5432/nebo" -}}
{{- end -}}
{{- if not (or $v.nats.url $v.nats.existingSecret) -}}
  {{- fail "nats.url is required (or nats.existingSecret): the chart brings no NATS. Example: --set nats.url=nats://nats.example.org:4222" -}}
{{- end -}}
{{- if and $v.regionAgent.enabled (not (or $v.regionAgent.token $v.regionAgent.existingSecret)) -}}
  {{- fail "regionAgent.token is required (or regionAgent.existingSecret) with regionAgent.enabled: mint one in the running installation, see NOTES" -}}
{{- end -}}
{{- range $name := list "apps-builder" "compute" -}}
  {{- $of := include "nebo.blobs" (list $ $name) | fromYaml -}}
  {{- if and (gt (int (index $v.processes $name).replicas) 1) (not $of.existingClaim) (not (has "ReadWriteMany" $of.accessModes)) -}}
    {{- fail (printf "processes.%s.replicas above 1 needs ReadWriteMany in %s.accessModes: all of them write the blobs" $name $of.values) -}}
  {{- end -}}
{{- end -}}
{{- if gt (int $v.processes.edge.replicas) 1 -}}
  {{- if $v.edge.persistence.enabled -}}
    {{- fail "processes.edge.replicas above 1 needs edge.persistence.enabled=false: two edges cannot share a folder" -}}
  {{- end -}}
  {{- if eq (include "nebo.edgePod" .) "region-agent" -}}
    {{- fail "processes.edge.replicas above 1 needs edge.besideAgent=false: a region has one agent, and the edge beside it is one" -}}
  {{- end -}}
{{- end -}}
{{- if $v.edge.hostPorts.enabled -}}
  {{- if and (eq (include "nebo.edgePod" .) "region-agent") (eq $v.regionAgent.driver "local") $v.regionAgent.hostNetwork -}}
    {{- fail "edge.hostPorts.enabled needs a pod with a network of its own: with regionAgent.hostNetwork the edge has the ports 8080 and 8443 of the node" -}}
  {{- end -}}
  {{- if and (eq (include "nebo.edgePod" .) "edge") (gt (int $v.processes.edge.replicas) 1) (not $v.topologySpread.enabled) -}}
    {{- fail "edge.hostPorts.enabled with several edges needs topologySpread.enabled: two of them do not fit on one node" -}}
  {{- end -}}
{{- end -}}
{{- if and $v.certificates.acmeEmail (not $v.certificates.acmeDirectory) -}}
  {{- fail "certificates.acmeEmail needs certificates.acmeDirectory: without a directory the edge's own authority makes all certificates" -}}
{{- end -}}
{{- if and $v.certificates.accountBinding.existingSecret (not $v.certificates.acmeDirectory) -}}
  {{- fail "certificates.accountBinding needs certificates.acmeDirectory: it is a customer's key at that authority" -}}
{{- end -}}
{{- if and $v.ingress.enabled (not (or $v.ingress.api.host $v.ingress.ai.host)) -}}
  {{- fail "ingress.api.host or ingress.ai.host is required with ingress.enabled" -}}
{{- end -}}
{{- end -}}

{{/* (list root process): where a process keeps blobs, as YAML: its values, their name and the claim's; empty: it keeps none. */}}
{{- define "nebo.blobs" -}}
{{- $values := (index . 0).Values -}}
{{- if eq (index . 1) "apps-builder" -}}
{{- toYaml (merge (dict "values" "blobs" "claim" "blobs") $values.blobs) -}}
{{- else if eq (index . 1) "compute" -}}
{{- toYaml (merge (dict "values" "diskBlobs" "claim" "disk-blobs") $values.diskBlobs) -}}
{{- end -}}
{{- end -}}
