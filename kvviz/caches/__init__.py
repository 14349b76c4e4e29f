"""Layouts in integers (layout, contiguous, paged) and the store in torch (store).

This file stays torch-free: importing any cache module runs it.
"""
