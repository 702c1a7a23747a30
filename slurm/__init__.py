"""Batch scripts and jobs of Kubernetes that are ready; a package, so that the wheel holds them."""
