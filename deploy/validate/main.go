// Command validate checks what deploy/ holds against the schemas of those who
// read it: the chart is rendered and each manifest decoded strictly into
// Kubernetes' own types, PromQL is parsed by Prometheus' parser, and the
// Compose file is loaded by Compose's loader. It is a module of its own, so
// that none of this becomes a dependency of the product.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql/parser"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	root := ".."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	metrics, err := metricNames(filepath.Join(root, "..", "internal", "telemetry"))
	err = errors.Join(err,
		chart(filepath.Join(root, "helm", "sheaf"), metrics),
		compose(filepath.Join(root, "compose.yaml")),
		alerts(filepath.Join(root, "prometheus", "alerts.yaml"), metrics),
		dashboard(filepath.Join(root, "grafana", "sheaf.json"), metrics),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		os.Exit(1)
	}
	fmt.Println("deploy: chart, Compose file, alert rules and dashboard are valid")
}

// chart renders the chart in the ways it is meant to be used, those of the
// examples among them.
func chart(dir string, metrics map[string]bool) error {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	known, err := settings(filepath.Join(dir, "..", "..", "..", "docs", "configuration.md"))
	if err != nil {
		return err
	}
	type values = map[string]any
	with := func(more map[string]int) map[string]int {
		want := map[string]int{"Deployment": 3, "PodDisruptionBudget": 3, "Service": 1, "ConfigMap": 1, "ServiceAccount": 1, "Job": 1, "HorizontalPodAutoscaler": 1, "Secret": 1}
		maps.Copy(want, more)
		maps.DeleteFunc(want, func(_ string, n int) bool { return n == 0 })
		return want
	}
	type use struct {
		name   string
		values values
		want   map[string]int // manifests by kind
	}
	uses := []use{
		{"defaults", values{}, with(nil)},
		{"own secret", values{"secret": values{"existing": "mine"}, "imagePullSecrets": []any{values{"name": "pull"}}, "podAnnotations": values{"a": "b"}}, with(map[string]int{"Secret": 0})},
		{"no autoscaling", values{"executor": values{"replicas": 3, "autoscaling": values{"enabled": false}}, "nodeSelector": values{"disk": "ssd"}}, with(map[string]int{"HorizontalPodAutoscaler": 0})},
		{"values as given", values{"secret": values{"values": values{"STORE_DSN": "a:b@tcp(c:1)/d", "BLOB_ACCESS_KEY": "k", "BLOB_SECRET_KEY": `quo"te`}}, "tolerations": []any{values{"key": "k", "operator": "Exists"}}}, with(map[string]int{"Secret": 2})},
		{"executors of a pool", values{"executor": values{"more": values{"gpu": values{"pools": []any{"gpu"}, "replicas": 1, "nodeSelector": values{"gpu": "true"}, "resources": values{"limits": values{"nvidia.com/gpu": 1}},
			"tolerations": []any{values{"key": "nvidia.com/gpu", "operator": "Exists"}}}}}}, with(map[string]int{"Deployment": 4, "PodDisruptionBudget": 4})},
		{"nothing but the service", values{"migration": values{"enabled": false}, "serviceAccount": values{"create": false}}, with(map[string]int{"Job": 0, "ServiceAccount": 0})},
	}
	for name, want := range map[string]map[string]int{
		"aws":   {"Secret": 0, "Ingress": 1, "HorizontalPodAutoscaler": 0, "ScaledObject": 1, "PodMonitor": 1, "PrometheusRule": 1},
		"gcp":   {"Secret": 0, "Ingress": 1, "NetworkPolicy": 1, "ServiceMonitor": 1, "Service": 2},
		"azure": {"Secret": 0, "Ingress": 1, "HorizontalPodAutoscaler": 0, "ScaledObject": 1, "PodMonitor": 1, "PrometheusRule": 1},
	} {
		v, err := chartutil.ReadValuesFile(filepath.Join(dir, "..", "examples", name+".yaml"))
		if err != nil {
			return fmt.Errorf("example: %w", err)
		}
		uses = append(uses, use{"the example " + name, v, with(want)})
	}
	var errs []error
	for _, u := range uses {
		full, err := chartutil.ToRenderValues(c, u.values, chartutil.ReleaseOptions{Name: "demo", Namespace: "default", IsInstall: true}, chartutil.DefaultCapabilities)
		if err != nil {
			return fmt.Errorf("chart with %s: %w", u.name, err)
		}
		files, err := engine.Render(c, full)
		if err != nil {
			return fmt.Errorf("chart with %s: %w", u.name, err)
		}
		seen := map[string]int{}
		for file, text := range files {
			if strings.HasSuffix(file, ".txt") {
				continue
			}
			for i, doc := range regexp.MustCompile(`(?m)^---\s*$`).Split(text, -1) {
				if strings.TrimSpace(doc) == "" {
					continue
				}
				kind, err := manifest(doc, metrics)
				if err != nil {
					errs = append(errs, fmt.Errorf("chart with %s, %s, manifest %d: %w", u.name, file, i, err))
				}
				seen[kind]++
			}
			for _, m := range regexp.MustCompile(`\bSHEAF_[A-Z0-9_]+`).FindAllString(text, -1) {
				if !known[strings.TrimSuffix(m, "_FILE")] && !known[m] {
					errs = append(errs, fmt.Errorf("chart with %s, %s: docs/configuration.md has no %s", u.name, file, m))
				}
			}
		}
		if !maps.Equal(seen, u.want) {
			errs = append(errs, fmt.Errorf("chart with %s: manifests %v, want %v", u.name, seen, u.want))
		}
	}
	// A mistake ends the rendering with a sentence.
	full, err := chartutil.ToRenderValues(c, values{"executor": values{"autoscaling": values{"driver": "vpa"}}}, chartutil.ReleaseOptions{Name: "demo"}, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	if _, err := engine.Render(c, full); err == nil || !strings.Contains(err.Error(), "choose hpa or keda") {
		errs = append(errs, fmt.Errorf("chart with an unknown autoscaler: %v", err))
	}
	return errors.Join(errs...)
}

// settings reads the names of environment variables that the product knows.
func settings(path string) (map[string]bool, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, m := range regexp.MustCompile("`(SHEAF_[A-Z0-9_]+)`").FindAllStringSubmatch(string(b), -1) {
		names[m[1]] = true
	}
	if len(names) < 50 {
		return nil, fmt.Errorf("only %d settings found in %s", len(names), path)
	}
	return names, nil
}

// scaledObject is what KEDA's documentation says of keda.sh/v1alpha1, as far as
// the chart uses it (https://keda.sh/docs/2.18/reference/scaledobject-spec).
type scaledObject struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Spec       struct {
		ScaleTargetRef  struct{ Name string } `json:"scaleTargetRef"`
		MinReplicaCount int32                 `json:"minReplicaCount"`
		MaxReplicaCount int32                 `json:"maxReplicaCount"`
		Advanced        struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []struct {
			Type       string            `json:"type"`
			MetricType string            `json:"metricType"`
			Metadata   map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// manifest decodes one manifest; an unknown or misplaced field is an error.
func manifest(doc string, metrics map[string]bool) (kind string, err error) {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
		return "", err
	}
	types := map[string]any{
		"v1/ConfigMap": &corev1.ConfigMap{}, "v1/Secret": &corev1.Secret{}, "v1/Service": &corev1.Service{}, "v1/ServiceAccount": &corev1.ServiceAccount{},
		"apps/v1/Deployment": &appsv1.Deployment{}, "batch/v1/Job": &batchv1.Job{},
		"networking.k8s.io/v1/Ingress": &networkingv1.Ingress{}, "networking.k8s.io/v1/NetworkPolicy": &networkingv1.NetworkPolicy{},
		"policy/v1/PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "autoscaling/v2/HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{},
		"monitoring.coreos.com/v1/PodMonitor": &monitoringv1.PodMonitor{}, "monitoring.coreos.com/v1/ServiceMonitor": &monitoringv1.ServiceMonitor{},
		"monitoring.coreos.com/v1/PrometheusRule": &monitoringv1.PrometheusRule{}, "keda.sh/v1alpha1/ScaledObject": &scaledObject{},
	}
	into, ok := types[head.APIVersion+"/"+head.Kind]
	if !ok {
		return head.Kind, fmt.Errorf("unexpected %s of %s", head.Kind, head.APIVersion)
	}
	if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
		return head.Kind, fmt.Errorf("%s: %w", head.Kind, err)
	}
	switch o := into.(type) {
	case *appsv1.Deployment:
		return head.Kind, errors.Join(deployment(o), pod(o.Name, o.Spec.Template.Spec))
	case *batchv1.Job:
		if o.Spec.ActiveDeadlineSeconds == nil || o.Annotations["helm.sh/hook"] != "pre-install,pre-upgrade" {
			err = fmt.Errorf("%s: is no hook with a deadline", o.Name)
		}
		return head.Kind, errors.Join(err, pod(o.Name, o.Spec.Template.Spec))
	case *autoscalingv2.HorizontalPodAutoscaler:
		return head.Kind, autoscaler(o, metrics)
	case *scaledObject:
		return head.Kind, keda(o, metrics)
	case *monitoringv1.PrometheusRule:
		if len(o.Spec.Groups) == 0 || len(o.Spec.Groups[0].Rules) == 0 {
			return head.Kind, fmt.Errorf("%s: has no rules", o.Name)
		}
	}
	return head.Kind, nil
}

// pending is the metric by which executors are scaled: pending tasks of all tenants.
const pending = "sheaf_tasks_pending"

// autoscaler makes sure that executors, and nothing else, follow the pending
// tasks for each of them, under a name that the product registers.
func autoscaler(h *autoscalingv2.HorizontalPodAutoscaler, metrics map[string]bool) error {
	var errs []error
	if to := h.Spec.ScaleTargetRef; to.Kind != "Deployment" || !strings.HasSuffix(to.Name, "-executor") {
		errs = append(errs, fmt.Errorf("%s: scales %s %s, not the executors", h.Name, to.Kind, to.Name))
	}
	if len(h.Spec.Metrics) != 1 || h.Spec.Metrics[0].External == nil || h.Spec.Metrics[0].External.Metric.Name != pending || !metrics[pending] {
		return errors.Join(append(errs, fmt.Errorf("%s: does not scale by %s alone, or the product has no such metric", h.Name, pending))...)
	}
	if v := h.Spec.Metrics[0].External.Target.AverageValue; v == nil || v.Sign() <= 0 {
		errs = append(errs, fmt.Errorf("%s: has no number of tasks to aim at", h.Name))
	}
	return errors.Join(errs...)
}

// keda makes sure of the same for KEDA, and that its query is PromQL.
func keda(o *scaledObject, metrics map[string]bool) error {
	var errs []error
	if !strings.HasSuffix(o.Spec.ScaleTargetRef.Name, "-executor") || o.Spec.MinReplicaCount < 1 || o.Spec.MaxReplicaCount < o.Spec.MinReplicaCount {
		errs = append(errs, fmt.Errorf("%s: does not scale the executors between bounds", o.Metadata.Name))
	}
	if len(o.Spec.Triggers) != 1 || o.Spec.Triggers[0].Type != "prometheus" || o.Spec.Triggers[0].MetricType != "AverageValue" {
		return errors.Join(append(errs, fmt.Errorf("%s: is not triggered by one average of Prometheus", o.Metadata.Name))...)
	}
	t := o.Spec.Triggers[0].Metadata
	if !strings.Contains(t["query"], pending) || t["serverAddress"] == "" || t["threshold"] == "" {
		errs = append(errs, fmt.Errorf("%s: the trigger lacks its query by %s, address or threshold", o.Metadata.Name, pending))
	}
	return errors.Join(append(errs, query(t["query"], metrics))...)
}

// deployment checks what types alone do not.
func deployment(d *appsv1.Deployment) error {
	var errs []error
	if spec := d.Spec.Template.Spec; strings.HasSuffix(d.Name, "-gpu") != (len(spec.Tolerations) == 1 && spec.Tolerations[0].Key == "nvidia.com/gpu") || strings.HasSuffix(d.Name, "-gpu") != (spec.NodeSelector["gpu"] == "true") {
		errs = append(errs, fmt.Errorf("%s: runs on the machines of another pool", d.Name))
	}
	if strings.HasSuffix(d.Name, "-keeper") && (d.Spec.Replicas == nil || *d.Spec.Replicas < 2) {
		errs = append(errs, fmt.Errorf("%s: has no second replica to take over", d.Name))
	}
	for k, v := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Labels[k] != v {
			errs = append(errs, fmt.Errorf("%s: the selector does not match the pod's label %s", d.Name, k))
		}
	}
	for _, c := range d.Spec.Template.Spec.Containers {
		ports := map[string]bool{}
		for _, p := range c.Ports {
			ports[p.Name] = true
		}
		for name, p := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
			if p == nil || !ports[p.HTTPGet.Port.StrVal] {
				errs = append(errs, fmt.Errorf("%s: the %s probe is missing or asks a port that does not exist", d.Name, name))
			}
		}
	}
	return errors.Join(errs...)
}

// pod checks that a pod is bounded, is not root, and mounts what it names.
func pod(name string, p corev1.PodSpec) error {
	var errs []error
	volumes := map[string]bool{}
	for _, v := range p.Volumes {
		volumes[v.Name] = true
	}
	for _, c := range p.Containers {
		mounts := map[string]bool{}
		for _, m := range c.VolumeMounts {
			mounts[m.MountPath] = true
			if !volumes[m.Name] {
				errs = append(errs, fmt.Errorf("%s: no volume %s", name, m.Name))
			}
		}
		for _, e := range c.Env {
			if dir := filepath.Dir(e.Value); strings.HasPrefix(dir, "/run/") && !mounts[dir] {
				errs = append(errs, fmt.Errorf("%s: %s names %s, which is not mounted", name, e.Name, e.Value))
			}
		}
		if c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
			errs = append(errs, fmt.Errorf("%s: memory is not bounded", name))
		}
	}
	if p.SecurityContext == nil || p.SecurityContext.RunAsNonRoot == nil || !*p.SecurityContext.RunAsNonRoot {
		errs = append(errs, fmt.Errorf("%s: runs as root", name))
	}
	return errors.Join(errs...)
}

// compose loads the file as docker compose does.
func compose(path string) error {
	options, err := cli.NewProjectOptions([]string{path}, cli.WithEnv([]string{"SHEAF_DB_PASSWORD=x", "SHEAF_S3_SECRET=x", "SHEAF_SECRETS_KEY=x"}))
	if err != nil {
		return fmt.Errorf("compose: %w", err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return fmt.Errorf("compose: %w", err)
	}
	want := []string{"elasticsearch", "executor-1", "executor-2", "keeper-1", "keeper-2", "minio", "mysql", "redis", "serve"}
	if got := slices.Sorted(slices.Values(project.ServiceNames())); !slices.Equal(got, want) {
		return fmt.Errorf("compose: services %v, want %v", got, want)
	}
	return nil
}

// metricNames reads the names that the product registers.
func metricNames(path string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(path, "*.go"))
	if err != nil {
		return nil, err
	}
	var b []byte
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		b = append(b, text...)
	}
	names := map[string]bool{"up": true}
	for _, m := range regexp.MustCompile(`"(sheaf_[a-z_]+)"`).FindAllStringSubmatch(string(b), -1) {
		names[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?:counter|desc|WatchValues)\("([a-z_]+)"`).FindAllStringSubmatch(string(b), -1) {
		names["sheaf_"+m[1]] = true
	}
	for _, m := range regexp.MustCompile(`histogram\("([a-z_]+)"`).FindAllStringSubmatch(string(b), -1) {
		for _, end := range []string{"_bucket", "_sum", "_count"} {
			names["sheaf_"+m[1]+end] = true
		}
	}
	for _, kind := range []string{"runs", "changed", "failed"} {
		names["sheaf_keeper_loop_"+kind+"_total"] = true
	}
	names["process_resident_memory_bytes"], names["go_goroutines"] = true, true
	if len(names) < 20 {
		return nil, fmt.Errorf("only %d metrics found in %s", len(names), path)
	}
	return names, nil
}

// query parses an expression and makes sure that its metrics exist.
func query(expr string, metrics map[string]bool) error {
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return fmt.Errorf("%s: %w", expr, err)
	}
	var errs []error
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok && !metrics[v.Name] {
			errs = append(errs, fmt.Errorf("%s: there is no metric %q", expr, v.Name))
		}
		return nil
	})
	return errors.Join(errs...)
}

// alerts checks the rules: PromQL, names, and that each says what to do.
func alerts(path string, metrics map[string]bool) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var file struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict(b, &file); err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	guide, err := os.ReadFile(filepath.Join(filepath.Dir(path), "..", "..", "docs", "operations.md"))
	if err != nil {
		return err
	}
	tests, err := os.ReadFile(filepath.Join(filepath.Dir(path), "alerts_test.yaml"))
	if err != nil {
		return err
	}
	var errs []error
	rules := 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rules++
			if err := query(r.Expr, metrics); err != nil {
				errs = append(errs, fmt.Errorf("alert %s: %w", r.Alert, err))
			}
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				errs = append(errs, fmt.Errorf("alert %s: severity, summary or description is missing", r.Alert))
			}
			if fires := regexp.MustCompile(`alertname: ` + r.Alert + `\n\s+eval_time: \S+\n\s+exp_alerts:`); !fires.Match(tests) {
				errs = append(errs, fmt.Errorf("alert %s: alerts_test.yaml does not show that it fires", r.Alert))
			}
			if !strings.Contains(string(tests), "{alertname: "+r.Alert+",") {
				errs = append(errs, fmt.Errorf("alert %s: alerts_test.yaml does not show that it can be silent", r.Alert))
			}
			if !strings.Contains(string(guide), "`"+r.Alert+"`") {
				errs = append(errs, fmt.Errorf("alert %s: docs/operations.md does not say what to do", r.Alert))
			}
		}
	}
	if rules == 0 {
		errs = append(errs, errors.New("alerts: there are no rules"))
	}
	return errors.Join(errs...)
}

// dashboard checks each panel's queries.
func dashboard(path string, metrics map[string]bool) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var file struct {
		Title  string
		Panels []struct {
			Title   string
			Type    string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return fmt.Errorf("dashboard: %w", err)
	}
	var errs []error
	for _, p := range file.Panels {
		if p.Title == "" || p.GridPos.W < 1 || p.GridPos.X+p.GridPos.W > 24 || len(p.Targets) == 0 {
			errs = append(errs, fmt.Errorf("dashboard: the panel %q has no title, place or query", p.Title))
		}
		for _, t := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$tenant", ".*").Replace(t.Expr)
			if err := query(expr, metrics); err != nil {
				errs = append(errs, fmt.Errorf("dashboard, %s: %w", p.Title, err))
			}
		}
	}
	if len(file.Panels) < 8 || file.Title == "" {
		errs = append(errs, fmt.Errorf("dashboard: %d panels", len(file.Panels)))
	}
	return errors.Join(errs...)
}
