"""Published experiments, run again on these caches and put beside what was printed."""
