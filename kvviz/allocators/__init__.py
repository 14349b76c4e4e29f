"""Who owns which slots. Integers only; no torch, no requests, no bytes."""
