"""Where scenarios run: `local` starts everything itself on loopback; `kube` meets a release that runs already."""
