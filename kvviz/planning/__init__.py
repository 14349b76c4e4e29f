"""A capacity plan tried out: requests replayed dry through each way of handing memory out."""
