// Command kubernetes is the part of a control plane of Kubernetes that the chart is tried against: the API server, which checks
// and stores, and the controllers, which make pods of Deployments and Jobs. Nothing in it runs a container.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	parts := map[string]func() *cobra.Command{
		"apiserver":          apiserver.NewAPIServerCommand,
		"controller-manager": manager.NewControllerManagerCommand,
	}
	if len(os.Args) < 2 || parts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: nebo-kubernetes apiserver|controller-manager [flags]")
		os.Exit(2)
	}
	part := parts[os.Args[1]]
	os.Args = append(os.Args[:1], os.Args[2:]...)
	os.Exit(cli.Run(part()))
}
