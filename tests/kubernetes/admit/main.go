// Admits pods as an API server with a MutatingAdmissionPolicy does, by the API server's own plugin.
//
//	admit POLICY.yaml OUT POD.yaml ...
//
// POLICY.yaml has a policy and its binding. OUT/NAME.yaml becomes POD.yaml as it is after its
// admission. A policy that fails ends the program, whatever its failurePolicy says.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
	"sigs.k8s.io/yaml"
)

// A cluster that has the schemas of Kubernetes' own kinds.
type cluster struct{ *fake.Clientset }
type schemas struct{ discovery.DiscoveryInterface }

func (c cluster) Discovery() discovery.DiscoveryInterface {
	return schemas{c.Clientset.Discovery()}
}
func (schemas) OpenAPIV3() openapi.Client {
	return openapitest.NewEmbeddedFileClient()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "admit:", err)
		os.Exit(1)
	}
}

// Refuses fields that the kind does not have.
func read(text []byte, into any) {
	check(yaml.UnmarshalStrict(text, into))
}

// Sets what the API server sets when it stores a policy.
func setDefaults(match *admissionregistration.MatchResources) {
	if match.NamespaceSelector == nil {
		match.NamespaceSelector = &metav1.LabelSelector{}
	}
	if match.ObjectSelector == nil {
		match.ObjectSelector = &metav1.LabelSelector{}
	}
	if match.MatchPolicy == nil {
		equivalent := admissionregistration.Equivalent
		match.MatchPolicy = &equivalent
	}
}

func policies(file string) []runtime.Object {
	text, err := os.ReadFile(file)
	check(err)
	var found []runtime.Object
	for _, part := range bytes.Split(text, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		check(yaml.Unmarshal(part, &kind))
		switch kind.Kind {
		case "MutatingAdmissionPolicy":
			policy := &admissionregistration.MutatingAdmissionPolicy{}
			read(part, policy)
			fail := admissionregistration.Fail
			policy.Spec.FailurePolicy = &fail
			setDefaults(policy.Spec.MatchConstraints)
			found = append(found, policy)
		case "MutatingAdmissionPolicyBinding":
			binding := &admissionregistration.MutatingAdmissionPolicyBinding{}
			read(part, binding)
			setDefaults(binding.Spec.MatchResources)
			found = append(found, binding)
		}
	}
	return found
}

func startPlugin(ctx context.Context, objects []runtime.Object) *mutating.Plugin {
	client := cluster{fake.NewClientset(objects...)}
	factory := informers.NewSharedInformerFactory(client, 0)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(core.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	plugin, err := mutating.NewPlugin(nil)
	check(err)
	plugin.SetEnabled(true)
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetRESTMapper(mapper)
	plugin.SetDynamicClient(dynamicfake.NewSimpleDynamicClient(scheme.Scheme))
	plugin.SetAuthorizer(authorizerfactory.NewAlwaysAllowAuthorizer())
	plugin.SetDrainedNotification(ctx.Done())
	check(plugin.ValidateInitialization())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return plugin
}

func admit(ctx context.Context, plugin *mutating.Plugin, pod *core.Pod) {
	interfaces := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	attributes := admission.NewAttributesRecord(pod, nil, core.SchemeGroupVersion.WithKind("Pod"),
		pod.Namespace, pod.Name, core.SchemeGroupVersion.WithResource("pods"), "",
		admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "user"})
	err := plugin.Admit(ctx, attributes, interfaces)
	// The plugin reads the schemas in the background.
	for apierrors.IsServiceUnavailable(err) && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		err = plugin.Admit(ctx, attributes, interfaces)
	}
	check(err)
}

// Leaves out what the types write although it is empty.
func write(file string, pod *core.Pod) {
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	text, err := json.Marshal(pod)
	check(err)
	var object map[string]any
	check(json.Unmarshal(text, &object))
	delete(object, "status")
	spec := object["spec"].(map[string]any)
	for _, kind := range []string{"initContainers", "containers", "ephemeralContainers"} {
		list, _ := spec[kind].([]any)
		for _, entry := range list {
			container := entry.(map[string]any)
			if resources, ok := container["resources"].(map[string]any); ok && len(resources) == 0 {
				delete(container, "resources")
			}
		}
	}
	text, err = yaml.Marshal(object)
	check(err)
	check(os.WriteFile(file, text, 0o644))
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: admit POLICY.yaml OUT POD.yaml ...")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	objects := policies(os.Args[1])
	pods := map[string]*core.Pod{}
	namespaces := map[string]bool{}
	for _, file := range os.Args[3:] {
		text, err := os.ReadFile(file)
		check(err)
		pod := &core.Pod{}
		read(text, pod)
		pods[filepath.Join(os.Args[2], filepath.Base(file))] = pod
		if !namespaces[pod.Namespace] {
			namespaces[pod.Namespace] = true
			objects = append(objects, &core.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name:   pod.Namespace,
				Labels: map[string]string{"kubernetes.io/metadata.name": pod.Namespace}}})
		}
	}
	plugin := startPlugin(ctx, objects)
	for file, pod := range pods {
		fmt.Println("admitting", strings.TrimSuffix(filepath.Base(file), ".yaml"))
		admit(ctx, plugin, pod)
		write(file, pod)
	}
}
