"""The lesson: why KV caches fragment, told in eight steps on real layouts and real tensors."""
