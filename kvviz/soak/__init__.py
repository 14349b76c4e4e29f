"""Long runs under changing mixes, with every check on."""
