{{/* The picker's variables. Later words win: the chart's own, `settings`, `extraEnv`, `podTemplate`. */}}

{{/* Variables that the operator set outright, as JSON: name to entry. */}}
{{- define "picker.operatorsWord" -}}
{{- $said := dict -}}
{{- range .Values.extraEnv }}{{ $_ := set $said .name . }}{{ end -}}
{{- range ((.Values.podTemplate.spec | default dict).containers | default list) -}}
{{- if eq (.name | default "") "picker" }}{{ range .env | default list }}{{ $_ := set $said .name . }}{{ end }}{{ end -}}
{{- end -}}
{{- toJson $said -}}
{{- end -}}

{{/* One value as a variable holds it: (list ROW VALUE). */}}
{{- define "picker.asText" -}}
{{- $row := index . 0 -}}
{{- $value := index . 1 -}}
{{- if kindIs "slice" $value -}}{{ join "," $value }}
{{- else if and (eq $row.kind "integer") (not (kindIs "string" $value)) -}}{{ printf "%d" (int64 $value) }}
{{- else -}}{{ toString $value }}
{{- end -}}
{{- end -}}

{{/* Variables of files out of a secret: (dict "entries" D "secret" S "folder" "/etc/picker/plane" "files" (dict "PICKER_X" "caKey")). */}}
{{- define "picker.filesOf" -}}
{{- $call := . -}}
{{- if .secret.name -}}
{{- range $variable, $key := .files -}}
{{- with get $call.secret $key }}{{ $_ := set $call.entries $variable (dict "value" (printf "%s/%s" $call.folder .)) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "picker.planeEntries" -}}
{{- $root := index . 0 -}}
{{- $entries := index . 1 -}}
{{- $secret := $root.Values.plane.existingSecret -}}
{{- $url := include "picker.planeUrl" $root -}}
{{- if $url -}}
{{- if ne $url "memory://" }}{{ $_ := set $entries "PICKER_PLANE_URL" (dict "value" $url) }}{{ end -}}
{{- else -}}
{{- $_ := set $entries "PICKER_PLANE_URL" (dict "valueFrom" (dict "secretKeyRef" (dict "name" $secret.name "key" $secret.urlKey))) -}}
{{- end -}}
{{- include "picker.filesOf" (dict "entries" $entries "secret" $secret "folder" "/etc/picker/plane" "files" (dict "PICKER_PLANE_PASSWORD_FILE" "passwordKey" "PICKER_PLANE_CA_FILE" "caKey" "PICKER_PLANE_CERTIFICATE_FILE" "certificateKey" "PICKER_PLANE_KEY_FILE" "privateKeyKey")) -}}
{{- if and (include "picker.several" $root) (not (kindIs "bool" $root.Values.settings.plane.replicaSync)) -}}
{{- $_ := set $entries "PICKER_SYNC" (dict "value" "eventual") -}}
{{- end -}}
{{- end -}}

{{- define "picker.natsEntries" -}}
{{- $root := index . 0 -}}
{{- $entries := index . 1 -}}
{{- $secret := $root.Values.events.existingSecret -}}
{{- $url := include "picker.natsUrl" $root -}}
{{- if $url -}}
{{- $_ := set $entries "PICKER_NATS_URL" (dict "value" $url) -}}
{{- else if and $secret.name $secret.urlKey -}}
{{- $_ := set $entries "PICKER_NATS_URL" (dict "valueFrom" (dict "secretKeyRef" (dict "name" $secret.name "key" $secret.urlKey))) -}}
{{- end -}}
{{- include "picker.filesOf" (dict "entries" $entries "secret" $secret "folder" "/etc/picker/nats" "files" (dict "PICKER_NATS_CREDENTIALS_FILE" "credentialsKey" "PICKER_NATS_NKEY_FILE" "nkeyKey" "PICKER_NATS_CA_FILE" "caKey" "PICKER_NATS_CERT_FILE" "certificateKey" "PICKER_NATS_KEY_FILE" "privateKeyKey")) -}}
{{- end -}}

{{- define "picker.servingEntries" -}}
{{- $root := index . 0 -}}
{{- $entries := index . 1 -}}
{{- $tls := $root.Values.tls -}}
{{- $mode := include "picker.tls" $root -}}
{{- if ne $mode "off" -}}
{{- $_ := set $entries "PICKER_TLS" (dict "value" $mode) -}}
{{- if eq $mode "files" -}}
{{- $_ := set $entries "PICKER_TLS_CERT_FILE" (dict "value" "/etc/picker/tls/tls.crt") -}}
{{- $_ := set $entries "PICKER_TLS_KEY_FILE" (dict "value" "/etc/picker/tls/tls.key") -}}
{{- end -}}
{{- if $tls.client.existingSecret -}}
{{- $_ := set $entries "PICKER_TLS_CLIENT_CA_FILE" (dict "value" "/etc/picker/clients/ca.crt") -}}
{{- end -}}
{{- end -}}
{{- with $root.Values.admin.existingSecret -}}
{{- if .name }}{{ $_ := set $entries "PICKER_ADMIN_TOKEN" (dict "valueFrom" (dict "secretKeyRef" (dict "name" .name "key" .tokenKey))) }}{{ end -}}
{{- end -}}
{{- if $root.Values.modelRewrites.objects }}{{ $_ := set $entries "PICKER_MODEL_REWRITE_FILE" (dict "value" "/etc/picker/rewrites/rewrites.yaml") }}{{ end -}}
{{- end -}}

{{- define "picker.discoveryEntries" -}}
{{- $root := index . 0 -}}
{{- $entries := index . 1 -}}
{{- $d := $root.Values.discovery -}}
{{- if not $d.peers.addresses -}}
{{- $_ := set $entries "PICKER_PEER_SERVICE" (dict "value" ($d.peers.service | default (printf "%s-peers.%s.svc" (include "picker.name" $root) $root.Release.Namespace))) -}}
{{- end -}}
{{- if and (eq $d.peers.source "endpointSlices") (not $d.peers.addresses) -}}
{{- $_ := set $entries "PICKER_PEER_SOURCE" (dict "value" "endpointslices") -}}
{{- end -}}
{{- if ne (int $root.Values.ports.peers) 9092 }}{{ $_ := set $entries "PICKER_PEERS_PORT" (dict "value" (toString $root.Values.ports.peers)) }}{{ end -}}
{{- if has $d.peers.guard (list "secret" "both") }}{{ $_ := set $entries "PICKER_PEERS_SECRET_FILE" (dict "value" (printf "/etc/picker/peers/%s" $d.peers.secretKey)) }}{{ end -}}
{{- if has $d.peers.guard (list "mtls" "both") -}}
{{- range $variable, $file := dict "PICKER_PEERS_TLS_CA_FILE" "ca.crt" "PICKER_PEERS_TLS_CERT_FILE" "tls.crt" "PICKER_PEERS_TLS_KEY_FILE" "tls.key" -}}
{{- $_ := set $entries $variable (dict "value" (printf "/etc/picker/peers/%s" $file)) -}}
{{- end -}}
{{- end -}}
{{- $read := list -}}
{{- range $kind := list "inferenceObjectives" "inferenceModelRewrites" "inferencePoolImports" -}}
{{- if get $root.Values.objects $kind }}{{ $read = append $read (lower $kind) }}{{ end -}}
{{- end -}}
{{- if $root.Values.objects.imports.existingSecret }}{{ $_ := set $entries "PICKER_IMPORT_KUBECONFIG" (dict "value" "/etc/picker/imports/kubeconfig") }}{{ end -}}
{{- with $read }}{{ $_ := set $entries "PICKER_API_OBJECTS" (dict "value" (join "," .)) }}{{ end -}}
{{- if eq $d.workers.source "file" -}}
{{- $_ := set $entries "PICKER_WORKERS_FILE" (dict "value" ($d.workers.file | default "/etc/picker/workers/workers.json")) -}}
{{- end -}}
{{- end -}}

{{/* Everything that the chart and `settings` say, as JSON: name to entry; without what the operator's own word silences,
     and without what is a flag. */}}
{{- define "picker.entries" -}}
{{- $root := . -}}
{{- $entries := dict -}}
{{- range list "picker.planeEntries" "picker.natsEntries" "picker.servingEntries" "picker.discoveryEntries" }}{{ include . (list $root $entries) }}{{ end -}}
{{- $rows := .Files.Get "files/settings.json" | fromJsonArray -}}
{{- $said := include "picker.operatorsWord" . | fromJson -}}
{{- range $row := $rows -}}
{{- if and $row.path (ne $row.part "bridge") -}}
{{- $value := $root.Values -}}
{{- range $row.path }}{{ $value = index $value . }}{{ end -}}
{{- $text := include "picker.asText" (list $row $value) -}}
{{- if ne $text (include "picker.asText" (list $row $row.default)) }}{{ $_ := set $entries $row.variable (dict "value" $text) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range $row := $rows -}}
{{- range prepend $row.also $row.variable }}{{ if hasKey $said . }}{{ $_ := unset $entries $row.variable }}{{ end }}{{ end -}}
{{- end -}}
{{- $_ := unset $entries "PICKER_KV_CACHE_USAGE_PERCENTAGE_METRIC" -}}
{{- toJson $entries -}}
{{- end -}}

{{/* `env` of the picker's container; podTemplate's own variables are joined later. */}}
{{- define "picker.env" -}}
{{- $entries := include "picker.entries" . | fromJson -}}
{{- $said := include "picker.operatorsWord" . | fromJson -}}
{{- if not (hasKey $said "PICKER_REPLICA_NAME") }}
- name: PICKER_REPLICA_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- end }}
{{- if not (hasKey $said "PICKER_REPLICA_ADDRESS") }}
- name: PICKER_REPLICA_ADDRESS
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end }}
{{- range $name, $entry := $entries }}
- {{ merge (dict "name" $name) $entry | toJson }}
{{- end }}
{{- range .Values.extraEnv }}
- {{ toJson . }}
{{- end }}
{{- end -}}

{{/* Flags whose setting the operator gave as a variable are left out, for flags would win. */}}
{{- define "picker.args" -}}
{{- $said := include "picker.operatorsWord" . | fromJson -}}
{{- $flags := list
  (list "PICKER_POOL_NAME" "--pool-name" (include "picker.pool" .))
  (list "PICKER_POOL_NAMESPACE" "--pool-namespace" (include "picker.poolNamespace" .))
  (list "PICKER_GRPC_PORT" "--grpc-port" (int .Values.ports.grpc))
  (list "PICKER_GRPC_HEALTH_PORT" "--grpc-health-port" (int .Values.ports.health))
  (list "PICKER_METRICS_PORT" "--metrics-port" (int .Values.ports.metrics)) -}}
- serve
{{- range $flags }}
{{- if not (hasKey $said (index . 0)) }}
- {{ printf "%s=%v" (index . 1) (index . 2) }}
{{- end }}
{{- end }}
{{- with .Values.settings.workers.kvCacheUsagePercentageMetric }}
{{- if not (hasKey $said "PICKER_KV_CACHE_USAGE_PERCENTAGE_METRIC") }}
- --kv-cache-usage-percentage-metric={{ . }}
{{- end }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ quote . }}
{{- end }}
{{- end -}}

{{/* The sync mode in force: eventual, isolated, atomic; "unknown" where a variable comes from elsewhere. */}}
{{- define "picker.sync" -}}
{{- $said := include "picker.operatorsWord" . | fromJson -}}
{{- $entries := include "picker.entries" . | fromJson -}}
{{- $own := get $said "PICKER_SYNC" | default (get $entries "PICKER_SYNC") -}}
{{- $dynamo := get $said "DYN_ROUTER_REPLICA_SYNC" | default (get $entries "DYN_ROUTER_REPLICA_SYNC") -}}
{{- if $own -}}{{ $own.value | default "unknown" }}
{{- else if $dynamo -}}
{{- if not $dynamo.value -}}unknown
{{- else if has (lower (toString $dynamo.value)) (list "true" "1" "yes" "on" "t" "y") -}}eventual
{{- else -}}isolated{{- end -}}
{{- else if include "picker.inMemory" . -}}isolated
{{- else -}}eventual{{- end -}}
{{- end -}}

{{/* Whether bookings stay in one process. */}}
{{- define "picker.inMemory" -}}
{{- $said := include "picker.operatorsWord" . | fromJson -}}
{{- if hasKey $said "PICKER_PLANE_URL" -}}
{{- if hasPrefix "memory:" (toString (get $said "PICKER_PLANE_URL").value) -}}true{{- end -}}
{{- else if eq (include "picker.planeUrl" .) "memory://" -}}true{{- end -}}
{{- end -}}
