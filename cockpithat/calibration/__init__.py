"""Rankings of steps, and conformal sets of steps that hold the decisive one with a chosen coverage."""
