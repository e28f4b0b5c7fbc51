"""The ranker: readable weights over evidence, graph and text features, trained by a documented command."""
