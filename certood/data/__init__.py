"""Image sets: named, local, downloaded or drawn, as numpy arrays in the form a network takes (`sources.load`).

No torch in here but in `stream` and `augment`, and nothing heavy is imported before it is needed.
"""
