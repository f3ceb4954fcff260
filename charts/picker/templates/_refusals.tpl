{{/* Values that cannot work together, each with what to do. */}}

{{- define "picker.refusePlane" -}}
{{- $several := include "picker.several" . -}}
{{- $sync := include "picker.sync" . -}}
{{- if and $several (include "picker.inMemory" .) (ne $sync "isolated") -}}
{{- fail (printf "replicas: %v replicas cannot share load through the memory of one process. Before: plane.url is empty and no bundled server is enabled, so the plane is memory://. After: set plane.url (redis://..., nats://...), or valkey.enabled=true for a trial; or settings.plane.sync=isolated, where each replica sees its own load only." (.Values.autoscaling.enabled | ternary .Values.autoscaling.maxReplicas .Values.replicas)) -}}
{{- end -}}
{{- if and (eq $sync "atomic") (regexMatch "^(nats|tls)://" (include "picker.planeUrl" .)) -}}
{{- fail "settings.plane.sync: atomic needs a plane that chooses and books in one step, which NATS cannot. Use redis:// or rediss:// in plane.url, or settings.plane.sync=eventual." -}}
{{- end -}}
{{- if and .Values.plane.url .Values.plane.existingSecret.urlKey -}}
{{- fail "plane.url and plane.existingSecret.urlKey both name the plane; leave one of them empty." -}}
{{- end -}}
{{- if and .Values.events.url .Values.events.existingSecret.urlKey -}}
{{- fail "events.url and events.existingSecret.urlKey both name NATS; leave one of them empty." -}}
{{- end -}}
{{- range $part, $values := dict "plane" .Values.plane "events" .Values.events -}}
{{- range $key, $value := $values.existingSecret -}}
{{- if and (ne $key "name") $value (not $values.existingSecret.name) -}}
{{- fail (printf "%s.existingSecret.%s: names the key %q of no secret; set %s.existingSecret.name." $part $key $value $part) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $part, $values := dict "plane" .Values.plane "events" .Values.events -}}
{{- $beside := get $values.existingSecret "passwordKey" -}}
{{- if or (regexMatch "^[^?]*://[^?]*:[^?]*@" $values.url) (and (not $beside) (regexMatch "^(nats|tls)://[^?]*@" $values.url)) -}}
{{- fail (printf "%s.url: holds a password or a token, which everybody who may read the Deployment could read. Put the whole URL into a secret and name its key in %s.existingSecret.urlKey." $part $part) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.events.existingSecret.credentialsKey .Values.events.existingSecret.nkeyKey -}}
{{- fail "events.existingSecret: credentialsKey and nkeyKey exclude one another." -}}
{{- end -}}
{{- end -}}

{{- define "picker.refusePool" -}}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.workers.enabled (not (include "picker.workerLabels" .)) -}}
{{- fail "networkPolicy.workers: with pool.create=false and no pool.selector the model servers' pods are not known; give their labels in pool.selector." -}}
{{- end -}}
{{- $w := .Values.discovery.workers -}}
{{- if and (eq $w.source "file") (not $w.file) (not $w.addresses) -}}
{{- fail "discovery.workers: source is file, but neither file nor addresses says which workers there are." -}}
{{- end -}}
{{- if and (eq $w.source "inferencePool") (or $w.file $w.addresses) -}}
{{- fail "discovery.workers: file and addresses are read with source: file only." -}}
{{- end -}}
{{- if and .Values.modelRewrites.objects .Values.settings.requests.modelRewriteFile -}}
{{- fail "modelRewrites.objects and settings.requests.modelRewriteFile both name rules; leave one of them empty." -}}
{{- end -}}
{{- end -}}

{{- define "picker.refuseProvider" -}}
{{- $p := .Values.provider -}}
{{- $mode := include "picker.tls" . -}}
{{- if and (eq $mode "files") (not .Values.tls.existingSecret) -}}
{{- fail "tls.mode: files needs tls.existingSecret, a secret of type kubernetes.io/tls." -}}
{{- end -}}
{{- if and (ne $mode "files") .Values.tls.existingSecret -}}
{{- fail (printf "tls.existingSecret: read with tls.mode=files only, and it is %s." $mode) -}}
{{- end -}}
{{- if and (eq $mode "off") (or .Values.tls.client.existingSecret .Values.tls.client.names) -}}
{{- fail "tls.client: gateways show certificates over TLS only; set tls.mode to files or self-signed." -}}
{{- end -}}
{{- if and .Values.tls.client.names (not .Values.tls.client.existingSecret) -}}
{{- fail "tls.client.names: anybody could claim a name that no authority vouches for; set tls.client.existingSecret." -}}
{{- end -}}
{{- if and $p.extProc.failOpen (or (eq $p.extProc.requestBody "FullDuplexStreamed") (eq $p.extProc.responseBody "FullDuplexStreamed")) (eq $p.name "envoyGateway") -}}
{{- fail "provider.extProc.failOpen: Envoy Gateway refuses it with FullDuplexStreamed bodies. Set provider.extProc.requestBody to Streamed or Buffered." -}}
{{- end -}}
{{- if and $p.extProc.allowModeOverride (not .Values.settings.serving.modeOverride) (eq $p.name "envoyGateway") -}}
{{- fail "provider.extProc.allowModeOverride: nobody would use it; set settings.serving.modeOverride=true too." -}}
{{- end -}}
{{- if eq $p.name "envoyGateway" -}}
{{- if not $p.route.name }}{{ fail "provider.route.name: empty; name the HTTPRoute whose requests are picked for." }}{{ end -}}
{{- if and $p.route.create (not $p.envoyGateway.backendService) }}{{ fail "provider.envoyGateway.backendService: empty; name the model servers' Service, the route's backend." }}{{ end -}}
{{- if eq $mode "self-signed" -}}
{{- fail "tls.mode: Envoy Gateway verifies certificates, so self-signed cannot serve it. Use off, or files with provider.envoyGateway.backendTLS.caConfigMap." -}}
{{- end -}}
{{- if and (eq $mode "files") (not $p.envoyGateway.backendTLS.caConfigMap) -}}
{{- fail "provider.envoyGateway.backendTLS.caConfigMap: empty; name the ConfigMap whose ca.crt verifies the picker's certificate." -}}
{{- end -}}
{{- end -}}
{{- if and (eq $p.name "envoyAIGateway") (eq $mode "off") -}}
{{- fail "tls.mode: Envoy AI Gateway dials the picker with TLS always; use self-signed (it does not verify) or files." -}}
{{- end -}}
{{- if and $p.route.create (not $p.route.name) }}{{ fail "provider.route.name: empty; give the HTTPRoute a name." }}{{ end -}}
{{- if and $p.route.create (not $p.route.parentRefs) }}{{ fail "provider.route.parentRefs: empty; name the Gateway that the route hangs on." }}{{ end -}}
{{- if and $p.gateway.bufferLimit (not $p.gateway.name) -}}
{{- fail "provider.gateway.name: empty; the ClientTrafficPolicy of provider.gateway.bufferLimit needs the Gateway's name." -}}
{{- end -}}
{{- if and $p.accessLog.patch (not $p.gateway.name) (has $p.name (list "envoyGateway" "envoyAIGateway")) -}}
{{- fail "provider.gateway.name: empty; the EnvoyPatchPolicy of provider.accessLog.patch needs the Gateway's name." -}}
{{- end -}}
{{- end -}}

{{- define "picker.refuseRest" -}}
{{- $grace := .Values.terminationGracePeriodSeconds | int -}}
{{- $most := include "picker.drainMax" . | float64 -}}
{{- if and $grace (le (float64 $grace) $most) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d would kill a replica that still drains for up to %v seconds (settings.life.drainMaxSeconds); give more, or 0 to follow it." $grace $most) -}}
{{- end -}}
{{- $m := .Values.metrics -}}
{{- if or (and $m.serviceMonitor.enabled $m.podMonitor.enabled) (and $m.podMonitoring.enabled (or $m.serviceMonitor.enabled $m.podMonitor.enabled)) -}}
{{- fail "metrics: several of serviceMonitor, podMonitor and podMonitoring would scrape every replica twice; enable one of them." -}}
{{- end -}}
{{- if and (eq $m.protection "kubernetes") (or $m.podMonitor.enabled $m.podMonitoring.enabled) (not $m.authorization.credentials) -}}
{{- fail "metrics.authorization: empty, and what is scraped by a PodMonitor or PodMonitoring has no token of its own to show; name a secret: {credentials: {name: ..., key: token}}, or use metrics.serviceMonitor." -}}
{{- end -}}
{{- if and $m.readers (ne $m.protection "kubernetes") -}}
{{- fail "metrics.readers: everybody may read metrics; set metrics.protection=kubernetes, or leave readers empty." -}}
{{- end -}}
{{- if and .Values.objects.imports.existingSecret (not .Values.objects.inferencePoolImports) -}}
{{- fail "objects.imports.existingSecret: read with objects.inferencePoolImports=true only." -}}
{{- end -}}
{{- $a := .Values.autoscaling -}}
{{- if $a.enabled -}}
{{- if lt (int $a.maxReplicas) (int $a.minReplicas) }}{{ fail (printf "autoscaling.maxReplicas: %v is less than minReplicas, %v." $a.maxReplicas $a.minReplicas) }}{{ end -}}
{{- if not (or $a.cpuUtilization $a.streamsPerReplica) }}{{ fail "autoscaling: nothing to aim for; set cpuUtilization or streamsPerReplica." }}{{ end -}}
{{- end -}}
{{- $ports := list (int .Values.ports.grpc) (int .Values.ports.health) (int .Values.ports.metrics) (int .Values.ports.peers) -}}
{{- if ne (len (uniq $ports)) 4 }}{{ fail (printf "ports: each needs a number of its own; they are %s." (join ", " $ports)) }}{{ end -}}
{{- if not .Values.resources.requests.cpu }}{{ fail "resources.requests.cpu: empty; replicas without a request are the first to starve, and gateways wait for them." }}{{ end -}}
{{- end -}}

{{- define "picker.refusePeers" -}}
{{- $p := .Values.discovery.peers -}}
{{- if and (has $p.guard (list "mtls" "both")) (not $p.existingSecret) -}}
{{- fail (printf "discovery.peers.existingSecret: empty; guard=%s needs a secret with tls.crt, tls.key and ca.crt, as cert-manager writes them." $p.guard) -}}
{{- end -}}
{{- if and $p.names (not (has $p.guard (list "mtls" "both"))) -}}
{{- fail "discovery.peers.names: replicas show certificates with guard=mtls or both only." -}}
{{- end -}}
{{- if and $p.existingSecret (eq $p.guard "off") -}}
{{- fail "discovery.peers.existingSecret: nobody reads it with guard=off; leave it empty, or set guard=secret." -}}
{{- end -}}
{{- end -}}

{{- define "picker.refusals" -}}
{{- include "picker.refusePeers" . -}}
{{- include "picker.refusePlane" . -}}
{{- include "picker.refusePool" . -}}
{{- include "picker.refuseProvider" . -}}
{{- include "picker.refuseRest" . -}}
{{- end -}}
