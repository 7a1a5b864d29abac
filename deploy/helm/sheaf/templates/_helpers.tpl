{{- define "sheaf.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{- end -}}
{{- end }}

{{- define "sheaf.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "sheaf.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- define "sheaf.secretName" -}}
{{ .Values.secret.existing | default (printf "%s-secret" (include "sheaf.name" .)) }}
{{- end }}

{{- define "sheaf.account" -}}
{{- if .Values.serviceAccount.create -}}{{ .Values.serviceAccount.name | default (include "sheaf.name" .) }}{{- else -}}{{ .Values.serviceAccount.name | default "default" }}{{- end -}}
{{- end }}

{{/* The image of a role. dict: root, values. */}}
{{- define "sheaf.image" -}}
{{- $own := .values.image | default dict -}}
{{ $own.repository | default .root.Values.image.repository }}:{{ $own.tag | default .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* Settings as variables. The hook has no ConfigMap yet. */}}
{{- define "sheaf.settings" -}}
- {name: SHEAF_DATA_DIR, value: /data}
- {name: SHEAF_LOG_FORMAT, value: json}
{{- range $name, $value := .Values.config }}
- name: SHEAF_{{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* Settings that are files: secrets, and where they are. */}}
{{- define "sheaf.env" -}}
{{- range .Values.secret.keys }}
- name: SHEAF_{{ . }}_FILE
  value: /run/secrets/sheaf/{{ . }}
{{- end }}
{{- end }}

{{- define "sheaf.mounts" -}}
- {name: data, mountPath: /data}
- {name: tmp, mountPath: /tmp}
- {name: secrets, mountPath: /run/secrets/sheaf, readOnly: true}
{{- if or .Values.ca.configMap .Values.ca.secret }}
- {name: ca, mountPath: /run/ca, readOnly: true}
{{- end }}
{{- end }}

{{/* dict: root, dataSize, secret: another than the release's */}}
{{- define "sheaf.volumes" -}}
- name: data
  emptyDir:
    sizeLimit: {{ .dataSize | default "1Gi" }}
- name: tmp
  emptyDir: {}
- name: secrets
  secret:
    secretName: {{ .secret | default (include "sheaf.secretName" .root) }}
    defaultMode: 0440
{{- if .root.Values.ca.configMap }}
- name: ca
  configMap: {name: {{ .root.Values.ca.configMap }}}
{{- else if .root.Values.ca.secret }}
- name: ca
  secret: {secretName: {{ .root.Values.ca.secret }}}
{{- end }}
{{- end }}

{{- define "sheaf.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "sheaf.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The pod of a role. dict: root, role, values, command. */}}
{{- define "sheaf.pod" -}}
metadata:
  labels:
    {{- include "sheaf.selector" . | nindent 4 }}
  annotations:
    checksum/config: {{ toYaml (list .root.Values.config .root.Values.secret) | sha256sum }}
    prometheus.io/scrape: "true"
    prometheus.io/port: "6060"
    {{- with .root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "sheaf.account" .root }}
  automountServiceAccountToken: {{ .root.Values.serviceAccount.token }}
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "sheaf.podSecurity" . | nindent 4 }}
  terminationGracePeriodSeconds: {{ add 20 (.values.drainSeconds | default 25) }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "sheaf.selector" . | nindent 10 }}
  containers:
    - name: sheaf
      image: "{{ include "sheaf.image" . }}"
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: [{{ .command | quote }}]
      envFrom:
        - configMapRef:
            name: {{ include "sheaf.name" .root }}-config
      env:
        {{- include "sheaf.env" .root | nindent 8 }}
        - name: SHEAF_EXECUTOR_DRAIN_TIMEOUT
          value: {{ printf "%ds" (int (.values.drainSeconds | default 25)) | quote }}
        {{- with .values.pools }}
        - name: SHEAF_EXECUTOR_POOLS
          value: {{ join "," . | quote }}
        {{- end }}
      ports:
        {{- if eq .role "api" }}
        - {name: http, containerPort: 8080}
        {{- end }}
        - {name: private, containerPort: 6060}
      # The private port answers from the start, also while the process waits
      # for its engines, which no restart would bring nearer. The start may take
      # long: an embedded model is unpacked, a large cache is read.
      startupProbe:
        httpGet: {path: /healthz, port: private}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 90
      livenessProbe:
        httpGet: {path: /healthz, port: private}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: private}
        periodSeconds: 10
        timeoutSeconds: 6
        failureThreshold: 3
      resources:
        {{- toYaml .values.resources | nindent 8 }}
      securityContext:
        {{- include "sheaf.containerSecurity" . | nindent 8 }}
      volumeMounts:
        {{- include "sheaf.mounts" .root | nindent 8 }}
  volumes:
    {{- include "sheaf.volumes" (dict "root" .root "dataSize" .values.dataSize) | nindent 4 }}
  {{- with .values.nodeSelector | default .root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.tolerations | default .root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.affinity | default .root.Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "sheaf.scaling" -}}
scaleUp:
  stabilizationWindowSeconds: 30
  policies: [{type: Percent, value: 100, periodSeconds: 60}]
scaleDown:
  stabilizationWindowSeconds: 600 # a drained executor gives work back, at the price of doing it again
  policies: [{type: Pods, value: 1, periodSeconds: 120}]
{{- end }}
