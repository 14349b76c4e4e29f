"""What arrives: lengths, arrival times, named mixes. Numbers only."""
