{{/* The pod of a replica. */}}

{{- define "picker.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "picker.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Requests and limits: memory left out follows the index and the bodies in flight. */}}
{{- define "picker.resources" -}}
{{- $mebi := 1048576.0 -}}
{{- $asked := addf 160.0 (divf (mulf (float64 .Values.index.entries) 85.0 1.5) $mebi) | ceil | int -}}
{{- $most := addf (float64 $asked) (divf (float64 .Values.settings.serving.maxBufferedBytes) $mebi) | ceil | int -}}
{{- $requests := merge (dict) .Values.resources.requests (dict "memory" (printf "%dMi" $asked)) -}}
{{- $limits := merge (dict) .Values.resources.limits (dict "memory" (printf "%dMi" $most)) -}}
{{- toYaml (dict "requests" $requests "limits" $limits) -}}
{{- end -}}

{{- define "picker.probes" -}}
startupProbe:
  grpc: {port: {{ .Values.ports.health }}, service: liveness}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  grpc: {port: {{ .Values.ports.health }}, service: liveness}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  grpc: {port: {{ .Values.ports.health }}, service: readiness}
  periodSeconds: 2
  timeoutSeconds: 1
  failureThreshold: 2
{{- end -}}

{{- define "picker.volumes" -}}
{{- $v := .Values -}}
- name: tmp
  emptyDir: {}
{{- if eq (include "picker.tls" .) "files" }}
- name: tls
  secret: {secretName: {{ $v.tls.existingSecret }}}
{{- end }}
{{- with $v.tls.client.existingSecret }}
- name: clients
  secret: {secretName: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- with $v.plane.existingSecret.name }}
- name: plane
  secret: {secretName: {{ . }}, optional: false}
{{- end }}
{{- with $v.events.existingSecret.name }}
- name: nats
  secret: {secretName: {{ . }}, optional: false}
{{- end }}
{{- with $v.objects.imports }}
{{- if .existingSecret }}
- name: imports
  secret: {secretName: {{ .existingSecret }}, items: [{key: {{ .key }}, path: kubeconfig}]}
{{- end }}
{{- end }}
{{- with include "picker.peersSecret" . }}
- name: peers
  secret: {secretName: {{ . }}, optional: {{ empty $v.discovery.peers.existingSecret }}}
{{- end }}
{{- if and (eq $v.discovery.workers.source "file") (not $v.discovery.workers.file) }}
- name: workers
  configMap: {name: {{ include "picker.name" . }}-workers}
{{- end }}
{{- if $v.modelRewrites.objects }}
- name: rewrites
  configMap: {name: {{ include "picker.name" . }}-rewrites}
{{- end }}
{{- with $v.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "picker.mounts" -}}
{{- range (include "picker.volumes" . | fromYamlArray) }}
{{- if eq .name "tmp" }}
- {name: tmp, mountPath: /tmp}
{{- else if has .name (list "tls" "clients" "plane" "nats" "imports" "peers" "workers" "rewrites") }}
- {name: {{ .name }}, mountPath: /etc/picker/{{ .name }}, readOnly: true}
{{- end }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "picker.spread" -}}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: {{ $.Values.topologySpread.whenUnsatisfiable }}
  labelSelector:
    matchLabels:
      {{- include "picker.selector" $ | nindent 6 }}
      app.kubernetes.io/component: picker
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end -}}

{{/* What a change of which must start the pods anew, though it is in another object. */}}
{{- define "picker.checksums" -}}
{{- if .Values.discovery.workers.addresses }}
checksum/workers: {{ .Values.discovery.workers.addresses | toJson | sha256sum }}
{{- end }}
checksum/settings: {{ include "picker.entries" . | sha256sum }}
{{- end -}}

{{/* The chart's own PodTemplateSpec. */}}
{{- define "picker.pod" -}}
metadata:
  labels:
    {{- toYaml (merge (dict) .Values.podLabels (include "picker.labels" (dict "root" . "component" "picker") | fromYaml)) | nindent 4 }}
  annotations:
    {{- toYaml (merge (dict) .Values.podAnnotations (include "picker.checksums" . | fromYaml) .Values.commonAnnotations) | nindent 4 }}
spec:
  serviceAccountName: {{ include "picker.serviceAccount" . }}
  automountServiceAccountToken: {{ eq (include "picker.asksServer" .) "true" }}
  # a Service named `picker` would otherwise put PICKER_PORT among our settings
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "picker.gracePeriod" . }}
  securityContext:
    {{- include "picker.podSecurity" . | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toJson . }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{ toJson . }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{ toJson . }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{ toJson . }}
  {{- end }}
  {{- if .Values.topologySpread.enabled }}
  topologySpreadConstraints:
    {{- include "picker.spread" . | nindent 4 }}
  {{- end }}
  containers:
    - name: picker
      image: {{ include "picker.image" (dict "image" .Values.image "root" .) }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        {{- include "picker.args" . | nindent 8 }}
      env:
        {{- include "picker.env" . | nindent 8 }}
      {{- with .Values.extraEnvFrom }}
      envFrom: {{ toJson . }}
      {{- end }}
      ports:
        - {name: grpc-ext-proc, containerPort: {{ .Values.ports.grpc }}}
        - {name: grpc-health, containerPort: {{ .Values.ports.health }}}
        - {name: http-metrics, containerPort: {{ .Values.ports.metrics }}}
        - {name: peers, containerPort: {{ .Values.ports.peers }}}
      {{- include "picker.probes" . | nindent 6 }}
      resources:
        {{- include "picker.resources" . | nindent 8 }}
      securityContext:
        {{- include "picker.containerSecurity" . | nindent 8 }}
      volumeMounts:
        {{- include "picker.mounts" . | nindent 8 }}
  volumes:
    {{- include "picker.volumes" . | nindent 4 }}
{{- end -}}

{{/* Containers joined by name, and within each its variables, ports and mounts: (list BASE PATCH). */}}
{{- define "picker.joinedContainers" -}}
{{- $out := list -}}
{{- $lists := dict "env" "name" "ports" "name" "volumeMounts" "mountPath" -}}
{{- $patches := dict -}}
{{- range index . 1 }}{{ $_ := set $patches .name . }}{{ end -}}
{{- range $base := index . 0 -}}
{{- $patch := deepCopy (get $patches $base.name | default dict) -}}
{{- range $field, $key := $lists -}}
{{- if hasKey $patch $field -}}
{{- $joined := include "picker.joined" (list (get $base $field | default list) (get $patch $field) $key) | fromJson -}}
{{- $_ := set $patch $field $joined.list -}}
{{- end -}}
{{- end -}}
{{- include "picker.overlay" (list $base $patch) -}}
{{- $out = append $out $base -}}
{{- $_ := unset $patches $base.name -}}
{{- end -}}
{{- range index . 1 }}{{ if hasKey $patches .name }}{{ $out = append $out . }}{{ end }}{{ end -}}
{{- dict "list" $out | toJson -}}
{{- end -}}

{{/* The chart's PodTemplateSpec with the operator's laid over it. */}}
{{- define "picker.podTemplate" -}}
{{- $pod := include "picker.pod" . | fromYaml -}}
{{- $patch := deepCopy .Values.podTemplate -}}
{{- $spec := $patch.spec | default dict -}}
{{- range list "containers" "initContainers" -}}
{{- if hasKey $spec . -}}
{{- $joined := include "picker.joinedContainers" (list (get $pod.spec . | default list) (get $spec .)) | fromJson -}}
{{- $_ := set $spec . $joined.list -}}
{{- end -}}
{{- end -}}
{{- if hasKey $spec "volumes" -}}
{{- $joined := include "picker.joined" (list $pod.spec.volumes $spec.volumes "name") | fromJson -}}
{{- $_ := set $spec "volumes" $joined.list -}}
{{- end -}}
{{- include "picker.overlay" (list $pod $patch) -}}
{{- toYaml $pod -}}
{{- end -}}
