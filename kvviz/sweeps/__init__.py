"""A grid of settings, each cell a dry run, on the cores of this machine or on a cluster."""
