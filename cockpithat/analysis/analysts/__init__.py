"""Local analysts: each gives one hypothesis and a score for steps; the consensus decides between them."""
