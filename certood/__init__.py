"""Image classifiers that provably know when they don't know."""
