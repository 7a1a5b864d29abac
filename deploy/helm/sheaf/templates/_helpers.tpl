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
  automountServiceAccountToken: false
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
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
      image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: [{{ .command | quote }}]
      envFrom:
        - configMapRef:
            name: {{ include "sheaf.name" .root }}-config
      env:
        {{- range .root.Values.secret.keys }}
        - name: SHEAF_{{ . }}_FILE
          value: /run/secrets/sheaf/{{ . }}
        {{- end }}
        - name: SHEAF_EXECUTOR_DRAIN_TIMEOUT
          value: {{ printf "%ds" (int (.values.drainSeconds | default 25)) | quote }}
      ports:
        {{- if eq .role "api" }}
        - {name: http, containerPort: 8080}
        {{- end }}
        - {name: private, containerPort: 6060}
      # The private port answers from the start, also while the process waits
      # for its engines, which no restart would bring nearer.
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
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: data, mountPath: /data}
        - {name: tmp, mountPath: /tmp}
        - {name: secrets, mountPath: /run/secrets/sheaf, readOnly: true}
  volumes:
    - name: data
      emptyDir:
        sizeLimit: {{ .values.dataSize | default "1Gi" }}
    - name: tmp
      emptyDir: {}
    - name: secrets
      secret:
        secretName: {{ include "sheaf.secretName" .root }}
        defaultMode: 0440
  {{- with .root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
