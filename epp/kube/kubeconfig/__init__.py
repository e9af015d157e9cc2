"""Which API server a picker uses, and as whom: the pod's own credentials, or kubeconfig files."""
