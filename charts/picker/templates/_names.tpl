{{/* Names, labels and what follows from several values at once. */}}

{{- define "picker.name" -}}
{{- .Values.fullnameOverride | default (printf "%s-epp" (.Release.Name | trunc 40 | trimSuffix "-")) -}}
{{- end -}}

{{- define "picker.pool" -}}
{{- .Values.pool.name | default .Release.Name -}}
{{- end -}}

{{- define "picker.poolNamespace" -}}
{{- .Values.pool.namespace | default .Release.Namespace -}}
{{- end -}}

{{/* Labels of the model servers' pods; empty where a pool that is not ours selects them. */}}
{{- define "picker.workerLabels" -}}
{{- if .Values.pool.selector -}}
{{- toYaml .Values.pool.selector -}}
{{- else if .Values.pool.create -}}
app: {{ include "picker.pool" . }}
{{- end -}}
{{- end -}}

{{- define "picker.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of an object: (dict "root" $ "component" "picker"). */}}
{{- define "picker.labels" -}}
{{- with .root.Values.commonLabels }}{{ toYaml . }}
{{ end -}}
{{ include "picker.selector" .root }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* `metadata` of an object: (dict "root" $ "component" ... "name" ... ["namespace" ...] ["labels" {}] ["annotations" {}]). */}}
{{- define "picker.metadata" -}}
name: {{ .name }}
{{- if not .cluster }}
namespace: {{ .namespace | default .root.Release.Namespace }}
{{- end }}
labels:
  {{- toYaml (merge (dict) (.labels | default dict) (include "picker.labels" . | fromYaml)) | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* An image: (dict "image" .Values.image "root" $). */}}
{{- define "picker.image" -}}
{{- $name := .image.repository -}}
{{- with .image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if .image.digest -}}
{{ $name }}@{{ .image.digest }}
{{- else -}}
{{ $name }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "picker.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "picker.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* Whether anything is asked of the API server: then, and only then, pods get a token. */}}
{{- define "picker.asksServer" -}}
{{- $v := .Values -}}
{{- $o := $v.objects -}}
{{- if or (eq $v.discovery.workers.source "inferencePool") (eq $v.discovery.peers.source "endpointSlices") $o.inferenceObjectives $o.inferenceModelRewrites $o.inferencePoolImports (eq $v.metrics.protection "kubernetes") -}}
true
{{- end -}}
{{- end -}}

{{/* Whether more than one replica may run. */}}
{{- define "picker.several" -}}
{{- $most := .Values.autoscaling.enabled | ternary .Values.autoscaling.maxReplicas .Values.replicas -}}
{{- if gt (int $most) 1 -}}true{{- end -}}
{{- end -}}

{{- define "picker.tls" -}}
{{- if .Values.tls.mode -}}
{{ .Values.tls.mode }}
{{- else if eq .Values.provider.name "envoyGateway" -}}
off
{{- else -}}
self-signed
{{- end -}}
{{- end -}}

{{/* The secret that replicas prove themselves to one another by; empty where the port is closed. */}}
{{- define "picker.peersSecret" -}}
{{- $p := .Values.discovery.peers -}}
{{- if ne $p.guard "off" }}{{ $p.existingSecret | default (printf "%s-peers" (include "picker.name" .)) }}{{ end -}}
{{- end -}}

{{- define "picker.headless" -}}
{{- if eq (toString .Values.service.headless) "auto" -}}
{{- if has .Values.provider.name (list "none" "envoyAIGateway") -}}true{{- end -}}
{{- else if eq (toString .Values.service.headless) "true" -}}true{{- end -}}
{{- end -}}

{{/* The plane's URL; empty where it is in a secret. */}}
{{- define "picker.planeUrl" -}}
{{- $v := .Values -}}
{{- if $v.plane.url -}}
{{ $v.plane.url }}
{{- else if and $v.plane.existingSecret.name $v.plane.existingSecret.urlKey -}}
{{- else if $v.valkey.enabled -}}
redis://{{ include "picker.name" . }}-valkey.{{ .Release.Namespace }}.svc:6379
{{- else if $v.nats.enabled -}}
nats://{{ include "picker.name" . }}-nats.{{ .Release.Namespace }}.svc:4222
{{- else -}}
memory://
{{- end -}}
{{- end -}}

{{- define "picker.natsUrl" -}}
{{- $v := .Values -}}
{{- if $v.events.url -}}
{{ $v.events.url }}
{{- else if and $v.events.existingSecret.name $v.events.existingSecret.urlKey -}}
{{- else if $v.nats.enabled -}}
nats://{{ include "picker.name" . }}-nats.{{ .Release.Namespace }}.svc:4222
{{- end -}}
{{- end -}}

{{/* Ports named in a URL, as JSON; the given one where it names none: (list URL PORT). */}}
{{- define "picker.portsOf" -}}
{{- $ports := list -}}
{{- range regexFindAll ":[0-9]+" (regexReplaceAll "\\[[^]]*\\]" (regexReplaceAll "^[a-z+]+://([^@/]*@)?([^/?]*).*$" (index . 0) "${2}") "") -1 -}}
{{- $ports = append $ports (trimPrefix ":" . | int) -}}
{{- end -}}
{{- if not $ports -}}{{- $ports = list (int (index . 1)) -}}{{- end -}}
{{- uniq $ports | toJson -}}
{{- end -}}

{{/* A name as one token of a NATS subject: everything but letters, digits, `_` and `-` as `=XX`. Names of Kubernetes objects
     hold letters, digits, `-` and `.`; the pool's name joins two by `/`. */}}
{{- define "picker.natsToken" -}}
{{- . | replace "." "=2E" | replace "/" "=2F" | replace ":" "=3A" -}}
{{- end -}}

{{- define "picker.drainMax" -}}
{{- $said := get (include "picker.operatorsWord" . | fromJson) "PICKER_DRAIN_MAX_SECONDS" -}}
{{- ($said | default dict).value | default .Values.settings.life.drainMaxSeconds -}}
{{- end -}}

{{- define "picker.gracePeriod" -}}
{{- $most := include "picker.drainMax" . | float64 -}}
{{- if .Values.terminationGracePeriodSeconds -}}
{{ int .Values.terminationGracePeriodSeconds }}
{{- else -}}
{{ add (int (ceil $most)) 10 }}
{{- end -}}
{{- end -}}

{{/* Lay a tree over another in place: (list DESTINATION PATCH). Objects are joined, everything else is replaced. */}}
{{- define "picker.overlay" -}}
{{- $to := index . 0 -}}
{{- range $key, $value := index . 1 -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $to $key)) -}}
{{- include "picker.overlay" (list (get $to $key) $value) -}}
{{- else -}}
{{- $_ := set $to $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Lists of objects joined by one of their keys, as JSON under "list": (list BASE PATCH KEY). */}}
{{- define "picker.joined" -}}
{{- $key := index . 2 -}}
{{- $out := list -}}
{{- $patches := dict -}}
{{- range index . 1 }}{{ $_ := set $patches (get . $key) . }}{{ end -}}
{{- range index . 0 -}}
{{- $name := get . $key -}}
{{- if hasKey $patches $name -}}
{{- $item := deepCopy . -}}
{{- include "picker.overlay" (list $item (get $patches $name)) -}}
{{- $out = append $out $item -}}
{{- $_ := unset $patches $name -}}
{{- else -}}
{{- $out = append $out . -}}
{{- end -}}
{{- end -}}
{{- range index . 1 }}{{ if hasKey $patches (get . $key) }}{{ $out = append $out . }}{{ end }}{{ end -}}
{{- dict "list" $out | toJson -}}
{{- end -}}
