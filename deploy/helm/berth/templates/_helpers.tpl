{{- define "berth.name" -}}
{{ if eq .Release.Name .Chart.Name }}{{ .Chart.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "berth.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The webhook's pods are not the scheduler's. */}}
{{- define "berth.webhook" -}}
{{ include "berth.name" . }}-webhook
{{- end }}

{{- define "berth.webhookSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-webhook
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "berth.webhookLabels" -}}
{{ include "berth.webhookSelector" . }}
{{ include "berth.versionLabels" . }}
{{- end }}

{{- define "berth.labels" -}}
{{ include "berth.selector" . }}
{{ include "berth.versionLabels" . }}
{{- end }}

{{- define "berth.versionLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "berth.account" -}}
{{ .Values.serviceAccount.name | default (include "berth.name" .) }}
{{- end }}

{{- define "berth.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
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

{{- /* What pods of both Deployments share. */}}
{{- define "berth.podSettings" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
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
