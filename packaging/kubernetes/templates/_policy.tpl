{{/*
The policy in CEL. Kubernetes' MutatingAdmissionPolicy and Kyverno's MutatingPolicy accept the same
expressions. They use only the CEL of Kubernetes 1.30, which has no two-variable macros. Indices
come from a list of numbers, so only a pod's first 32 containers are served.

No list holds objects of CEL (Object.spec.volumes{...}): the API server of 1.36 panics when it
converts such a list to JSON. The policy uses maps of dynamic values instead.
*/}}

{{- define "cubeshim.volume" -}}
object.metadata.labels["cubeshim.io/prefix"]
{{- end }}

{{/* YAML as CEL. */}}
{{- define "cubeshim.cel" -}}
{{- if kindIs "map" . -}}
dyn({ {{- range $i, $key := keys . | sortAlpha }}{{ if $i }}, {{ end }}{{ $key | quote }}: {{
  include "cubeshim.cel" (get $ $key) }}{{ end -}} })
{{- else if kindIs "slice" . -}}
dyn([ {{- range $i, $one := . }}{{ if $i }}, {{ end }}{{ include "cubeshim.cel" $one }}{{ end -}} ])
{{- else -}}
dyn({{ . | toJson }})
{{- end -}}
{{- end }}

{{/* The additions to a pod. The init container meets the restricted Pod Security Standard. */}}
{{- define "cubeshim.added" -}}
initContainers:
  - name: cubeshim
    image: {{ .Values.image | quote }}
    imagePullPolicy: {{ .Values.imagePullPolicy }}
    command: ["cp", "-r", "/cubeshim/.", "/opt/cubeshim/"]
    resources:
      requests: {cpu: 10m, memory: 32Mi}
      limits: {cpu: "1", memory: 128Mi}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      runAsNonRoot: true
{{- with .Values.runAsUser }}
      runAsUser: {{ . | int }}
{{- end }}
      capabilities:
        drop: ["ALL"]
      seccompProfile:
        type: RuntimeDefault
    volumeMounts:
      - name: cubeshim
        mountPath: /opt/cubeshim
volumeMounts:
  - name: cubeshim
    mountPath: /opt/cubeshim
    readOnly: true
  - name: cubeshim-memory
    mountPath: /run/cubeshim
{{- if ne .Values.disk.kind "none" }}
  - name: cubeshim-disk
    mountPath: /var/cache/cubeshim
{{- end }}
volumes:
  - name: cubeshim
    emptyDir: {}
  - name: cubeshim-memory
    emptyDir:
      medium: Memory
      sizeLimit: {{ .Values.memory }}
{{- if eq .Values.disk.kind "node" }}
  - name: cubeshim-disk
    persistentVolumeClaim:
      claimName: cubeshim
{{- else if eq .Values.disk.kind "pod" }}
  - name: cubeshim-disk
    emptyDir:
      sizeLimit: {{ .Values.disk.size }}i
{{- end }}
env:
  - name: CUBESHIM_RAM_DIR
    value: /run/cubeshim
{{- if ne .Values.disk.kind "none" }}
  - name: CUBESHIM_DISK_DIR
    value: /var/cache/cubeshim
  - name: CUBESHIM_DISK
    value: {{ .Values.disk.size | quote }}
{{- end }}
{{- range $name, $value := .Values.env }}
  - name: {{ $name }}
    value: {{ $value | toString | quote }}
{{- end }}
{{- end }}

{{/* The indices of the containers that read below a prefix. */}}
{{- define "cubeshim.readers" -}}
[{{ range $i := until 32 }}{{ if $i }}, {{ end }}{{ $i }}{{ end }}]
  .filter(i, i < size(object.spec.containers))
  .filter(i,
    (has(object.spec.containers[i].volumeMounts) &&
      object.spec.containers[i].volumeMounts.exists(m,
        m.name == {{ include "cubeshim.volume" . }})) ||
    (has(object.spec.containers[i].env) &&
      object.spec.containers[i].env.exists(e,
        e.name in ["CUBESHIM_PREFIXES", "CUBESHIM_PACKS", "CUBESHIM_BUCKETS"])))
{{- end }}

{{/*
The environment of container i. An LD_PRELOAD of the container stays in front of the library. If its
value is given by valueFrom, it gets another name, and the new LD_PRELOAD refers to that name.
*/}}
{{- define "cubeshim.env" -}}
{{- $env := "(has(object.spec.containers[i].env) ? object.spec.containers[i].env : [])" -}}
{{- $library := "/opt/cubeshim/lib/libcubeshim.so" -}}
{{ $env }}.map(e,
  e.name != "LD_PRELOAD" || (has(e.value) && e.value.contains("libcubeshim.so")) ? e :
  has(e.valueFrom) ? dyn({"name": dyn("LD_PRELOAD_OF_POD"), "valueFrom": e.valueFrom}) :
  dyn({"name": "LD_PRELOAD", "value":
    (has(e.value) && e.value != "" ? e.value + ":" : "") + "{{ $library }}"})
) + (
  !{{ $env }}.exists(e, e.name == "LD_PRELOAD")
    ? [dyn({"name": "LD_PRELOAD", "value": "{{ $library }}"})] :
  {{ $env }}.exists(e, e.name == "LD_PRELOAD" && has(e.valueFrom))
    ? [dyn({"name": "LD_PRELOAD", "value": "$(LD_PRELOAD_OF_POD):{{ $library }}"})] : []
) + (
  [dyn({
    "name": "CUBESHIM_PREFIXES",
    "value":
      (has(object.spec.containers[i].volumeMounts) ? object.spec.containers[i].volumeMounts : [])
      .filter(m, m.name == {{ include "cubeshim.volume" . }}).map(m, m.mountPath).join(":")
  })] + {{ include "cubeshim.cel" (include "cubeshim.added" . | fromYaml).env }}
).filter(n, n.value != "" && !{{ $env }}.exists(e, e.name == n.name))
{{- end }}

{{- define "cubeshim.patches" -}}
{{- $added := include "cubeshim.added" . | fromYaml -}}
size(variables.readers) == 0
? (has(object.metadata.annotations) ? [] :
    [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}]) + [
    JSONPatch{
      op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("cubeshim.io/status"),
      value: "not served: no container mounts a volume named " + {{ include "cubeshim.volume" . }}
    }]
: [
    JSONPatch{
      op: "add", path: "/spec/volumes",
      value: (has(object.spec.volumes) ? object.spec.volumes : []) +
        {{ include "cubeshim.cel" $added.volumes }}
    },
    JSONPatch{
      op: "add", path: "/spec/initContainers",
      value: {{ include "cubeshim.cel" $added.initContainers }} +
        (has(object.spec.initContainers) ? object.spec.initContainers : [])
    }
  ] +
  variables.readers.map(i, JSONPatch{
    op: "add", path: "/spec/containers/" + string(i) + "/env", value:
{{ include "cubeshim.env" . | indent 6 }}
  }) +
  variables.readers.map(i, JSONPatch{
    op: "add", path: "/spec/containers/" + string(i) + "/volumeMounts",
    value:
      (has(object.spec.containers[i].volumeMounts) ? object.spec.containers[i].volumeMounts : []) +
      {{ include "cubeshim.cel" $added.volumeMounts }}
  })
{{- end }}

{{/*
Matches each new pod one time: the init container shows that a pod already has the library.
*/}}
{{- define "cubeshim.conditions" -}}
- name: has-label
  expression: has(object.metadata.labels) && "cubeshim.io/prefix" in object.metadata.labels
- name: is-linux
  expression: >-
    !(has(object.spec.os) && object.spec.os.name == "windows") &&
    !(has(object.spec.nodeSelector) && "kubernetes.io/os" in object.spec.nodeSelector &&
    object.spec.nodeSelector["kubernetes.io/os"] == "windows")
- name: is-new
  expression: >-
    !(has(object.spec.initContainers) && object.spec.initContainers.exists(c, c.name == "cubeshim"))
{{- end }}

{{- define "cubeshim.namespaces" -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: In
    values: {{ .Values.namespaces | toJson }}
{{- end }}

{{/* v1, v1beta1 or kyverno. */}}
{{- define "cubeshim.kind" -}}
{{- $has := .Capabilities.APIVersions -}}
{{- if ne .Values.policy "auto" }}{{ .Values.policy }}
{{- else if semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version }}v1
{{- else if $has.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy" }}v1beta1
{{- else if $has.Has "policies.kyverno.io/v1/MutatingPolicy" }}kyverno
{{- else }}{{ fail (cat "this cluster has neither MutatingAdmissionPolicy (Kubernetes 1.36)"
  "nor Kyverno's MutatingPolicy (1.16)") }}
{{- end }}
{{- end }}
