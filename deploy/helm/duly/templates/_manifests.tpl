{{/*
The manifests are those of deploy/kubernetes, which `kubernetes` links to: read as they are, and changed where values say so. kustomize
and this chart cannot differ in what neither of them changes; tests/deploy/test_helm_chart.py compares the rest.
*/}}

{{/* The settings of a file (KEY=VALUE lines), with others above them. Takes: root, file, own (a map, or nil). Not in the schema, which would print a password. */}}
{{- define "duly.settings" -}}
{{- $dsn := get (.own | default dict) "DULY_STORE_DSN" -}}
{{- if regexMatch "://[^/@]*:[^/]*@|password=" $dsn -}}
{{- fail (printf "DULY_STORE_DSN of %s has a password: put it into the Secret of its process" (base .file | trimSuffix ".env")) -}}
{{- end -}}
{{- $found := dict -}}
{{- range $line := .root.Files.Lines (printf "kubernetes/%s" .file) -}}
{{- if contains "=" $line -}}
{{- $parts := regexSplit "=" $line 2 -}}
{{- $_ := set $found (index $parts 0) (index $parts 1) -}}
{{- end -}}
{{- end -}}
{{- toYaml (mergeOverwrite $found (deepCopy (.own | default dict))) -}}
{{- end -}}

{{/* A ConfigMap. Takes: root, name, data, hook. */}}
{{- define "duly.configMap" -}}
{{- $map := dict "apiVersion" "v1" "kind" "ConfigMap" "metadata" (dict "name" .name) "data" .data -}}
{{- include "duly.object" (dict "root" .root "object" $map "hook" .hook) -}}
{{- end -}}

{{/* An object as a document: in the namespace, with the label of all, and with annotations if it is a hook. Takes: root, object, hook. */}}
{{- define "duly.object" -}}
{{- $about := .object.metadata -}}
{{- $_ := set $about "namespace" .root.Release.Namespace -}}
{{- $_ := set $about "labels" (merge (dict "app.kubernetes.io/part-of" "duly") ($about.labels | default dict)) -}}
{{- with .hook -}}
{{- $_ := set $about "annotations" (dict "helm.sh/hook" "pre-install,pre-upgrade" "helm.sh/hook-weight" . "helm.sh/hook-delete-policy" "before-hook-creation") -}}
{{- end }}
---
{{ toYaml .object }}
{{- end -}}

{{/*
The documents of a file. Takes:
  root, file
  settings: the data of ConfigMaps by name
  own: what values say of the Deployment: replicas, resources, pod
  image: of the container
  was, is: a part of names, and what it becomes
  app: of a worker
  pool: whether an autoscaler counts the replicas
  scaled: the Deployments that the Role names
  hook: whether the objects are hooks
*/}}
{{- define "duly.file" -}}
{{- $all := . -}}
{{- $own := .own | default dict -}}
{{- $text := .root.Files.Get (printf "kubernetes/%s" .file) | required (printf "kubernetes/%s is not in the chart" .file) -}}
{{- if .was }}{{ $text = replace .was .is $text }}{{ end -}}
{{- $text = replace "-frontend.duly.svc" (printf "-frontend.%s.svc" .root.Release.Namespace) $text -}}
{{- $text = replace "-console.duly.svc" (printf "-console.%s.svc" .root.Release.Namespace) $text -}}
{{- $text = replace "- duly-autoscaler.duly #" (printf "- duly-autoscaler.%s #" .root.Release.Namespace) $text -}}
{{- range $part := regexSplit "(?m)^---$" $text -1 -}}
{{- $object := fromYaml $part -}}
{{- if $object.kind -}}
{{- if has $object.kind (list "Deployment" "Job") -}}
{{- $template := $object.spec.template -}}
{{- $_ := set $template.metadata.labels "app.kubernetes.io/part-of" "duly" -}}
{{- if hasKey $own "replicas" }}{{ $_ := set $object.spec "replicas" $own.replicas }}{{ end -}}
{{- if $all.pool }}{{ $_ := unset $object.spec "replicas" }}{{ end -}}
{{- $container := index $template.spec.containers 0 -}}
{{- $_ := set $container "image" $all.image -}}
{{- if $all.app }}{{ $_ := set $container "args" (list "worker" $all.app) }}{{ end -}}
{{- with $own.resources }}{{ $_ := set $container "resources" (mergeOverwrite $container.resources (deepCopy .)) }}{{ end -}}
{{- with $own.pod }}{{ $_ := mergeOverwrite $template.spec (deepCopy .) }}{{ end -}}
{{- $read := dict -}}
{{- range $container.envFrom }}{{ $_ := set $read .configMapRef.name (index $all.settings .configMapRef.name) }}{{ end -}}
{{- $_ := set $template.metadata "annotations" (dict "duly.io/settings" (toYaml $read | sha256sum)) -}}
{{- if $all.scaled }}{{ $_ := set $template.spec "automountServiceAccountToken" true }}{{ end -}}
{{- else if eq $object.kind "Role" -}}
{{- $_ := set (index $object.rules 0) "resourceNames" $all.scaled -}}
{{- else if eq $object.kind "RoleBinding" -}}
{{- range $object.subjects }}{{ $_ := set . "namespace" $all.root.Release.Namespace }}{{ end -}}
{{- end -}}
{{- $weight := ternary "1" "0" (eq $object.kind "Job") -}}
{{- include "duly.object" (dict "root" $all.root "object" $object "hook" (ternary $weight "" (default false $all.hook))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
