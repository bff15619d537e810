module cubeshim/admit

go 1.26.0

require (
	k8s.io/api v0.36.1
	k8s.io/apimachinery v0.36.1
	k8s.io/apiserver v0.36.1
	k8s.io/client-go v0.36.1
	sigs.k8s.io/yaml v1.6.0
)
