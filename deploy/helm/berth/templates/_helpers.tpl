{{- /* toYaml, here and elsewhere: without quotes a name such as 123 or on would be no text. */}}
{{- define "berth.name" -}}
{{ if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}{{ else if eq .Release.Name .Chart.Name }}{{ .Chart.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | replace "." "-" | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "berth.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ toYaml .Release.Name }}
{{- end }}

{{- /* The webhook's pods are not the scheduler's. */}}
{{- define "berth.webhook" -}}
{{ include "berth.name" . }}-webhook
{{- end }}

{{- define "berth.webhookSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-webhook
app.kubernetes.io/instance: {{ toYaml .Release.Name }}
{{- end }}

{{- define "berth.webhookLabels" -}}
{{ include "berth.webhookSelector" . }}
{{ include "berth.versionLabels" . }}
{{- end }}

{{- /* Nor are the extender's. */}}
{{- define "berth.extender" -}}
{{ include "berth.name" . }}-extender
{{- end }}

{{- define "berth.extenderSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-extender
app.kubernetes.io/instance: {{ toYaml .Release.Name }}
{{- end }}

{{- define "berth.extenderLabels" -}}
{{ include "berth.extenderSelector" . }}
{{ include "berth.versionLabels" . }}
{{- end }}

{{- define "berth.labels" -}}
{{ include "berth.selector" . }}
{{ include "berth.versionLabels" . }}
{{- end }}

{{- /* And more, which may be among commonLabels, too: a key that stands twice is refused. */}}
{{- define "berth.labelsWith" -}}
{{ toYaml (mustMergeOverwrite (include "berth.labels" (first .) | fromYaml) (last . | default dict)) }}
{{- end }}

{{- /* A version such as 0.1.0+g1a2b3c4 is no label and no tag as it stands. */}}
{{- define "berth.versionLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "berth.account" -}}
{{ .Values.serviceAccount.name | default (include "berth.name" .) }}
{{- end }}

{{- define "berth.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default (.Chart.AppVersion | replace "+" "_") }}{{ end }}
{{- end }}

{{- /* Who holds the lease: the release, unless the values say otherwise. */}}
{{- define "berth.lease" -}}
{{ dig "leaderElection" "resourceName" (include "berth.name" .) .Values.scheduler }}
{{- end }}

{{- define "berth.leaseNamespace" -}}
{{ dig "leaderElection" "resourceNamespace" .Release.Namespace .Values.scheduler }}
{{- end }}

{{- /* The ConfigMaps of policies.state: the last good policies, and how policies stand. */}}
{{- define "berth.kept" -}}
- {{ include "berth.name" . }}-status
- {{ include "berth.name" . }}-last-good
{{- range $slot := list "a" "b" }}
{{- range $number := until 4 }}
- {{ include "berth.name" $ }}-last-good-{{ $slot }}-{{ $number }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What pods of all Deployments share; `labels` are those by which they are selected. */}}
{{- define "berth.podSettings" -}}
{{- $labels := .labels }}
{{- with .root -}}
securityContext:
  runAsNonRoot: true                    # as whom the image says, or else OpenShift, by namespace
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ toYaml . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $own := dict "labelSelector" (dict "matchLabels" ($labels | fromYaml)) }}
  {{- range . }}
  - {{ toYaml (mustMergeOverwrite (deepCopy $own) .) | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "berth.dns" -}}
- ports:                                # DNS; on 5353 OpenShift's pods listen
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
    - {port: 5353, protocol: UDP}
    - {port: 5353, protocol: TCP}
{{- end }}

{{- define "berth.config" -}}
{{- $own := dict "resourceName" (include "berth.lease" .) "resourceNamespace" (include "berth.leaseNamespace" .) }}
{{- $election := dict "leaderElection" $own }}
{{- $named := printf "%s/%s" .Release.Namespace .Values.policies.configMap }}
{{- $state := printf "%s/%s" .Release.Namespace (include "berth.name" .) }}
{{- $source := dict "policies" (dict "configMap" $named "state" $state) }}
{{- if dig "policies" "sources" nil .Values.berth }}
{{- $source = dict "policies" (dict "state" $state) }}
{{- end }}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
{{ toYaml (mustMergeOverwrite $election (deepCopy .Values.scheduler)) }}
---
apiVersion: berth.dev/v1
kind: BerthConfiguration
{{ toYaml (mustMergeOverwrite (deepCopy .Values.berth) $source) }}
{{- end }}

{{- /* What is read of the cluster to decide, and to answer who asks for /metrics. */}}
{{- define "berth.reads" -}}
- apiGroups: [""]
  resources: [nodes, namespaces, pods, services, replicationcontrollers]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [persistentvolumes, persistentvolumeclaims]
  verbs: [list, watch]
- apiGroups: [apps]
  resources: [replicasets, statefulsets]
  verbs: [list, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch]
- apiGroups: [scheduling.k8s.io, scheduling.x-k8s.io]
  resources: [podgroups]
  verbs: [list, watch]
- apiGroups: [scheduling.x-k8s.io]
  resources: [elasticquotas]
  verbs: [list, watch]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses, csinodes, csidrivers, csistoragecapacities, volumeattachments]
  verbs: [list, watch]
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]                       # who asks for /metrics
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]                       # and whether they may
{{- with dig "policies" "tenants" "configMap" "" .Values.berth }}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ toYaml . }}]       # policies of namespaces: ConfigMaps of this name, and no others
  verbs: [list, watch]
{{- end }}
{{- if .Values.everyPolicy }}
- apiGroups: [apps]
  resources: [deployments, daemonsets]
  verbs: [list, watch]                  # workload.label, .annotation, .replicas
- apiGroups: [batch]
  resources: [jobs, cronjobs]
  verbs: [list, watch]                  # the same
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [list, watch]                  # node.heartbeat
- apiGroups: [metrics.k8s.io]
  resources: [nodes, pods]
  verbs: [list]                         # metric ... = usage cpu
{{- end }}
{{- range .Values.extraReads }}
- apiGroups: {{ toJson .apiGroups }}
  resources: {{ toJson .resources }}
  verbs: [list, watch]
{{- end }}
{{- end }}
