"""Lanes that run in a thread for a viewer: runner, and the hub that owns all runners."""
