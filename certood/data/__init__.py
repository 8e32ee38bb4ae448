"""Image sets: named, local, downloaded or drawn, as numpy arrays in the form a network takes. No torch in here but in
`stream` and `augment`."""
