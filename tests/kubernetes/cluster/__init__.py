"""A Kubernetes cluster on one machine: the real control plane, and processes in place of containers.

etcd, API server, controller manager and scheduler are the real ones (`tests/e2e/controlplane`). One process of ours
stands for what a node adds: a kubelet that starts pods as processes, DNS, and the proxy behind ClusterIPs. Everything
lives in a network namespace and a mount namespace of its own, so the machine's own network and files stay as they are;
every process dies with the one that started it, and the namespaces with the last process.

Needs root, `ip` (iproute2), `nsenter`, `setpriv`, `chroot` and overlayfs.
"""
