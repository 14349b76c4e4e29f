"""What a model's KV cache costs and how much of it a GPU holds. Integers only, nothing is run."""
