"""What others wrote: files, JSON, YAML and quantities become values, and texts fit to show."""
