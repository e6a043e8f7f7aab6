"""Metrics for policies: asked for in the background, kept with their age, read without waiting."""
