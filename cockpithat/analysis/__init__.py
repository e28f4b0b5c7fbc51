"""Analysis without a language model: hazard rules, evidence detectors, a ranker, and analysts that vote."""
