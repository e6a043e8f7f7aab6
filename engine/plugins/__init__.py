"""kube-scheduler's in-tree plugins, one file each, over columns."""
